/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/hca_filter.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool passes(const char *list, const char *name, int port)
{
	const struct hca_token *token;
	struct hca_filter filter;
	const char *wrong = NULL;

	assert_int_equal(ib_hca_filter_parse(list, &filter, &wrong), 0);
	return ib_hca_filter_match(&filter, name, port, &token);
}

static void test_empty_passes_all(void **state)
{
	(void)state;
	assert_true(passes(NULL, "mlx5_0", 1));
	assert_true(passes("", "mlx5_0", 1));
}

static void test_prefix(void **state)
{
	(void)state;
	assert_true(passes("mlx5", "mlx5_0", 1));
	assert_true(passes("mlx5_1", "mlx5_1", 1));
	assert_true(passes("mlx5_1", "mlx5_10", 1));
	assert_false(passes("mlx5_10", "mlx5_1", 1));
	assert_true(passes("mlx4,mlx5_2", "mlx5_2", 2));
	assert_false(passes("mlx4,mlx5_2", "mlx5_3", 2));
	assert_true(passes("mlx5_0,,mlx5_1,", "mlx5_1", 1));
}

static void test_exact(void **state)
{
	(void)state;
	assert_true(passes("=mlx5_1", "mlx5_1", 1));
	assert_false(passes("=mlx5_1", "mlx5_10", 1));
	assert_true(passes("=mlx5_1,mlx5_10", "mlx5_10", 1));
	assert_false(passes("=mlx5", "mlx5_0", 1));
}

static void test_exclude(void **state)
{
	(void)state;
	assert_false(passes("^mlx5_1", "mlx5_1", 1));
	assert_false(passes("^mlx5_1", "mlx5_10", 1));
	assert_true(passes("^mlx5_1", "mlx5_2", 1));
	assert_true(passes("^=mlx5_1", "mlx5_10", 1));
	assert_false(passes("^=mlx5_1,mlx5_3", "mlx5_3", 1));
	assert_false(passes("^mlx5_1:1", "mlx5_1", 1));
	assert_true(passes("^mlx5_1:1", "mlx5_1", 2));
}

static void test_port(void **state)
{
	(void)state;
	assert_true(passes("mlx5_0:1", "mlx5_0", 1));
	assert_false(passes("mlx5_0:1", "mlx5_0", 2));
	assert_true(passes("mlx5_0:1,mlx5_0:2", "mlx5_0", 2));
	assert_true(passes("=mlx5_0:2:3:4", "mlx5_0", 2));
}

static void test_rail_and_plane(void **state)
{
	const struct hca_token *token;
	struct hca_filter filter;
	const char *wrong;

	(void)state;
	assert_int_equal(ib_hca_filter_parse("a:1:7:9,b:2,c", &filter, &wrong), 0);
	assert_int_equal(filter.count, 3);
	assert_true(ib_hca_filter_match(&filter, "a0", 1, &token));
	assert_int_equal(token->rail_id, 7);
	assert_int_equal(token->plane_id, 9);
	assert_true(ib_hca_filter_match(&filter, "b0", 2, &token));
	assert_int_equal(token->rail_id, -1);
	assert_true(filter.tokens[0].used);
	assert_true(filter.tokens[1].used);
	assert_false(filter.tokens[2].used);
}

static void test_malformed(void **state)
{
	static const char *const lists[] = {
		"^",  "=",   "^=",   ",",    "=^a",  "a,^b",  "a,=b",      ":1",
		"a:", "a:x", "a:1x", "a:-1", "a:1:", "a:1::", "a:1:2:3:4", "a:9999999"};
	char deep[256] = "";
	char longest[80];

	(void)state;
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		struct hca_filter filter;
		const char *wrong = NULL;

		if (ib_hca_filter_parse(lists[i], &filter, &wrong) != -EINVAL || wrong == NULL) {
			fail_msg("'%s' was taken", lists[i]);
		}
	}
	for (int i = 0; i < HCA_FILTER_TOKENS_MAX + 1; i++) {
		strcat(deep, "a,");
	}
	memset(longest, 'a', sizeof(longest));
	longest[HCA_FILTER_NAME_MAX] = '\0';
	for (int i = 0; i < 2; i++) {
		struct hca_filter filter;
		const char *wrong;

		assert_int_equal(ib_hca_filter_parse(i == 0 ? deep : longest, &filter, &wrong),
				 -EINVAL);
	}
	longest[HCA_FILTER_NAME_MAX - 1] = '\0';
	assert_true(passes(longest, longest, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty_passes_all),
		cmocka_unit_test(test_prefix),
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_exclude),
		cmocka_unit_test(test_port),
		cmocka_unit_test(test_rail_and_plane),
		cmocka_unit_test(test_malformed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
