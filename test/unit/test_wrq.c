/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/wrq.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct wrq_item item_of(uint32_t i)
{
	return (struct wrq_item){.kind = WRQ_PIECE,
				 .slot = (uint8_t)(i % 16),
				 .piece = (uint8_t)(i % 32),
				 .len_bytes = i};
}

static void test_fifo(void **state)
{
	struct wrq q = {0};

	(void)state;
	for (uint32_t i = 0; i < 100; i++) {
		assert_int_equal(wrq_next(&q), i);
		wrq_push(&q, item_of(i));
	}
	for (uint32_t i = 0; i < 100; i++) {
		struct wrq_item item = wrq_pop(&q);

		assert_int_equal(item.len_bytes, i);
		assert_int_equal(item.slot, i % 16);
		assert_int_equal(item.piece, i % 32);
		assert_int_equal(wrq_out(&q), 99 - i);
	}
}

/* One place stays free for the marker; the marker itself may take it. */
static void test_room_for_marker(void **state)
{
	struct wrq q = {0};
	uint32_t count = 0;

	(void)state;
	while (wrq_has_room(&q)) {
		wrq_push(&q, item_of(count++));
	}
	assert_int_equal(count, WRQ_ITEMS - 1);
	wrq_push(&q, (struct wrq_item){.kind = WRQ_MARKER});
	assert_int_equal(wrq_out(&q), WRQ_ITEMS);
	assert_false(wrq_has_room(&q));
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(wrq_pop(&q).len_bytes, i);
	}
	assert_int_equal(wrq_pop(&q).kind, WRQ_MARKER);
	assert_int_equal(wrq_out(&q), 0);
}

/* The free-running indices pass 2^32 with every fill level. */
static void test_wrap(void **state)
{
	(void)state;
	for (uint32_t level = 1; level <= WRQ_ITEMS; level++) {
		struct wrq q = {.posted = UINT32_MAX - 300, .done = UINT32_MAX - 300};
		uint32_t in = 0, out = 0;

		for (unsigned int step = 0; step < 700; step++) {
			while (wrq_out(&q) < level) {
				assert_int_equal(wrq_next(&q), UINT32_MAX - 300 + in);
				wrq_push(&q, item_of(in++));
			}
			assert_int_equal(wrq_pop(&q).len_bytes, out);
			out++;
			assert_int_equal(wrq_out(&q), in - out);
		}
		assert_true(q.posted < 1000); /* it did wrap */
	}
}

static void test_knows(void **state)
{
	const uint32_t starts[] = {0, 5, UINT32_MAX - 2, UINT32_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
		uint32_t s = starts[i];
		struct wrq q = {.posted = s, .done = s};

		assert_false(wrq_knows(&q, s));
		for (uint32_t j = 0; j < 4; j++) {
			wrq_push(&q, item_of(j));
		}
		for (uint32_t j = 0; j < 4; j++) {
			assert_true(wrq_knows(&q, s + j));
		}
		assert_false(wrq_knows(&q, s + 4));
		assert_false(wrq_knows(&q, s - 1));
		assert_false(wrq_knows(&q, s + WRQ_ITEMS));
		wrq_pop(&q);
		assert_false(wrq_knows(&q, s));
		assert_true(wrq_knows(&q, s + 1));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fifo),
		cmocka_unit_test(test_room_for_marker),
		cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_knows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
