/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/mr.h"
#include "ib/mr_set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Against a search of all: whatever overlaps, comes and goes, something is found exactly when
 * something covers the range and does for the caller. */

enum {
	MRS = 300,
	STEPS = 20000,
	SPACE = 2000
};

static struct ib_mr mrs[MRS];
static bool is_in[MRS];
static struct ib_mr_set set;
static uint32_t state32 = 12345;

static uint32_t roll(uint32_t below)
{
	state32 = state32 * 1664525u + 1013904223u;
	return (state32 >> 8) % below;
}

static bool does(const struct ib_mr *mr, const void *arg)
{
	return mr->ordered == *(const bool *)arg;
}

static bool covers(const struct ib_mr *mr, uintptr_t addr, size_t len)
{
	return mr->addr <= addr && mr->addr + mr->len_bytes >= addr + len;
}

static void look(void)
{
	uintptr_t addr = 1000 + roll(SPACE);
	size_t len = 1 + roll(roll(4) == 0 ? 400 : 20);
	bool ordered = roll(2) != 0;
	struct ib_mr *found = ib_mr_set_find(&set, addr, len, does, &ordered);
	bool any = false;

	for (unsigned int i = 0; i < MRS; i++) {
		any = any || (is_in[i] && covers(&mrs[i], addr, len) && mrs[i].ordered == ordered);
	}
	assert_int_equal(found != NULL, any);
	if (found != NULL) {
		assert_true(is_in[found - mrs] && covers(found, addr, len));
		assert_int_equal(found->ordered, ordered);
	}
}

static void change(unsigned int i)
{
	if (is_in[i]) {
		ib_mr_set_del(&set, &mrs[i]);
		is_in[i] = false;
		return;
	}
	mrs[i].addr = 1000 + roll(SPACE);
	mrs[i].len_bytes = 1 + roll(roll(8) == 0 ? 1000 : 30);
	mrs[i].ordered = roll(2) != 0;
	assert_int_equal(ib_mr_set_add(&set, &mrs[i]), 0);
	is_in[i] = true;
}

static void test_against_all(void **state)
{
	(void)state;
	look(); /* in an empty one */
	for (unsigned int step = 0; step < STEPS; step++) {
		change(roll(step % 4000 < 2000 ? MRS : 20)); /* many at times, few at others */
		look();
	}
	for (unsigned int i = 0; i < MRS; i++) {
		if (is_in[i]) {
			change(i);
		}
	}
	assert_int_equal(set.count, 0);
	look();
	ib_mr_set_clear(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_all)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
