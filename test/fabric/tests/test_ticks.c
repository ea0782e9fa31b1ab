/* SPDX-License-Identifier: Apache-2.0 */

/* Rules that are due by time are looked for by every engine of every process, with no lock. Each
 * fires once, also where a rule is armed again while it is looked at, and where its place in the
 * table is taken by the next. Under a thread sanitizer this is the test of what they may read. */

#include "test/fabric/fabric_ctl.h"
#include "test/fabric/rule.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#define TICKERS 3u
#define FLAPS   4u
#define TIMES   20u                 /* down and up again */
#define SHORT   (2 * FAB_MAX_RULES) /* rules that come and go */

static struct fab_root *root;
static char dir[128];
static _Atomic int stop;

static void *tick(void *arg)
{
	(void)arg;
	while (atomic_load(&stop) == 0) {
		fab_rule_tick(root, dir, fab_now_ns());
	}
	return NULL;
}

static int add(const char *text)
{
	struct fab_rule_spec spec;
	char why[200];

	assert_int_equal(fab_rule_parse(text, &spec, why, sizeof(why)), 0);
	return fab_rule_add(root, dir, &spec, NULL);
}

static void rules_add(void)
{
	char text[80];

	for (uint32_t rail = 0; rail < FLAPS; rail++) {
		snprintf(text, sizeof(text), "flap host=0 rail=%u count=%u down_ms=1 up_ms=1", rail,
			 TIMES);
		assert_int_equal(add(text), 0);
	}
	for (uint32_t i = 0; i < SHORT;) {
		snprintf(text, sizeof(text), "event host=1 rail=%u type=sm_change ms=1", i % FLAPS);
		i += add(text) == 0; /* or the table is full, for a moment */
	}
}

/* Waits until so many fired, and a little for one too many. */
static void fired_wait(uint32_t count)
{
	uint64_t end_ns = fab_now_ns() + 60000000000ull;

	while (atomic_load(&root->fired_count) < count && fab_now_ns() < end_ns) {
		usleep(1000);
	}
	usleep(20000);
	assert_int_equal(atomic_load(&root->fired_count), count);
}

static void test_ticks(void **state)
{
	pthread_t threads[TICKERS];
	int hold_fd;

	(void)state;
	assert_int_equal(fabric_ctl_make_dir(dir, sizeof(dir), &hold_fd), 0);
	assert_int_equal(fab_root_open(dir, &root), 0);
	for (uint32_t i = 0; i < TICKERS; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, tick, NULL), 0);
	}
	rules_add();
	fired_wait(FLAPS * TIMES * 2 + SHORT);
	atomic_store(&stop, 1);
	for (uint32_t i = 0; i < TICKERS; i++) {
		pthread_join(threads[i], NULL);
	}
	for (uint32_t rail = 0; rail < FLAPS; rail++) {
		/* Up again, and nothing goes through a gate any more. */
		assert_int_equal(atomic_load(&root->ports[0][rail].flags), 0);
		assert_int_equal(atomic_load(&root->ports[0][rail].armed_count), 0);
		assert_int_equal(atomic_load(&root->ports[1][rail].armed_count), 0);
	}
	fab_root_close(root);
	close(hold_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_ticks)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
