/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "include/log.h"
#include "plugin/comm.h"
#include "plugin/path_list.h"
#include "plugin/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What repair/ reports is put down under the comm's lock and written when that is free. */
enum {
	LINES_MAX = 8
};

static struct comm comm;
static struct ib_rail rail = {.label = "mlx5_3:1", .idx = 3};
static char lines[LINES_MAX][LOG_LINE_MAX_BYTES];
static unsigned int line_count;
static bool lock_was_free;

static void sink(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	va_list args;

	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	assert_true(line_count < LINES_MAX);
	va_start(args, fmt);
	vsnprintf(lines[line_count++], sizeof(lines[0]), fmt, args);
	va_end(args);
	lock_was_free = lock_was_free &&
			atomic_load_explicit(&comm.lock.word, memory_order_relaxed) == LOCK_FREE;
}

static int setup(void **state)
{
	(void)state;
	memset(&comm, 0, sizeof(comm));
	memset(lines, 0, sizeof(lines));
	comm.id = 7;
	comm.path_count = 1;
	comm.paths[0].comm = &comm;
	comm.paths[0].rail = &rail;
	strcpy(comm.paths[0].peer_rail.name, "mlx5_9");
	comm.paths[0].peer_rail.port = 1;
	line_count = 0;
	lock_was_free = true;
	return 0;
}

static void report(enum repair_report_kind kind, enum cause cause)
{
	comm_report(&comm, &(struct repair_report){.kind = kind, .cause = cause, .epoch = 4});
}

static void test_not_under_the_lock(void **state)
{
	(void)state;
	lock_take(&comm.lock);
	report(REPAIR_REPORT_FAULT, CAUSE_PORT_DOWN);
	assert_int_equal(line_count, 0);
	comm_unlock(&comm);
	assert_int_equal(line_count, 1);
	assert_true(lock_was_free);
	assert_non_null(strstr(lines[0], "path_fault"));
	assert_non_null(strstr(lines[0], "comm 7 path 0 rail 3 mlx5_3:1 -> mlx5_9:1"));
	assert_non_null(strstr(lines[0], "epoch 4"));
	assert_non_null(strstr(lines[0], "cause: port down"));
}

/* All that waits is told by the next one who unlocks, in the order in which it happened. */
static void test_in_order(void **state)
{
	static const enum repair_report_kind kinds[] = {
		REPAIR_REPORT_FAULT,      REPAIR_REPORT_DOWN, REPAIR_REPORT_NO_PATH,
		REPAIR_REPORT_STILL_DOWN, REPAIR_REPORT_BACK, REPAIR_REPORT_FAILED};
	static const char *const names[] = {"path_fault",   "path_down", "comm_held",
					    "path_probing", "path_up",   "peer_gone"};

	(void)state;
	lock_take(&comm.lock);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		report(kinds[i], CAUSE_PEER_GONE); /* no CLOSE goes to a peer that is gone */
	}
	assert_int_equal(line_count, 0);
	comm_unlock(&comm);
	assert_int_equal(line_count, 6);
	assert_true(lock_was_free);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		assert_non_null(strstr(lines[i], names[i]));
	}
	lock_take(&comm.lock);
	comm_unlock(&comm);
	assert_int_equal(line_count, 6); /* once */
}

/* P5: the last word names every path, also when there are as many as there can be. */
static void test_failed_lists_paths(void **state)
{
	static const enum cause causes[] = {CAUSE_RETRY_EXC, CAUSE_PORT_DOWN, CAUSE_STALL};
	static struct ib_rail rails[PATHS_MAX];
	char name[2 * RAIL_NAME_MAX];

	(void)state;
	comm.path_count = PATHS_MAX;
	for (unsigned int p = 0; p < PATHS_MAX; p++) {
		snprintf(rails[p].label, sizeof(rails[p].label), "mlx5_%u:1", p);
		comm.paths[p].rail = &rails[p];
		snprintf(comm.paths[p].peer_rail.name, RAIL_NAME_MAX, "mlx5_%u", 40 + p);
		comm.end.paths[p].state = p == 5 ? PATH_PROBING : PATH_DOWN;
		comm.end.paths[p].down_cause = causes[p % 3];
	}
	report(REPAIR_REPORT_FAILED, CAUSE_PEER_GONE);
	lock_take(&comm.lock);
	comm_unlock(&comm);
	assert_int_equal(line_count, 1);
	for (unsigned int p = 0; p < PATHS_MAX; p++) {
		snprintf(name, sizeof(name), "mlx5_%u:1-mlx5_%u", p, 40 + p);
		assert_non_null(strstr(lines[0], name));
	}
	assert_non_null(strstr(lines[0], "; PROBING: mlx5_5:1-mlx5_45"));
	assert_non_null(strstr(lines[0], "DOWN (port down): mlx5_1:1-mlx5_41, mlx5_4:1-mlx5_44, "));
	assert_null(strstr(lines[0], " more"));
}

/* Names that do not fit are counted, and the line is whole. */
static void test_long_names_are_counted(void **state)
{
	char text[128];

	(void)state;
	comm.path_count = 3;
	for (unsigned int p = 0; p < 3; p++) {
		comm.paths[p].rail = &rail;
		memset(comm.paths[p].peer_rail.name, 'x', RAIL_NAME_MAX - 1);
		comm.end.paths[p].state = PATH_UP;
	}
	path_list_write(&comm, text, sizeof(text));
	assert_int_equal(strncmp(text, "UP: mlx5_3:1-xxx", 16), 0);
	assert_non_null(strstr(text, "x, and 2 more"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_not_under_the_lock, setup),
		cmocka_unit_test_setup(test_in_order, setup),
		cmocka_unit_test_setup(test_failed_lists_paths, setup),
		cmocka_unit_test_setup(test_long_names_are_counted, setup),
	};

	log_sink_set(sink);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
