/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/scale.h"
#include "test/demo/timeline.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct timeline timeline;

static int setup(void **state)
{
	(void)state;
	timeline_clear(&timeline);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	timeline_clear(&timeline);
	return 0;
}

static void take(const char *line)
{
	assert_int_equal(timeline_line(&timeline, line), 0);
}

static void test_empty(void **state)
{
	(void)state;
	take("kind,time_ns,host,rail,tx_bytes,rx_bytes,text\n");
	assert_int_equal(timeline.host_count, 0);
	assert_int_equal(timeline.iteration_count, 0);
	assert_null(timeline_running(&timeline, 0));
	assert_null(series_before(&timeline.series[0][0], 5));
	assert_null(series_after(&timeline.series[0][0], 5));
	assert_true(series_rate_mbps(&timeline.series[0][0], 0, 1000) == 0);
}

static void test_one_sample(void **state)
{
	const struct series *series = &timeline.series[3][1];

	(void)state;
	take("sample,1000,3,1,77,99,\n");
	assert_int_equal(timeline.host_count, 4);
	assert_int_equal(timeline.rail_count, 2);
	assert_int_equal(timeline.last_ns, 1000);
	assert_int_equal(series_before(series, 5)->tx_bytes, 77);
	assert_int_equal(series_before(series, 5000)->rx_bytes, 99);
	assert_int_equal(series_after(series, 5000)->rx_bytes, 99);
	assert_true(series_rate_mbps(series, 0, 10000) == 0);
}

static void test_iterations(void **state)
{
	(void)state;
	take("sample,90,0,0,0,0,");
	take("mark,100,,,,,start 0 allreduce simple 4096");
	take("sample,150,0,0,1000,500,");
	take("mark,200,,,,,end 0");
	take("sample,210,0,0,3000,700,");
	take("mark,300,,,,,start 1 allreduce simple 8192");
	take("mark,310,,,,,install cut host=0 rail=0");
	take("sample,400,0,0,3000,700,");
	take("mark,320,,,,,cut host=0 rail=0");
	assert_int_equal(timeline.iteration_count, 2);
	assert_true(timeline.iterations[0].done);
	assert_false(timeline.iterations[1].done);
	assert_int_equal(timeline.iterations[1].size_bytes, 8192);
	assert_int_equal(timeline.fired_count, 1);
	assert_string_equal(timeline.fired[0].rule, "cut host=0 rail=0");
	assert_int_equal(timeline.fired[0].at_ns, 320);
	assert_ptr_equal(timeline_running(&timeline, 200), &timeline.iterations[0]);
	assert_null(timeline_running(&timeline, 250));
	assert_null(timeline_running(&timeline, 99));
	assert_ptr_equal(timeline_running(&timeline, 9999), &timeline.iterations[1]);

	struct series_point moved = timeline_moved(&timeline, 0, 0, &timeline.iterations[0]);

	assert_int_equal(moved.tx_bytes, 3000);
	assert_int_equal(moved.rx_bytes, 700);
	moved = timeline_moved(&timeline, 0, 0, &timeline.iterations[1]);
	assert_int_equal(moved.tx_bytes, 0);
}

/* Nothing of a refused line may stay. */
static void test_refused(void **state)
{
	static const char *const lines[] = {
		"",
		"\n",
		"sample",
		"sample,",
		"sample,1,2,3,4,5",
		"sample,1,2,3,4,5,6",
		"sample,1,2,3,4,,",
		"sample,-1,0,0,0,0,",
		"sample,1,+0,0,0,0,",
		"sample,99999999999999999999,0,0,0,0,",
		"sample,1,0,0,0,0x10,",
		"mark,1,start 0 allreduce simple 8",
		"mark,,,,,,end 0",
		"mark,1,,,,,",
		"mark,1,,,,,end 0",
		"mark,1,,,,,end",
		"mark,1,,,,,start 1 allreduce simple 8",
		"mark,1,,,,,start 0",
		"mark,1,,,,,start 0 allreduce simple x",
		"kind,time_ns",
		"nonsense",
	};
	static struct timeline none;
	char line[600];

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		if (timeline_line(&timeline, lines[i]) != -EINVAL) {
			fail_msg("taken: '%s'", lines[i]);
		}
	}
	assert_int_equal(timeline_line(&timeline, "sample,1,16,0,0,0,"), -ENOSPC);
	assert_int_equal(timeline_line(&timeline, "sample,1,0,16,0,0,"), -ENOSPC);
	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	assert_int_equal(timeline_line(&timeline, line), -EINVAL);
	memcpy(line, "mark,1,,,,,cut", 14);
	line[400] = '\0';
	assert_int_equal(timeline_line(&timeline, line), -EINVAL);
	assert_memory_equal(&timeline, &none, sizeof(none));
}

