/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The life of a process under each generation of NCCL: under which name it finds the library, which
 * tables it looks up in which order, when it calls init again, when it unloads, what its proxy
 * does.
 */

#include "test/unit/loader_traffic.h"

#include <strings.h>

/* What becomes of the library and its init between two communicators. */
enum keep {
	KEEP_LOADED,    /* loaded and initialised once for ever */
	KEEP_FORGOTTEN, /* unloaded, loaded again, not initialised again */
	KEEP_NOTHING,   /* unloaded, loaded and initialised again */
	KEEP_REFS       /* init and finalize by each communicator, unloaded with the last */
};

struct release {
	const char *name;
	int newest, oldest;
	bool by_name_only; /* never opens what NCCL_NET_PLUGIN says as it stands */
	enum keep keep;
};

static const struct release releases[] = {
	{"2.19", 7, 5, true, KEEP_LOADED},
	{"2.20", 8, 5, true, KEEP_LOADED},
	{"2.21", 8, 5, false, KEEP_LOADED},
	{"2.22_2.23", 8, 5, false, KEEP_FORGOTTEN},
	{"2.24_2.25", 9, 5, false, KEEP_NOTHING},
	{"2.26_2.27", 10, 6, false, KEEP_LOADED},
	{"2.27_unloading", 10, 6, false, KEEP_NOTHING},
	{"2.28_2.29", 11, 6, false, KEEP_REFS},
	{"2.30", 12, 6, false, KEEP_REFS},
	/* A newer release calls an older table through a shim of its own, which holds init back
	 * until nobody is left and has no finalize. */
	{"2.28_shim_v10", 10, 10, false, KEEP_NOTHING},
	{"2.28_shim_v9", 9, 9, false, KEEP_NOTHING},
	{"2.28_shim_v8", 8, 8, false, KEEP_NOTHING},
	{"2.28_shim_v6", 6, 6, false, KEEP_NOTHING},
};

/* NCCL_NET_PLUGIN=braid. As it stands that is no library; the name made of it is. */
static void *release_dlopen(const struct release *release)
{
	void *lib = release->by_name_only ? NULL : dlopen("braid", RTLD_NOW | RTLD_LOCAL);

	EXPECT(lib == NULL);
	lib = dlopen("libnccl-net-braid.so", RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL) {
		fprintf(stderr, "%s\n", dlerror());
	}
	EXPECT(lib != NULL);
	return lib;
}

/* The first table found is the one that counts: it has to be the newest this release knows. */
static struct netapi release_load(const struct release *release)
{
	void *lib = release_dlopen(release);
	struct netapi api;
	char symbol[32];

	for (int version = release->newest; version >= release->oldest; version--) {
		snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
		if (dlsym(lib, symbol) != NULL) {
			version_now = version;
			break;
		}
	}
	EXPECT(version_now == release->newest);
	snprintf(symbol, sizeof(symbol), "ncclCollNetPlugin_v%d", release->newest);
	EXPECT(dlsym(lib, symbol) == NULL);
	/* the same library again, by the adapter of that table; one of the two references goes */
	EXPECT(netapi_load(&api, PLUGIN_PATH, release->newest) == 0);
	EXPECT(api.lib == lib);
	dlclose(lib);
	/* NCCL_NET is compared before init, without case; a built-in transport's name would clash
	 */
	EXPECT(strcasecmp(api.name, "braid") == 0);
	return api;
}

static void communicator(struct netapi *api)
{
	struct netapi_props props;
	struct traffic t;

	EXPECT(devices_count(api) == FABRIC_RAILS);
	EXPECT_OK(api->ops->properties(api, 0, &props));
	for (int dev = 0; dev < FABRIC_RAILS; dev++) {
		EXPECT_OK(api->ops->properties(api, dev, &props));
	}
	traffic_walk(api, 0, true);
	traffic_open(&t, api, 1, false);
	traffic_round(&t, 8, 0, true);
	traffic_close(&t);
	listen_walk(api);
	traffic_abort(api);
}

/* One communicator after the other, with what happens in between. */
static void communicators_in_turn(const struct release *release)
{
	unsigned int before = thread_count_first();
	struct netapi api = release_load(release);

	for (int turn = 0; turn < 2; turn++) {
		if (turn > 0 && release->keep != KEEP_LOADED) {
			api = release_load(release);
		}
		if (turn == 0 || release->keep == KEEP_NOTHING) {
			EXPECT_OK(api.ops->init(&api, logger));
		}
		communicator(&api);
		EXPECT(thread_count_settles(before));
		if (release->keep != KEEP_LOADED) {
			netapi_unload(&api);
		}
	}
}

/* Two at a time: each with its init and finalize, the library opened by each. */
static void communicators_with_refs(const struct release *release)
{
	unsigned int before = thread_count_first();

	for (int turn = 0; turn < 2; turn++) { /* all gone, and again */
		struct netapi first = release_load(release);
		struct netapi second = release_load(release);

		EXPECT_OK(first.ops->init(&first, logger));
		EXPECT_OK(second.ops->init(&second, logger));
		communicator(&first);
		EXPECT_OK(first.ops->finalize(&first));
		netapi_unload(&first);
		communicator(&second);
		EXPECT_OK(second.ops->finalize(&second));
		netapi_unload(&second);
		EXPECT(thread_count_settles(before));
	}
}

static void release_run(const struct release *release)
{
	if (release->keep == KEEP_REFS) {
		communicators_with_refs(release);
	} else {
		communicators_in_turn(release);
	}
}

static void test_release(void **state)
{
	const struct release *release = *state;

	fabric_expect(release->name);
}

enum {
	RELEASE_COUNT = sizeof(releases) / sizeof(releases[0])
};

int main(int argc, char **argv)
{
	struct CMUnitTest tests[RELEASE_COUNT];

	for (size_t i = 0; i < RELEASE_COUNT; i++) {
		if (argc == 2 && strcmp(argv[1], releases[i].name) == 0) {
			alarm(CHILD_LIMIT_S);
			release_run(&releases[i]);
			return 0;
		}
		tests[i] = (struct CMUnitTest){.name = releases[i].name,
					       .test_func = test_release,
					       .initial_state = (void *)(uintptr_t)&releases[i]};
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
