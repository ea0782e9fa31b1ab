/* SPDX-License-Identifier: Apache-2.0 */
#include "include/limits.h"
#include "repair/pace.h"
#include "repair/plan.h"
#include "repair/share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define WINDOW_BYTES (1ull << 20)
#define LARGE_BYTES  4096u

/* Everything a cut promises, checked piece by piece. */
static void check_cut(uint64_t size, uint64_t min)
{
	struct plan_cut cut = plan_cut(size, min);
	uint64_t next = 0;

	assert_in_range(cut.pieces, 1, PIECES_MAX);
	for (uint32_t i = 0; i < cut.pieces; i++) {
		uint64_t offset = plan_piece_offset_bytes(cut, i);
		uint64_t len = plan_piece_len_bytes(cut, size, i);

		assert_true(offset == next);
		assert_true(offset % PIECE_ALIGN_BYTES == 0);
		assert_true(len > 0 || size == 0);
		assert_true(len <= cut.piece_len_bytes);
		if (i + 1 < cut.pieces) {
			assert_true(len == cut.piece_len_bytes);
			assert_true(len >= min);
		}
		next += len;
	}
	assert_true(next == size);
	/* As many pieces as there is room for: more would break the minimum or the maximum. */
	if (size > min && size <= min * PIECES_MAX) {
		assert_int_equal(cut.pieces, (size + min - 1) / min);
	}
}

static void test_cut_every_small_size(void **state)
{
	const uint64_t mins[] = {128, 256, 384, 1024};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		for (uint64_t size = 0; size <= 3 * 32 * 128 + 300; size++) {
			check_cut(size, mins[i]);
		}
		for (uint64_t size = 32 * mins[i] - 300; size <= 32 * mins[i] + 300; size++) {
			check_cut(size, mins[i]);
		}
	}
}

static void test_cut_around_boundaries(void **state)
{
	const uint64_t mins[] = {128, 4096, 65536, 1u << 20};
	const uint64_t sizes[] = {1u << 15, 1u << 20, 1u << 25, 1ull << 30, 1ull << 32, 1ull << 36};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		for (size_t j = 0; j < 6; j++) {
			for (uint64_t d = 0; d <= 600; d++) {
				check_cut(sizes[j] - 300 + d, mins[i]);
			}
			for (uint64_t k = 1; k <= 40; k++) {
				check_cut(sizes[j] + k * mins[i] - 1, mins[i]);
				check_cut(sizes[j] + k * mins[i], mins[i]);
				check_cut(sizes[j] + k * mins[i] + 1, mins[i]);
			}
		}
		for (uint64_t k = 1; k <= 40; k++) {
			check_cut(k * mins[i] - 1, mins[i]);
			check_cut(k * mins[i], mins[i]);
			check_cut(k * mins[i] + 1, mins[i]);
		}
	}
	/* The largest message whose pieces still have 32-bit lengths. */
	check_cut(32ull * (UINT32_MAX - 127), 128);
}

static void test_cut_fixed_values(void **state)
{
	struct plan_cut cut;

	(void)state;
	cut = plan_cut(0, 65536);
	assert_int_equal(cut.pieces, 1);
	assert_int_equal(plan_piece_len_bytes(cut, 0, 0), 0);
	cut = plan_cut(65536, 65536);
	assert_int_equal(cut.pieces, 1);
	cut = plan_cut(65537, 65536);
	assert_int_equal(cut.pieces, 2);
	assert_int_equal(plan_piece_len_bytes(cut, 65537, 1), 1);
	cut = plan_cut(1ull << 30, 65536);
	assert_int_equal(cut.pieces, 32);
	assert_int_equal(plan_piece_len_bytes(cut, 1ull << 30, 31), 1u << 25);
	cut = plan_cut((1ull << 30) + 1, 65536);
	assert_int_equal(cut.piece_len_bytes, (1u << 25) + 128);
}

static struct repair_path *paths_up(unsigned int count)
{
	static struct repair_path paths[PATHS_MAX];

	memset(paths, 0, sizeof(paths));
	for (unsigned int i = 0; i < count; i++) {
		paths[i].state = PATH_UP;
		paths[i].weight = 1;
		paths[i].speed = PACE_FULL;
		paths[i].epoch = 1;
	}
	return paths;
}

