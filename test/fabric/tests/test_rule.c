/* SPDX-License-Identifier: Apache-2.0 */

/* The fault language, and rates and latency, which need no fault. */

#include "test/fabric/rule.h"
#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct fab_rule_spec parse(const char *text)
{
	struct fab_rule_spec spec;
	char why[200] = "";

	if (fab_rule_parse(text, &spec, why, sizeof(why)) != 0) {
		fail_msg("%s: %s", text, why);
	}
	return spec;
}

static void test_good(void **state)
{
	struct fab_rule_spec spec = parse("cut host=3 rail=1 dir=rx bytes=1048577 # why not");

	(void)state;
	assert_int_equal(spec.action, FAB_ACT_CUT);
	assert_int_equal(spec.host, 3);
	assert_int_equal(spec.rail, 1);
	assert_int_equal(spec.dirs, 1u << FAB_RX);
	assert_int_equal(spec.trigger, FAB_TRIG_BYTES);
	assert_int_equal(spec.count, 1048577);
	spec = parse("\tnic_death rail=0 edge=mid imms=5 host=0");
	assert_int_equal(spec.action, FAB_ACT_NIC_DEATH);
	assert_int_equal(spec.edge, FAB_EDGE_MID);
	assert_int_equal(spec.dirs, FAB_DIR_BOTH);
	spec = parse("rate host=0 rail=0 value=200 ms=50");
	assert_int_equal(spec.args[FAB_ARG_VALUE], 200);
	assert_int_equal(spec.trigger, FAB_TRIG_MS);
	spec = parse("late host=0 rail=1 dir=tx delay_ms=300 bytes=7");
	assert_int_equal(spec.args[FAB_ARG_DELAY_MS], 300);
	assert_int_equal(spec.trigger, FAB_TRIG_BYTES);
	assert_int_equal(parse("heal host=0 rail=0").trigger, FAB_TRIG_NOW);
	assert_int_equal(parse("port_down host=0 rail=0 writes=2").trigger, FAB_TRIG_WRITES);
	assert_int_equal(parse("cut host=0 rail=0 imms=2").edge, FAB_EDGE_AFTER);
}