static void test_backwards(void **state)
{
	(void)state;
	take("sample,1000,0,0,10,10,");
	assert_int_equal(timeline_line(&timeline, "sample,999,0,0,10,10,"), -EINVAL);
	assert_int_equal(timeline_line(&timeline, "sample,1001,0,0,9,10,"), -EINVAL);
	assert_int_equal(timeline_line(&timeline, "sample,1001,0,0,10,9,"), -EINVAL);
	take("sample,1000,0,0,10,10,");
	take("mark,2000,,,,,start 0 allreduce simple 8");
	assert_int_equal(timeline_line(&timeline, "mark,1999,,,,,end 0"), -EINVAL);
	take("mark,2001,,,,,end 0");
	assert_int_equal(timeline_line(&timeline, "mark,2002,,,,,end 0"), -EINVAL);
}

static void test_many(void **state)
{
	char line[64];

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(line, sizeof(line), "sample,%u,0,0,%u,0,", 1000 + i * 10, i * 20);
		take(line);
	}
	/* 20 bytes in 10 ns are 2000 MB/s, between readings too. */
	assert_true(fabs(series_rate_mbps(&timeline.series[0][0], 2003, 2007) - 2000) < 1e-6);
	assert_true(fabs(series_rate_mbps(&timeline.series[0][0], 995, 1010) - 2000.0 * 10 / 15) <
		    1e-6);
	assert_int_equal(series_before(&timeline.series[0][0], 1019)->time_ns, 1010);
	assert_int_equal(series_after(&timeline.series[0][0], 1011)->time_ns, 1020);
	assert_int_equal(series_after(&timeline.series[0][0], 1020)->time_ns, 1020);
	assert_int_equal(series_after(&timeline.series[0][0], 0)->time_ns, 1000);
}

static void test_scale(void **state)
{
	struct scale scale = {.value_from = 10, .value_to = 20, .at_from = 100, .at_to = 0};
	struct scale flat = {.value_from = 3, .value_to = 3, .at_from = 7, .at_to = 9};

	(void)state;
	assert_true(scale_at(&scale, 10) == 100);
	assert_true(scale_at(&scale, 15) == 50);
	assert_true(scale_at(&scale, 25) == 0);
	assert_true(scale_at(&scale, -1) == 100);
	assert_true(scale_at(&scale, NAN) == 100);
	assert_true(scale_at(&flat, 3) == 7);
	assert_true(scale_at(&flat, 1e300) == 7);
}

static void test_step(void **state)
{
	static const double spans[] = {1e-6, 0.3, 1, 7, 10, 43.2, 99, 100, 101, 12345, 1e12};

	(void)state;
	assert_true(scale_step(0, 5) == 1);
	assert_true(scale_step(-3, 5) == 1);
	assert_true(scale_step(NAN, 5) == 1);
	assert_true(scale_step(INFINITY, 5) == 1);
	assert_true(scale_step(10, 0) == 1);
	assert_true(scale_step(10, 5) == 2);
	assert_true(fabs(scale_step(100, 10) - 10) < 1e-9);
	for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++) {
		double parts = spans[i] / scale_step(spans[i], 8);

		/* At most 8, and no coarser than needed: the next step down is 2.5 times finer. */
		assert_true(parts <= 8 + 1e-9);
		assert_true(parts > 8 / 2.5 - 1e-9);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_sample, setup, teardown),
		cmocka_unit_test_setup_teardown(test_iterations, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_backwards, setup, teardown),
		cmocka_unit_test_setup_teardown(test_many, setup, teardown),
		cmocka_unit_test(test_scale),
		cmocka_unit_test(test_step),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