static int pick_of(const struct repair_path *paths, unsigned int count, unsigned int active_count,
		   uint32_t mask, uint64_t len_bytes)
{
	return plan_pick(paths, count,
			 &(struct plan_ask){.key_mask = mask,
					    .active_count = active_count,
					    .len_bytes = len_bytes,
					    .window_bytes = WINDOW_BYTES});
}

static int pick(const struct repair_path *paths, unsigned int count, uint32_t mask)
{
	return pick_of(paths, count, count, mask, 100);
}

static void test_pick_least_loaded(void **state)
{
	struct repair_path *paths = paths_up(4);

	(void)state;
	assert_int_equal(pick(paths, 4, 0xf), 0); /* ties: the nearest */
	paths[0].inflight_bytes = 10;
	assert_int_equal(pick(paths, 4, 0xf), 1);
	paths[1].inflight_bytes = 20;
	paths[2].inflight_bytes = 5;
	paths[3].inflight_bytes = 6;
	assert_int_equal(pick(paths, 4, 0xf), 2);
	assert_int_equal(pick(paths, 4, 0xb), 3); /* not registered on path 2 */
	assert_int_equal(pick(paths, 4, 0), -1);
	assert_int_equal(pick(paths, 0, 0xf), -1);
}

/* What is gone in a moment does not drive anybody away from the nearest rail. */
static void test_pick_idle(void **state)
{
	struct plan_ask ask = {.key_mask = 7,
			       .active_count = 3,
			       .len_bytes = 100,
			       .window_bytes = WINDOW_BYTES,
			       .idle_bytes = 50};
	struct repair_path *paths = paths_up(3);

	(void)state;
	paths[0].inflight_bytes = 50;
	assert_int_equal(plan_pick(paths, 3, &ask), 0);
	paths[0].inflight_bytes = 51;
	assert_int_equal(plan_pick(paths, 3, &ask), 1);
	paths[1].inflight_bytes = 52;
	paths[2].inflight_bytes = 53;
	assert_int_equal(plan_pick(paths, 3, &ask), 0);
	/* A faster one is faster though all are idle. */
	ask.idle_bytes = 100;
	paths[2].weight = 2;
	assert_int_equal(plan_pick(paths, 3, &ask), 2);
}

/* As plan_pick() without its short cut. */
static int pick_slowly(const struct repair_path *paths, unsigned int count,
		       const struct plan_ask *ask)
{
	double best_cost = 0;
	int best = -1;

	for (unsigned int i = 0; i < count; i++) {
		uint64_t load = paths[i].inflight_bytes;
		double cost = (double)((load > ask->idle_bytes ? load : ask->idle_bytes) +
				       ask->len_bytes) /
			      ((double)paths[i].weight * paths[i].speed);

		if (paths[i].state == PATH_UP && ask->key_mask >> i & 1 &&
		    (best < 0 || cost < best_cost)) {
			best = (int)i;
			best_cost = cost;
		}
	}
	return best;
}

/* The first path that is as good as any is as good as the best. */
static void test_pick_short_cut(void **state)
{
	uint64_t dice = 88172645463325252ull;

	(void)state;
	for (unsigned int round = 0; round < 20000; round++) {
		struct repair_path *paths = paths_up(4);
		struct plan_ask ask = {.key_mask = 0xf,
				       .active_count = 4,
				       .len_bytes = 64,
				       .window_bytes = WINDOW_BYTES,
				       .idle_bytes = 64};

		for (unsigned int i = 0; i < 4; i++) {
			dice ^= dice << 13;
			dice ^= dice >> 7;
			dice ^= dice << 17;
			paths[i].weight = 1u << (dice & 1);
			paths[i].speed = dice >> 1 & 3 ? PACE_FULL : PACE_FULL / 4;
			paths[i].inflight_bytes = 32 * (dice >> 3 & 7);
			paths[i].state = dice >> 6 & 7 ? PATH_UP : PATH_DOWN;
			ask.key_mask &= dice >> 9 & 7 ? 0xf : ~(1u << i);
			ask.weight_full = ask.weight_full > paths[i].weight * (uint64_t)PACE_FULL
						  ? ask.weight_full
						  : paths[i].weight * (uint64_t)PACE_FULL;
		}
		assert_int_equal(plan_pick(paths, 4, &ask), pick_slowly(paths, 4, &ask));
	}
}

