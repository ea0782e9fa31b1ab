/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/hold.h"
#include "test/unit/fake_ops.h"

#include <errno.h>

/* No path left, and paths that stand still together: who is waited for, and for how long. */
static struct repair_tx tx;
static struct wire_cts cts[WINDOW_MSGS];
static struct wire_ack acks[PATHS_MAX];
static uint8_t payload[64];

enum {
	NO_PATH_MS = 1000, /* of fake_limits */
	STALL_MS = 200
};

static int setup(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	memset(cts, 0, sizeof(cts));
	memset(acks, 0, sizeof(acks));
	repair_tx_init(&tx, &fake_ops, NULL, &fake_limits, cts, acks);
	fake_paths_up(&tx.end, 2);
	return 0;
}

static void lose_all(void)
{
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_end_fault(&tx.end, 1, CAUSE_PORT_DOWN, 2);
	repair_end_tick(&tx.end, 10ull * MS);
	assert_non_null(fake_last_report(REPAIR_REPORT_NO_PATH));
}

/* The peer's process does not answer; its HCA does, so probes come back. */
static void tick_silently(uint64_t from_ms, uint64_t to_ms)
{
	for (uint64_t ms = from_ms; ms <= to_ms; ms += 10) {
		unsigned int first = fake.marker_count;

		repair_end_tick(&tx.end, ms * MS);
		for (unsigned int i = first; i < fake.marker_count; i++) {
			fake_complete(&tx.end, fake.markers[i].wr_id, CAUSE_NONE, ms * MS);
		}
	}
}

static void test_bound(void **state)
{
	(void)state;
	lose_all();
	fake_pass(&tx.end, 20, NO_PATH_MS);
	assert_false(tx.end.failed);
	fake_pass(&tx.end, NO_PATH_MS + 10, NO_PATH_MS + 10 + NO_PATH_MS / 8);
	assert_int_equal(tx.end.failed, CAUSE_NO_PATH);
}

/* A peer that is stopped for a minute is waited for, and has its time once it is back. */
static void test_silent_peer(void **state)
{
	(void)state;
	lose_all();
	fake_pass(&tx.end, 20, 400);
	tick_silently(410, 60000);
	assert_false(tx.end.failed);
	repair_end_answered(&tx.end, 60001ull * MS);
	assert_false(tx.end.failed);
	fake_pass(&tx.end, 60010, 60400);
	assert_false(tx.end.failed);
	fake_pass(&tx.end, 60410, 60000 + NO_PATH_MS);
	assert_int_equal(tx.end.failed, CAUSE_NO_PATH);
}

/* Questions that a full link refuses are asked again; an answer can't come to none. */
static void test_question_refused(void **state)
{
	(void)state;
	fake.ask_rc = -ENOBUFS;
	lose_all();
	tick_silently(20, 5000);
	assert_int_equal(fake.ask_count, 0);
	assert_false(tx.end.failed);
	fake.ask_rc = 0;
	fake_pass(&tx.end, 5010, 5010);
	assert_int_equal(tx.end.failed, CAUSE_NO_PATH);
}

/* The hold ends with the path that comes back, and a later one begins anew. */
static void test_path_back(void **state)
{
	(void)state;
	lose_all();
	fake_pass(&tx.end, 20, 900);
	tx.end.paths[1].state = PATH_UP;
	fake_pass(&tx.end, 910, 3000);
	assert_false(tx.end.failed);
	fake.report_count = 0;
	repair_end_fault(&tx.end, 1, CAUSE_PORT_DOWN, 3001ull * MS);
	fake_pass(&tx.end, 3010, 3900);
	assert_non_null(fake_last_report(REPAIR_REPORT_NO_PATH));
	assert_false(tx.end.failed);
}

/* A send on path p: the other one is loaded so that it is chosen. */
static uint64_t send_on(unsigned int p)
{
	struct repair_send send = {.cookie = payload,
				   .addr = (uint64_t)payload,
				   .size_bytes = 64,
				   .key_mask = 1u << p};
	uint64_t seq = tx.next_seq;
	struct wire_cts *entry = &cts[wire_slot(seq)];

	entry->l0.size_bytes = 64;
	entry->l0.key_mask = 3;
	entry->l0.seq = seq;
	entry->l0.check = wire_line_check(&entry->l0);
	assert_int_equal(repair_tx_send(&tx, &send, tx.end.now_ns, &seq), 0);
	assert_int_equal(fake.pieces[fake.piece_count - 1].path, p);
	return fake.pieces[fake.piece_count - 1].wr_id;
}

/* Both are asked about in the same moment, and neither is blamed; the one that moves later shows
 * who is to blame, though it is asked about together with the other once more. */
static void test_lockstep(void **state)
{
	uint64_t wr_id;

	(void)state;
	send_on(0);
	wr_id = send_on(1);
	repair_end_tick(&tx.end, 1ull * MS);
	repair_end_tick(&tx.end, 300ull * MS);
	assert_int_equal(fake.ask_count, 2);
	repair_end_answered(&tx.end, 301ull * MS);
	assert_int_equal(repair_end_up_mask(&tx.end), 3);
	fake_complete(&tx.end, wr_id, CAUSE_NONE, 310ull * MS);
	send_on(1);
	repair_end_tick(&tx.end, 320ull * MS);
	repair_end_tick(&tx.end, 600ull * MS);
	assert_int_equal(fake.ask_count, 4);
	repair_end_answered(&tx.end, 601ull * MS);
	assert_int_equal(tx.end.paths[0].state, PATH_FENCING);
	assert_int_equal(tx.end.paths[0].cause, CAUSE_STALL);
	assert_int_equal(tx.end.paths[1].state, PATH_UP);
}

