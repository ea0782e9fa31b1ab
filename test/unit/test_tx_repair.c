/* SPDX-License-Identifier: Apache-2.0 */
#include "test/unit/tx_rig.h"

/* A sender whose paths, receiver or silence need looking into. */

/* Strike what the book covers, whatever completed here; the rest goes out again, once. */
static void test_reconcile(void **state)
{
	struct frame_fenced book = {.path = 0, .epoch = 1, .next_seq = 1};
	uint32_t on_zero = 0;
	uint64_t seq;
	unsigned int before;

	(void)state;
	clear_to_send(1, 65536, 7);
	assert_int_equal(send_bytes(12 * 1024, &seq), 0);
	for (unsigned int i = 0; i < fake.piece_count; i++) {
		on_zero |= (fake.pieces[i].path == 0 ? 1u : 0u) << fake.pieces[i].record.piece;
	}
	assert_int_equal(__builtin_popcount(on_zero), 4);
	book.pieces[0] = on_zero & (on_zero - 1); /* all but the first of them */
	complete_path(0, CAUSE_NONE);             /* and all of them completed */
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	assert_int_equal(tx.end.paths[0].state, PATH_FENCED);
	before = fake.piece_count;
	repair_end_on_fenced(&tx.end, &book, 4);
	assert_int_equal(fake.piece_count, before + 1);
	assert_int_equal(1u << fake.pieces[before].record.piece, on_zero & ~book.pieces[0]);
	assert_int_not_equal(fake.pieces[before].path, 0);
	assert_int_equal(fake_last_report(REPAIR_REPORT_DOWN)->replay_pieces, 1);
	assert_true(fake_last_report(REPAIR_REPORT_DOWN)->replay_bytes == 1024);
	assert_int_equal(tx.end.paths[0].epoch, 2);
	repair_end_on_fenced(&tx.end, &book, 5); /* again: stale */
	assert_int_equal(fake.piece_count, before + 1);
	assert_false(tx.end.failed);
}

/* FENCED says what no acknowledgement said: those sends are done, nothing is posted again. */
static void test_book_acknowledges(void **state)
{
	(void)state;
	send_first(1);
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	complete_path(0, CAUSE_FLUSH);
	fake_peer_fenced(&tx.end, 0, 1, 2);
	assert_true(is_done(1));
	assert_int_equal(fake.piece_count, 1);
}

/* FENCED of a sender says which entries it took and which it has. */
static void test_read_out(void **state)
{
	const struct frame *frame;
	uint64_t seq;

	(void)state;
	clear_to_send(1, 100, 7);
	clear_to_send(2, 100, 7);
	clear_to_send(4, 100, 7);
	clear_to_send(17, 100, 7);
	clear_to_send(5, 100, 7);
	cts[5].l0.addr ^= 1;                             /* half there is not there */
	assert_int_equal(send_bytes(10, &seq), -EAGAIN); /* the slot of 1 holds 17 */
	clear_to_send(1, 100, 7);
	assert_int_equal(send_bytes(10, &seq), 0);
	repair_end_fault(&tx.end, 1, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&tx.end, 1, FENCE_ERRORED, 3);
	frame = fake_last_frame(FRAME_FENCED);
	assert_non_null(frame);
	assert_true(frame->fenced.next_seq == 2);
	for (unsigned int i = 0; i < WINDOW_MSGS; i++) {
		assert_int_equal(frame->fenced.pieces[i] != 0, i == 0 || i == 2);
	}
}

static void test_hostile_books(void **state)
{
	(void)state;
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	fake_peer_fenced(&tx.end, 0, 1, 1000); /* acknowledges what was not sent */
	assert_int_equal(tx.end.failed, CAUSE_PROTOCOL);
}

static void test_data_to_a_sender(void **state)
{
	(void)state;
	tx.end.paths[0].recvs_out = 1;
	fake_complete(&tx.end, wr_id_pack((struct wr_id){WR_KIND_RECV, 0, 1, 0}), CAUSE_NONE, 2);
	assert_int_equal(tx.end.failed, CAUSE_PROTOCOL);
}

/* A comm that has failed takes no completions, and is no load on its rails. */
static void test_no_load_of_failed(void **state)
{
	struct repair_share share = {0};
	uint64_t seq;

	(void)state;
	tx.end.paths[0].share = &share;
	clear_to_send(1, 1000, 1);
	assert_int_equal(send_bytes(1000, &seq), 0);
	assert_true(atomic_load(&share.load_bytes) == 1000);
	repair_end_fail(&tx.end, CAUSE_PEER_GONE, PATHS_MAX, NULL);
	repair_end_tick(&tx.end, 2);
	assert_true(atomic_load(&share.load_bytes) == 0);
	complete_path(0, CAUSE_NONE);
	repair_end_tick(&tx.end, 3);
	assert_true(atomic_load(&share.load_bytes) == 0);
}

