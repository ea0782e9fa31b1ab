/* SPDX-License-Identifier: Apache-2.0 */

/* FABRIC_SPIN_US: engines that look at their doorbells for a while, and then sleep all the same. */

#include "test/fabric/tests/rig.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define ROUNDS 300u
#define MS     1000000ull

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* A line of a thread's `status`; -1 when it is another thread's. */
static long engine_sleeps_of(const char *tid)
{
	char path[300];
	char line[128];
	long count = -1;
	bool is_engine = false;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", tid);
	file = fopen(path, "r");
	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		is_engine |= strcmp(line, "Name:\tfabric\n") == 0;
		sscanf(line, "voluntary_ctxt_switches: %ld", &count);
	}
	if (file != NULL) {
		fclose(file);
	}
	return is_engine ? count : -1;
}

/* How often the engine of this process went to sleep so far. */
static long engine_sleeps(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *entry;
	long found = -1;

	CHECK(tasks != NULL);
	while ((entry = readdir(tasks)) != NULL) {
		long count = engine_sleeps_of(entry->d_name);

		found = count >= 0 ? count : found;
	}
	closedir(tasks);
	CHECK(found >= 0);
	return found;
}

static void open_one(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_barrier(rig);
}

static void close_one(struct rig *rig)
{
	rig_barrier(rig);
	rig_close(rig);
}

static void passive(struct rig *rig)
{
	open_one(rig);
	close_one(rig);
}

static void write_wait(struct rig *rig)
{
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 1, 0, 64) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
}

/* One message after the other, each 100 us out and back: neither between two of them nor while one
 * is under way does the engine sleep. A machine that is busy makes it, now and then. */
static void awake_send(struct rig *rig)
{
	long sleeps;

	open_one(rig);
	write_wait(rig);
	sleeps = engine_sleeps();
	for (uint32_t i = 0; i < ROUNDS; i++) {
		write_wait(rig);
	}
	sleeps = engine_sleeps() - sleeps;
	printf("slept %ld times in %u messages\n", sleeps, ROUNDS);
	fflush(stdout);
	CHECK(sleeps <= ROUNDS / 4);
	close_one(rig);
}

static void test_awake(void **state)
{
	static const struct rig_case c = {
		.host0 = awake_send,
		.host1 = passive,
		.env = {"FABRIC_SPIN_US", "20000", "FABRIC_LATENCY_US", "100"}};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* With nothing to do it sleeps: two turns of 20 ms at most, the second for what rings it once. */
static void idle_send(struct rig *rig)
{
	uint64_t used_ns;

	open_one(rig);
	write_wait(rig);
	used_ns = cpu_ns();
	rig_sleep_ms(300);
	used_ns = cpu_ns() - used_ns;
	CHECK(used_ns < 100 * MS);
	close_one(rig);
}

static void test_idle(void **state)
{
	static const struct rig_case c = {
		.host0 = idle_send, .host1 = passive, .env = {"FABRIC_SPIN_US", "20000"}};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* A wait that is longer than the spin is not made longer by it: 30 ms there, 30 ms back. The
 * quickest of some. */
static void timed_send(struct rig *rig)
{
	uint64_t best_ns = UINT64_MAX;

	open_one(rig);
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t took_ns = rig_now_ns();

		write_wait(rig);
		took_ns = rig_now_ns() - took_ns;
		CHECK(took_ns >= 60 * MS);
		best_ns = took_ns < best_ns ? took_ns : best_ns;
	}
	CHECK(best_ns < 80 * MS);
	close_one(rig);
}

static void test_timed(void **state)
{
	static const struct rig_case c = {
		.host0 = timed_send,
		.host1 = passive,
		.env = {"FABRIC_SPIN_US", "20000", "FABRIC_LATENCY_US", "30000"}};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* Nobody waits for the end of a spin: not who fences a QP, and not who closes. */
static void close_send(struct rig *rig)
{
	uint64_t start_ns;

	open_one(rig);
	write_wait(rig);
	start_ns = rig_now_ns();
	CHECK(rig_qp_error(rig->qps[0]) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 2, 0, 64) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_WR_FLUSH_ERR);
	rig_close(rig);
	CHECK(rig_now_ns() - start_ns < 500 * MS);
	rig_barrier(rig);
}

static void test_close(void **state)
{
	static const struct rig_case c = {
		.host0 = close_send, .host1 = passive, .env = {"FABRIC_SPIN_US", "1000000"}};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

static void refused_one(struct rig *rig)
{
	(void)rig;
	CHECK(ibv_get_device_list(NULL) == NULL);
}

static void test_values(void **state)
{
	static const char *const bad[] = {"1000001", "fast", "1 ms", "99999999999999999999"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct rig_case c = {.host0 = refused_one,
				     .host1 = refused_one,
				     .env = {"FABRIC_SPIN_US", bad[i]}};

		assert_int_equal(rig_run(&c), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_awake),  cmocka_unit_test(test_idle),
		cmocka_unit_test(test_timed),  cmocka_unit_test(test_close),
		cmocka_unit_test(test_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
