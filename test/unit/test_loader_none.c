/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Nothing to offer: no device, no verbs library, settings that are refused. NCCL must be able to go
 * on with its own transport, whatever table it took: init succeeds and there are 0 devices, since a
 * failed init crashes 2.28.
 */

#include "test/unit/loader_rig.h"

#include <limits.h>

/* No table before the first or after the last, and none of NCCL's other plugin kinds. */
static void symbols_expect(void *lib)
{
	EXPECT(dlsym(lib, "ncclNetPlugin_v5") == NULL);
	EXPECT(dlsym(lib, "ncclNetPlugin_v13") == NULL);
	EXPECT(dlsym(lib, "ncclCollNetPlugin_v8") == NULL);
	EXPECT(dlsym(lib, "ncclGin_v11") == NULL);
	EXPECT(dlsym(lib, "plugin_init") == NULL);
}

/* A release that finds no device closes the library again and goes on without it. */
static void no_devices_walk(void)
{
	for (int version = VERSION_LAST; version >= VERSION_FIRST; version--) {
		struct netapi api = table_open(version);
		struct netapi_props props;

		symbols_expect(api.lib);
		for (int user = 0; user < 2; user++) {
			EXPECT_OK(api.ops->init(&api, logger));
			EXPECT(devices_count(&api) == 0);
			EXPECT(api.ops->properties(&api, 0, &props) != NCCL_RESULT_SUCCESS);
		}
		for (int end = 0; end < 3; end++) { /* once too often, as 2.28.3 may */
			EXPECT_OK(api.ops->finalize(&api));
		}
		netapi_unload(&api);
	}
}

static void scenario_disabled(void)
{
	no_devices_walk();
	EXPECT(warned[0] == '\0');
}

static void scenario_no_library(void)
{
	no_devices_walk();
	EXPECT(strstr(warned, "libibverbs") != NULL);
}

static void scenario_refused(void)
{
	no_devices_walk();
	EXPECT(strstr(warned, "NCCL_IB_HCA") != NULL);
}

static const struct scenario scenarios[] = {
	{"disabled", scenario_disabled},
	{"no_library", scenario_no_library},
	{"refused", scenario_refused},
};

static void test_disabled(void **state)
{
	const char *const extra[ENV_EXTRA_COUNT] = {"BRAID_DISABLE=1"};
	const char *const by_nccl[ENV_EXTRA_COUNT] = {"NCCL_IB_DISABLE=1"};

	(void)state;
	scenario_expect("disabled", extra);
	scenario_expect("disabled", by_nccl);
}

/* Files of the library's names that are no library come first in the search path. */
static void test_no_library(void **state)
{
	static const char *const names[] = {"libibverbs.so", "libibverbs.so.1"};
	char search[PATH_MAX];
	const char *const extra[ENV_EXTRA_COUNT] = {search};

	(void)state;
	assert_true(tree_begin());
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		FILE *file = fopen(tree_at(names[i]), "w");

		assert_non_null(file);
		fputs("no library\n", file);
		fclose(file);
	}
	snprintf(search, sizeof(search), "LD_LIBRARY_PATH=%s", tree_root);
	scenario_expect("no_library", extra);
	assert_int_equal(tree_end(), 0);
}

static void test_refused(void **state)
{
	const char *const extra[ENV_EXTRA_COUNT] = {"NCCL_IB_HCA=mlx5_0;mlx5_1"};

	(void)state;
	scenario_expect("refused", extra);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_disabled),
		cmocka_unit_test(test_no_library),
		cmocka_unit_test(test_refused),
	};

	if (argc == 2) {
		return scenario_run(scenarios, sizeof(scenarios) / sizeof(scenarios[0]), argv[1]);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