/* The peer's answer may be lost to a full link, and so may the question. */
static void test_asked_again(void **state)
{
	(void)state;
	send_on(0);
	fake.ask_rc = -ENOBUFS;
	tick_silently(300, 500);
	assert_int_equal(fake.ask_count, 0);
	fake.ask_rc = 0;
	tick_silently(510, 520);
	assert_int_equal(fake.ask_count, 1);
	tick_silently(530, 510 + 10 * STALL_MS - 10);
	assert_int_equal(fake.ask_count, 1);
	tick_silently(510 + 10 * STALL_MS, 520 + 10 * STALL_MS);
	assert_int_equal(fake.ask_count, 2);
	repair_end_answered(&tx.end, 3000ull * MS);
	assert_int_equal(tx.end.paths[0].state, PATH_FENCING);
}

/* This process itself is stopped for 20 s, with something out and a question asked. Its HCA has
 * gone on, but what it did is not in the queue yet when the answer, 20 s old, is looked at first.
 */
static void test_own_sleep(void **state)
{
	uint64_t wr_id;

	(void)state;
	wr_id = send_on(0);
	tick_silently(10, 250);
	assert_int_equal(fake.ask_count, 1);
	repair_end_answered(&tx.end, 20250ull * MS);
	assert_int_equal(tx.end.paths[0].state, PATH_UP);
	tick_silently(20251, 20440);
	assert_int_equal(tx.end.paths[0].state, PATH_UP);
	assert_int_equal(fake.ask_count, 1);
	fake_complete(&tx.end, wr_id, CAUSE_NONE, 20440ull * MS);
	tick_silently(20450, 20460);
	assert_int_equal(tx.end.paths[0].state, PATH_UP);
}

/* The same with a tick first. A path that stays silent from then on is found as ever. */
static void test_own_sleep_tick(void **state)
{
	(void)state;
	send_on(0);
	tick_silently(10, 100);
	tick_silently(20000, 20190);
	assert_int_equal(fake.ask_count, 0);
	tick_silently(20200, 20210);
	assert_int_equal(fake.ask_count, 1);
	repair_end_answered(&tx.end, 20211ull * MS);
	assert_int_equal(tx.end.paths[0].state, PATH_FENCING);
}

/* Nor is a sleep the HCA's: a fence has its whole time, and so has a comm that is held. */
static void test_own_sleep_repairing(void **state)
{
	(void)state;
	tx.end.limits.fence_ms = 5000;
	tick_silently(10, 20);
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 25ull * MS);
	repair_end_fault(&tx.end, 1, CAUSE_PORT_DOWN, 25ull * MS);
	fake_pass(&tx.end, 30, 400);
	fake_pass(&tx.end, 60000, 60500);
	assert_false(tx.end.failed);
	fake_pass(&tx.end, 60510, 60900);
	assert_int_equal(tx.end.failed, CAUSE_NO_PATH);
}

/* What began after waking has not slept: a fence that the peer asked for before the first tick. */
static void test_fence_at_wake(void **state)
{
	(void)state;
	tx.end.limits.fence_ms = 30000;
	tick_silently(10, 20);
	fake_peer_fence(&tx.end, 0, 1, 60000ull * MS);
	assert_int_equal(tx.end.paths[0].state, PATH_FENCING);
	tick_silently(60001, 60100);
	assert_false(tx.end.failed);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 60110ull * MS);
	assert_int_equal(tx.end.paths[0].state, PATH_FENCED);
}

/* A path that was back, and gone again before the next tick, ends the hold all the same. */
static void test_back_for_a_moment(void **state)
{
	(void)state;
	lose_all();
	fake_pass(&tx.end, 20, 900);
	tx.end.paths[1].state = PATH_PROBING;
	fence_event(&tx.end, 1, PATH_EV_READY, NULL);
	assert_int_equal(tx.end.paths[1].state, PATH_UP);
	repair_end_fault(&tx.end, 1, CAUSE_PORT_DOWN, 901ull * MS);
	fake_pass(&tx.end, 910, 1800);
	assert_false(tx.end.failed);
	fake_pass(&tx.end, 1810, 2100);
	assert_int_equal(tx.end.failed, CAUSE_NO_PATH);
}

/* An answer that took long is of a peer, or a link, that was away: the question is put again. */
static void test_late_answer(void **state)
{
	(void)state;
	tx.end.limits.no_path_ms = 30000;
	send_on(0);
	tick_silently(10, 250);
	assert_int_equal(fake.ask_count, 1);
	tick_silently(260, 5000); /* asked again meanwhile, but it is the first answer that comes */
	repair_end_answered(&tx.end, 5001ull * MS);
	assert_int_equal(tx.end.paths[0].state, PATH_UP);
	fake.ask_count = 0;
	tick_silently(5010, 5210);
	assert_int_equal(fake.ask_count, 1);
	repair_end_answered(&tx.end, 5211ull * MS);
	assert_int_equal(tx.end.paths[0].state, PATH_FENCING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_bound, setup),
		cmocka_unit_test_setup(test_silent_peer, setup),
		cmocka_unit_test_setup(test_question_refused, setup),
		cmocka_unit_test_setup(test_path_back, setup),
		cmocka_unit_test_setup(test_lockstep, setup),
		cmocka_unit_test_setup(test_asked_again, setup),
		cmocka_unit_test_setup(test_fence_at_wake, setup),
		cmocka_unit_test_setup(test_back_for_a_moment, setup),
		cmocka_unit_test_setup(test_late_answer, setup),
		cmocka_unit_test_setup(test_own_sleep, setup),
		cmocka_unit_test_setup(test_own_sleep_tick, setup),
		cmocka_unit_test_setup(test_own_sleep_repairing, setup),
	};

	log_sink_set(fake_sink);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