static void test_bad(void **state)
{
	static const char *const cases[][2] = {
		{"", "no action"},
		{"cutt host=0 rail=0", "nearest is 'cut'"},
		{"nicdeath host=0 rail=0", "nearest is 'nic_death'"},
		{"cut hots=0 rail=0", "nearest is 'host'"},
		{"cut host=0 rail=0 dir=xt", "unknown dir 'xt'"},
		{"cut host=0 rail=0 imms=1 edge=middle", "nearest is 'mid'"},
		{"cut rail=0", "'host=' is missing"},
		{"cut host=0", "'rail=' is missing"},
		{"cut host=64 rail=0", "from 0 to 63"},
		{"cut host=0 rail=16", "from 0 to 15"},
		{"cut host=0 rail=0 bytes=1k", "not a whole number"},
		{"cut host=0 rail=0 bytes=-1", "not a whole number"},
		{"cut host=0 rail=0 bytes=0", "counts from 1"},
		{"cut host=0 rail=0 bytes=1 ms=1", "second trigger"},
		{"cut host=0 host=1 rail=0", "given twice"},
		{"cut host=0 rail=0 edge=mid", "'edge=' goes with"},
		{"cut host=0 rail=0 value=1", "'value=' goes with"},
		{"rate host=0 rail=0", "needs 'value='"},
		{"event host=0 rail=0 type=port_er", "nearest is 'port_err'"},
		{"event_delay host=0 rail=0", "needs 'delay_ms='"},
		{"flap host=0 rail=0 count=2 up_ms=1", "needs 'down_ms='"},
		{"cut host=0 rail=0 nth=1", "not with 'cut'"},
		{"late host=0 rail=0 ms=5", "needs 'delay_ms='"},
		{"late host=0 rail=0 delay_ms=3600001", "from 0 to 3600000"},
		{"cut host=0 rail=0 now", "not of the form"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fab_rule_spec spec;
		char why[200] = "";

		assert_int_equal(fab_rule_parse(cases[i][0], &spec, why, sizeof(why)), -EINVAL);
		if (strstr(why, cases[i][1]) == NULL) {
			fail_msg("'%s': '%s' lacks '%s'", cases[i][0], why, cases[i][1]);
		}
	}
}

/* A file with a bad line installs nothing and the library opens nothing; the line is named. */
static void badfile_one(struct rig *rig)
{
	char path[256];
	FILE *file;
	int none = -1;

	(void)rig;
	snprintf(path, sizeof(path), "%s/rules-%u", rig->dir, rig->host);
	file = fopen(path, "w");
	CHECK(file != NULL);
	fprintf(file, "# fine\ncut host=0 rail=0\n\nport_dwon host=0 rail=0\n");
	fclose(file);
	CHECK(setenv("FABRIC_FAULTS", path, 1) == 0);
	if (rig->host == 0) { /* the first one to get here reads it for all */
		CHECK(freopen("/dev/null", "w", stderr) != NULL);
		CHECK(ibv_get_device_list(&none) == NULL && none == 0 && errno == EINVAL);
		CHECK(fabric_ctl_fired_count(rig->ctl) == 0);
	}
}

static void test_bad_file(void **state)
{
	static const struct rig_case c = {.host0 = badfile_one, .host1 = badfile_one};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

static void goodfile_one(struct rig *rig)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/rules", rig->dir);
	if (rig->host == 0) {
		file = fopen(path, "w");
		CHECK(file != NULL);
		fprintf(file, "# comment\n\nport_down host=1 rail=0\n");
		fclose(file);
	}
	rig_barrier(rig);
	CHECK(setenv("FABRIC_FAULTS", path, 1) == 0);
	rig_open(rig, 0);
	CHECK(fabric_ctl_fired_count(rig->ctl) == 1); /* once, not once a process */
	rig_barrier(rig);
	rig_close(rig);
}

static void test_good_file(void **state)
{
	static const struct rig_case c = {.host0 = goodfile_one, .host1 = goodfile_one};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* 40 MB over a rail of 400 MB/s: at least 95 ms, whoever's rail is the slow one. */
static void rate_send(struct rig *rig)
{
	uint64_t start_ns;
	uint64_t took_ns;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	start_ns = rig_now_ns();
	for (uint32_t i = 0; i < 10; i++) {
		CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, i, 0, 4000000) == 0);
	}
	for (uint32_t i = 0; i < 10; i++) {
		CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	}
	took_ns = rig_now_ns() - start_ns;
	CHECK(took_ns > 95000000);
	CHECK(took_ns < 4000000000); /* on a busy machine, under a sanitizer */
	rig_barrier(rig);
	rig_close(rig);
}

static void rate_recv(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_barrier(rig);
	rig_close(rig);
}

static void slow_recv(struct rig *rig)
{
	CHECK(fabric_ctl_fault(rig->ctl, "rate host=1 rail=0 value=400", NULL, NULL, 0) == 0);
	rate_recv(rig);
}

static void test_rate(void **state)
{
	static const struct rig_case tx = {
		.host0 = rate_send, .host1 = rate_recv, .env = {"FABRIC_RATE_MBPS", "400,400"}};
	static const struct rig_case rx = {.host0 = rate_send, .host1 = slow_recv};

	(void)state;
	assert_int_equal(rig_run(&tx), 0);
	assert_int_equal(rig_run(&rx), 0);
}

/* 2 ms one way: 4 ms until the sender knows; many at once take no longer. */
static void latency_send(struct rig *rig)
{
	uint64_t start_ns;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	start_ns = rig_now_ns();
	for (uint32_t i = 0; i < 50; i++) {
		CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, i, 0, 64) == 0);
	}
	for (uint32_t i = 0; i < 50; i++) {
		CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
		CHECK(rig_now_ns() - start_ns > 4000000);
	}
	CHECK(rig_now_ns() - start_ns < 100000000);
	rig_barrier(rig);
	rig_close(rig);
}

static void test_latency(void **state)
{
	static const struct rig_case c = {
		.host0 = latency_send, .host1 = rate_recv, .env = {"FABRIC_LATENCY_US", "2000"}};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),     cmocka_unit_test(test_bad),
		cmocka_unit_test(test_bad_file), cmocka_unit_test(test_good_file),
		cmocka_unit_test(test_rate),     cmocka_unit_test(test_latency),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