/* Long runs share bytes by weight, to within one piece. */
static void test_pick_by_weight(void **state)
{
	struct repair_path *paths = paths_up(3);
	const uint32_t weights[] = {400, 200, 100};

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		paths[i].weight = weights[i];
	}
	for (unsigned int i = 0; i < 7000; i++) {
		int p = plan_pick(paths, 3,
				  &(struct plan_ask){.key_mask = 0x7,
						     .active_count = 3,
						     .len_bytes = 100,
						     .window_bytes = UINT64_MAX / 2});

		assert_in_range(p, 0, 2);
		paths[p].inflight_bytes += 100;
	}
	for (unsigned int i = 0; i < 3; i++) {
		assert_in_range(paths[i].inflight_bytes, weights[i] * 1000 - 200,
				weights[i] * 1000 + 200);
	}
}

static void test_pick_states(void **state)
{
	(void)state;
	for (int s = 0; s < PATH_STATE_COUNT; s++) {
		struct repair_path *paths = paths_up(2);

		paths[0].state = (enum path_state)s;
		assert_int_equal(pick(paths, 2, 0x3), s == PATH_UP ? 0 : 1);
		paths[1].state = (enum path_state)s;
		assert_int_equal(pick(paths, 2, 0x3), s == PATH_UP ? 0 : -1);
	}
}

static void test_pick_standby(void **state)
{
	struct repair_path *paths = paths_up(4);

	(void)state;
	/* Active ones are full: a standby does not help out, it is for failures. */
	paths[0].inflight_bytes = WINDOW_BYTES;
	paths[1].inflight_bytes = WINDOW_BYTES;
	assert_int_equal(pick_of(paths, 4, 2, 0xf, 100), -1);
	/* One active fails: the first standby takes its place, and only that one. */
	paths[0].state = PATH_DOWN;
	assert_int_equal(pick_of(paths, 4, 2, 0xf, 100), 2);
	paths[2].inflight_bytes = WINDOW_BYTES;
	assert_int_equal(pick_of(paths, 4, 2, 0xf, 100), -1);
	paths[1].state = PATH_FENCING;
	assert_int_equal(pick_of(paths, 4, 2, 0xf, 100), 3);
	/* Unregistered active paths count as missing. */
	paths = paths_up(4);
	assert_int_equal(pick_of(paths, 4, 2, 0xc, 100), 2);
}

static void test_pick_window_and_room(void **state)
{
	struct repair_path *paths = paths_up(2);

	(void)state;
	/* An idle path takes a piece larger than the window: otherwise it would never go. */
	paths[1].inflight_bytes = WINDOW_BYTES;
	assert_int_equal(pick_of(paths, 2, 2, 3, WINDOW_BYTES * 4), 0);
	paths[0].inflight_bytes = 1;
	assert_int_equal(pick_of(paths, 2, 2, 3, WINDOW_BYTES), -1);
	assert_int_equal(pick_of(paths, 2, 2, 3, WINDOW_BYTES - 1), 0);
	paths[0].inflight_bytes = 0;
	paths[1].state = PATH_DOWN;
	while (wrq_has_room(&paths[0].sq)) {
		wrq_push(&paths[0].sq, (struct wrq_item){.kind = WRQ_PIECE});
	}
	assert_int_equal(pick_of(paths, 1, 1, 1, 0), -1);
	wrq_pop(&paths[0].sq);
	assert_int_equal(pick_of(paths, 1, 1, 1, 0), 0);
}

/* Work is held back for other paths only: whoever is alone takes it all. */
static void test_pick_alone(void **state)
{
	struct repair_path *paths = paths_up(3);

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		paths[i].inflight_bytes = WINDOW_BYTES;
	}
	assert_int_equal(pick_of(paths, 3, 3, 7, 100), -1);
	assert_int_equal(pick_of(paths, 3, 1, 7, 100), 0); /* the others stand by */
	assert_int_equal(pick_of(paths, 3, 3, 4, 100), 2); /* registered there only */
	paths[0].state = PATH_DOWN;
	assert_int_equal(pick_of(paths, 3, 3, 7, 100), -1);
	paths[2].state = PATH_FENCING;
	assert_int_equal(pick_of(paths, 3, 3, 7, 100), 1);
}