/* Covered sends become done once their WRs are back, and for that the path is fenced here alone. */
static void test_close_covers(void **state)
{
	(void)state;
	send_first(1);
	repair_tx_on_close(&tx, 2, 3);
	assert_false(tx.end.failed);
	assert_false(is_done(1));
	assert_int_equal(fake.fence_count, 1); /* paths 1 and 2 have nothing out */
	assert_int_equal(fake.frame_count, 0); /* nobody listens */
	assert_int_equal(fake.report_count, 0);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 4);
	repair_end_tick(&tx.end, 4 + 101ull * MS); /* it does not flush */
	assert_int_equal(fake.cut_count, 1);
	repair_fence_cut(&tx.end, 0, 0, 200ull * MS);
	assert_true(is_done(1));
	repair_end_tick(&tx.end, 5000ull * MS);
	assert_false(tx.end.failed);
}

static void test_close_too_early(void **state)
{
	(void)state;
	send_first(1);
	repair_tx_on_close(&tx, 1, 3);
	assert_int_equal(tx.end.failed, CAUSE_PEER_CLOSED);
}

static void test_send_after_close(void **state)
{
	uint64_t seq;

	(void)state;
	repair_tx_on_close(&tx, 1, 3);
	assert_false(tx.end.failed);
	assert_int_equal(send_bytes(100, &seq), -EIO);
	assert_int_equal(tx.end.failed, CAUSE_PEER_CLOSED);
}

/* An HCA may acknowledge and die: with everything completed and no word, silence is looked into. */
static void test_probe_while_waiting(void **state)
{
	(void)state;
	send_first(1);
	complete_path(0, CAUSE_NONE);
	repair_end_tick(&tx.end, 5ull * MS); /* takes the time of post and completion */
	repair_end_tick(&tx.end, 150ull * MS);
	assert_int_equal(fake.marker_count, 0);
	repair_end_tick(&tx.end, 250ull * MS);
	assert_int_equal(fake.marker_count, 3); /* each path that is UP */
	repair_end_tick(&tx.end, 500ull * MS);
	assert_int_equal(fake.ask_count, 3);
	complete_path(1, CAUSE_NONE); /* the others answer */
	complete_path(2, CAUSE_NONE);
	repair_end_answered(&tx.end, 510ull * MS);
	assert_int_equal(tx.end.paths[0].state, PATH_FENCING);
	assert_int_equal(tx.end.paths[1].state, PATH_UP);
	assert_int_equal(fake_last_report(REPAIR_REPORT_FAULT)->cause, CAUSE_STALL);
}

/* What was copied makes no completion: it is seen to early, so the path is asked about in time. */
static void test_probe_behind_copies(void **state)
{
	(void)state;
	fake.copy_bytes = 100;
	send_first(1);
	repair_end_tick(&tx.end, 5ull * MS); /* takes the time of the post */
	repair_end_tick(&tx.end, 50ull * MS);
	assert_int_equal(fake.marker_count, 0);
	repair_end_tick(&tx.end, 55ull * MS); /* a quarter of stall_ms */
	assert_int_equal(fake.marker_count, 1);
	assert_int_equal(fake.markers[0].path, 0);
	repair_end_tick(&tx.end, 254ull * MS);
	assert_int_equal(fake.ask_count, 0);
	repair_end_tick(&tx.end, 255ull * MS);
	assert_int_equal(fake.ask_count, 1);
	repair_end_answered(&tx.end, 256ull * MS);
	assert_int_equal(tx.end.paths[0].state, PATH_FENCING);
	assert_int_equal(fake_last_report(REPAIR_REPORT_FAULT)->cause, CAUSE_STALL);
}

/* Other paths work, but not for this buffer: that ends as well. */
static void test_no_path_with_keys(void **state)
{
	(void)state;
	send_first(1);
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	complete_path(0, CAUSE_FLUSH);
	fake_peer_fenced(&tx.end, 0, 1, 1);
	assert_int_equal(fake.piece_count, 1);
	fake_pass(&tx.end, 10, 1140);
	assert_int_equal(tx.end.failed, CAUSE_NO_PATH);
}

static void test_no_probe_when_idle(void **state)
{
	(void)state;
	send_first(1);
	complete_path(0, CAUSE_NONE);
	acks[0].next_seq = 2;
	repair_tx_poll_acks(&tx);
	repair_end_tick(&tx.end, 900ull * MS);
	assert_int_equal(fake.marker_count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_reconcile, setup),
		cmocka_unit_test_setup(test_book_acknowledges, setup),
		cmocka_unit_test_setup(test_read_out, setup),
		cmocka_unit_test_setup(test_hostile_books, setup),
		cmocka_unit_test_setup(test_data_to_a_sender, setup),
		cmocka_unit_test_setup(test_no_load_of_failed, setup),
		cmocka_unit_test_setup(test_close_covers, setup),
		cmocka_unit_test_setup(test_close_too_early, setup),
		cmocka_unit_test_setup(test_send_after_close, setup),
		cmocka_unit_test_setup(test_probe_while_waiting, setup),
		cmocka_unit_test_setup(test_probe_behind_copies, setup),
		cmocka_unit_test_setup(test_no_path_with_keys, setup),
		cmocka_unit_test_setup(test_no_probe_when_idle, setup),
	};

	log_sink_set(fake_sink);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
