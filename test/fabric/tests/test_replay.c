/* SPDX-License-Identifier: Apache-2.0 */

/* A run whose faults came by time, made again by bytes: each finds its rail with the very same
 * counts. */

#include "test/fabric/tests/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define MB      (1u << 20)
#define RULES   4u
#define OUT_MAX 4u

/* What one run tells the next; shared by all processes. */
struct record {
	char rules[RULES][160];
	struct fabric_fired fired[RULES];
	struct fabric_fired again[RULES];
};

static struct record *record;

/* Nothing is recorded yet; a cut of 20 ms in the middle, then a port that is down for 10. */
static const char *const by_time[] = {
	"cut host=0 rail=0 dir=tx ms=20",
	"heal host=0 rail=0 ms=40",
	"flap host=1 rail=0 count=1 down_ms=10 up_ms=1 ms=60",
};

static void install(struct rig *rig, const char *rule)
{
	char why[200] = "";

	if (fabric_ctl_fault(rig->ctl, rule, NULL, why, sizeof(why)) != 0) {
		fprintf(stderr, "%s: %s\n", rule, why);
		_exit(1);
	}
}

/* Writes as fast as it goes until all faults were there and are over. */
static void load(struct rig *rig)
{
	uint64_t end_ns = rig_now_ns() + 20000000000ull;
	uint32_t posted = 0;
	uint32_t done = 0;

	while (fabric_ctl_fired_count(rig->ctl) < RULES || done < posted) {
		struct ibv_wc wc;

		CHECK(rig_now_ns() < end_ns);
		while (posted - done < OUT_MAX && fabric_ctl_fired_count(rig->ctl) < RULES) {
			CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, posted++, 0, MB) == 0);
		}
		if (ibv_poll_cq(rig->cq, 1, &wc) == 1) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			done++;
		} else {
			rig_sleep_ms(1);
		}
	}
}

static void setup(struct rig *rig)
{
	struct rig_qp_options options = rig_defaults;

	options.timeout = 12;
	options.retry_cnt = 7;
	rig_open(rig, 0);
	rig_connect(rig, 0, &options);
}

static void recorded(struct rig *rig)
{
	setup(rig);
	for (size_t i = 0; i < sizeof(by_time) / sizeof(by_time[0]); i++) {
		install(rig, by_time[i]);
	}
	load(rig);
	for (uint32_t i = 0; i < RULES; i++) {
		CHECK(fabric_ctl_fired(rig->ctl, i, &record->fired[i]) == 0);
		CHECK(fabric_ctl_replay(rig->ctl, i, record->rules[i], sizeof(record->rules[i])) ==
		      0);
	}
	rig_barrier(rig);
	rig_close(rig);
}

static void replayed(struct rig *rig)
{
	setup(rig);
	for (uint32_t i = 0; i < RULES; i++) {
		install(rig, record->rules[i]);
	}
	load(rig);
	for (uint32_t i = 0; i < RULES; i++) {
		CHECK(fabric_ctl_fired(rig->ctl, i, &record->again[i]) == 0);
	}
	rig_barrier(rig);
	rig_close(rig);
}

static void passive(struct rig *rig)
{
	setup(rig);
	rig_barrier(rig);
	rig_close(rig);
}

static uint32_t ms_between(const struct fabric_fired *from, const struct fabric_fired *to)
{
	return (uint32_t)((to->t_ns - from->t_ns + 500000) / 1000000);
}

/* `rule` is the words, then bytes=, then after_ms= if `still_ms` is not 0. */
static void check_rule(const char *rule, const char *words, uint64_t bytes, uint32_t still_ms)
{
	char want[200];
	int used = snprintf(want, sizeof(want), "%s bytes=%llu", words, (unsigned long long)bytes);

	if (still_ms > 0) {
		snprintf(want + used, sizeof(want) - (size_t)used, " after_ms=%u", still_ms);
	}
	assert_string_equal(rule, want);
}

static void test_replay(void **state)
{
	struct rig_case c = {.host0 = recorded, .host1 = passive};
	const struct fabric_fired *f = record->fired;

	(void)state;
	assert_int_equal(rig_run(&c), 0);
	/* Nothing slipped past a fault that came by time. */
	assert_true(f[0].tx_bytes > 0);
	assert_int_equal(f[1].tx_bytes, f[0].tx_bytes);
	assert_true(f[2].rx_bytes >= f[1].tx_bytes);
	assert_int_equal(f[3].rx_bytes, f[2].rx_bytes);
	check_rule(record->rules[0], "cut host=0 rail=0 dir=tx", f[0].tx_bytes, 0);
	check_rule(record->rules[1], "heal host=0 rail=0", f[0].tx_bytes, ms_between(&f[0], &f[1]));
	check_rule(record->rules[2], "port_down host=1 rail=0", f[2].rx_bytes, 0);
	check_rule(record->rules[3], "port_up host=1 rail=0", f[2].rx_bytes,
		   ms_between(&f[2], &f[3]));
	c.host0 = replayed;
	assert_int_equal(rig_run(&c), 0);
	for (uint32_t i = 0; i < RULES; i++) {
		assert_int_equal(record->again[i].tx_bytes, f[i].tx_bytes);
		assert_int_equal(record->again[i].rx_bytes, f[i].rx_bytes);
		assert_int_equal(record->again[i].rule_idx, i);
	}
	assert_true(ms_between(&record->again[0], &record->again[1]) >= ms_between(&f[0], &f[1]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_replay)};

	record = mmap(NULL, sizeof(*record), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (record == MAP_FAILED) {
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