/* A post or its return, as repair/end.c books it. */
static void post(struct repair_path *path, uint32_t len_bytes)
{
	share_post(path, len_bytes, LARGE_BYTES);
}

/* Rails carry the pieces of all comms: what another one has out there counts, small items do not.
 */
static void test_pick_shared(void **state)
{
	struct repair_share shares[3] = {0};
	struct repair_path comms[2][3] = {0};

	(void)state;
	for (unsigned int c = 0; c < 2; c++) {
		for (unsigned int i = 0; i < 3; i++) {
			comms[c][i] = *paths_up(1);
			comms[c][i].share = &shares[i];
		}
	}
	post(&comms[0][0], 3 * LARGE_BYTES);
	post(&comms[0][1], LARGE_BYTES);
	post(&comms[0][2], LARGE_BYTES - 1);
	assert_int_equal(pick(comms[0], 3, 7), 2);
	assert_int_equal(pick(comms[1], 3, 7), 2);
	post(&comms[1][2], 2 * LARGE_BYTES);
	assert_int_equal(pick(comms[0], 3, 7), 1);
	assert_int_equal(pick(comms[1], 3, 7), 1);
	assert_true(share_load_bytes(&comms[0][2]) == 3 * LARGE_BYTES - 1);
	assert_true(share_load_bytes(&comms[1][2]) == 2 * LARGE_BYTES);
	share_retire(&comms[0][0], 3 * LARGE_BYTES, LARGE_BYTES);
	assert_int_equal(pick(comms[1], 3, 7), 0);
	share_retire(&comms[0][2], LARGE_BYTES - 1, LARGE_BYTES);
	share_retire(&comms[1][2], 2 * LARGE_BYTES, LARGE_BYTES);
	assert_true(atomic_load(&shares[0].load_bytes) == 0);
	assert_true(atomic_load(&shares[2].load_bytes) == 0);
}

/* Many comms with one message each: no rail has more than one piece more than another. */
static void test_pick_shared_evenly(void **state)
{
	struct repair_share shares[4] = {0};

	(void)state;
	for (unsigned int c = 0; c < 50; c++) {
		struct repair_path *paths = paths_up(4);

		for (unsigned int i = 0; i < 4; i++) {
			paths[i].share = &shares[i];
		}
		for (unsigned int piece = 0; piece < 2; piece++) {
			post(&paths[pick(paths, 4, 0xf)], LARGE_BYTES);
		}
	}
	for (unsigned int i = 0; i < 4; i++) {
		assert_true(atomic_load(&shares[i].load_bytes) == 25 * LARGE_BYTES);
	}
}

/* Entries are used in order, so they stay on one path while it works, however loaded it is. */
static void test_pick_tiny(void **state)
{
	struct repair_path *paths = paths_up(3);

	(void)state;
	paths[0].inflight_bytes = 4 * WINDOW_BYTES;
	assert_int_equal(plan_pick_tiny(paths, 3), 0);
	while (wrq_has_room(&paths[0].sq)) {
		wrq_push(&paths[0].sq, (struct wrq_item){.kind = WRQ_ACK});
	}
	assert_int_equal(plan_pick_tiny(paths, 3), 1);
	paths[1].state = PATH_FENCING;
	assert_int_equal(plan_pick_tiny(paths, 3), 2);
	paths[2].state = PATH_DOWN;
	assert_int_equal(plan_pick_tiny(paths, 3), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_every_small_size),
		cmocka_unit_test(test_cut_around_boundaries),
		cmocka_unit_test(test_cut_fixed_values),
		cmocka_unit_test(test_pick_least_loaded),
		cmocka_unit_test(test_pick_idle),
		cmocka_unit_test(test_pick_short_cut),
		cmocka_unit_test(test_pick_by_weight),
		cmocka_unit_test(test_pick_states),
		cmocka_unit_test(test_pick_standby),
		cmocka_unit_test(test_pick_window_and_room),
		cmocka_unit_test(test_pick_alone),
		cmocka_unit_test(test_pick_shared),
		cmocka_unit_test(test_pick_shared_evenly),
		cmocka_unit_test(test_pick_tiny),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
