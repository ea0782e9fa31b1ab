/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/draw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct timeline timeline;
static struct demo demo;
static char *page;

static int setup(void **state)
{
	(void)state;
	timeline_clear(&timeline);
	demo = (struct demo){.rule = "cut host=0 rail=1 bytes=5", .driver = "", .rate_mbps = 40};
	return demo_rule_read(&demo);
}

static int teardown(void **state)
{
	(void)state;
	timeline_clear(&timeline);
	free(page);
	page = NULL;
	return 0;
}

static void take(const char *line)
{
	assert_int_equal(timeline_line(&timeline, line), 0);
}

/** Draw what was taken; no number on the page may be none. */
static void draw(const struct incidents *incidents)
{
	size_t len = 0;
	struct facts facts;
	FILE *file = open_memstream(&page, &len);

	assert_non_null(file);
	facts_find(&facts, &demo, &timeline, incidents);
	assert_int_equal(draw_page(file, &demo, &timeline, &facts), 0);
	assert_int_equal(fclose(file), 0);
	assert_null(strstr(page, "\"nan"));
	assert_null(strstr(page, "\"-nan"));
	assert_null(strstr(page, "inf"));
	assert_null(strstr(page, ">nan"));
	assert_non_null(strstr(page, "class=\"page\"")); /* dark viewers need a background */
	assert_string_equal(page + len - 7, "</svg>\n");
}

static void test_empty(void **state)
{
	struct incidents none = {0};

	(void)state;
	draw(&none);
	assert_null(strstr(page, "around the fault"));
}

static void test_one_sample(void **state)
{
	struct incidents none = {0};

	(void)state;
	take("sample,9000000000000000,0,0,5,5,");
	draw(&none);
	assert_non_null(strstr(page, ">rail 0<"));
	assert_null(strstr(page, "around the fault"));
}

static void test_started_only(void **state)
{
	struct incidents none = {0};

	(void)state;
	take("sample,1000,0,0,5,5,");
	take("mark,1000,,,,,start 0 allreduce simple 8");
	draw(&none);
}

static void cut_take(void)
{
	char line[128];
	uint64_t bytes = 0;

	for (unsigned i = 0; i < 100; i++) {
		unsigned long long at = 1000000000ull + i * 5000000ull;

		bytes += i < 50 ? 200000 : 0;
		snprintf(line, sizeof(line), "sample,%llu,0,0,%u,0,", at, i * 200000);
		take(line);
		snprintf(line, sizeof(line), "sample,%llu,0,1,%llu,0,", at,
			 (unsigned long long)bytes);
		take(line);
		if (i == 0) {
			take("mark,1000000000,,,,,start 0 allreduce simple 8");
		}
	}
	take("mark,1495000000,,,,,end 0");
	take("mark,1250000000,,,,,cut host=0 rail=1 bytes=5");
}

static void test_cut(void **state)
{
	struct incident told = {.time_ns = 1300000000,
				.bytes_replayed = -1,
				.count = -1,
				.name = "path_fault",
				.cause = "<&\">"};
	struct incidents incidents = {.list = &told, .count = 1};

	(void)state;
	cut_take();
	demo.driver = "\"verdict\": \"pass\"";
	draw(&incidents);
	assert_non_null(strstr(page, "around the fault"));
	assert_non_null(strstr(page, "0 ms: cut host=0 rail=1 bytes=5"));
	assert_non_null(strstr(page, "50.0 ms: noticed (&lt;&amp;\"&gt;)"));
	assert_null(strstr(page, "sent again over"));
	assert_null(strstr(page, "FAILED"));
	/* The job went on, but this page may not claim that the demo's point was shown. */
	assert_null(strstr(page, "in the middle of a message"));
}

static void test_failed(void **state)
{
	struct incidents none = {0};

	(void)state;
	cut_take();
	draw(&none);
	assert_non_null(strstr(page, "FAILED"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_sample, setup, teardown),
		cmocka_unit_test_setup_teardown(test_started_only, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cut, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
