/* SPDX-License-Identifier: Apache-2.0 */
#include "test/unit/tx_rig.h"

static void test_waits_for_entry(void **state)
{
	uint64_t seq = 0;

	(void)state;
	assert_int_equal(send_bytes(10, &seq), -EAGAIN);
	clear_to_send(2, 100, 7); /* someone else's */
	assert_int_equal(send_bytes(10, &seq), -EAGAIN);
	clear_to_send(1, 100, 7);
	cts[1].l0.addr ^= 1; /* half written: the check tells */
	assert_int_equal(send_bytes(10, &seq), -EAGAIN);
	cts[1].l0.addr ^= 1;
	assert_int_equal(send_bytes(10, &seq), 0);
	assert_true(seq == 1);
	assert_int_equal(fake.piece_count, 1);
}

/* With more than eight paths the second line counts as well. */
static void test_second_line(void **state)
{
	uint64_t seq = 0;

	(void)state;
	memset(tx.end.paths, 0, sizeof(tx.end.paths));
	fake_paths_up(&tx.end, 9);
	clear_to_send(1, 100, 0x1ff);
	cts[1].l1.rkeys[0] ^= 1;
	assert_int_equal(send_bytes(10, &seq), -EAGAIN);
	cts[1].l1.rkeys[0] ^= 1;
	cts[1].l1.seq = 0;
	assert_int_equal(send_bytes(10, &seq), -EAGAIN);
	clear_to_send(1, 100, 0x100); /* registered on path 8 only */
	assert_int_equal(send_bytes(10, &seq), 0);
	assert_int_equal(fake.pieces[0].path, 8);
	assert_int_equal(fake.pieces[0].rkey, 108);
}

static void test_whole(void **state)
{
	const struct repair_piece *piece = &fake.pieces[0];
	struct wire_imm imm;
	uint64_t seq;

	(void)state;
	clear_to_send(1, 2000, 7);
	assert_int_equal(send_bytes(1024, &seq), 0);
	assert_int_equal(fake.piece_count, 1);
	assert_true(piece->whole);
	assert_int_equal(piece->len_bytes, 1024);
	assert_true(piece->remote_addr == 0x100000);
	assert_true(piece->local_addr == (uint64_t)payload);
	assert_int_equal(piece->rkey, 100 + piece->path);
	imm = wire_imm_unpack(piece->imm);
	assert_int_equal(imm.kind, WIRE_IMM_WHOLE);
	assert_int_equal(imm.seq_low, 1);
	assert_int_equal(imm.epoch_low, 1);
}

/* Pieces cover the message, each with a record that says so. */
static void test_pieces(void **state)
{
	uint64_t seq, next = 0;

	(void)state;
	clear_to_send(1, 65536, 7);
	assert_int_equal(send_bytes(10000, &seq), 0);
	assert_int_equal(fake.piece_count, 10);
	for (unsigned int i = 0; i < 10; i++) {
		const struct repair_piece *piece = &fake.pieces[i];
		struct wire_imm imm = wire_imm_unpack(piece->imm);

		assert_false(piece->whole);
		assert_true(piece->local_addr == (uint64_t)payload + next);
		assert_true(piece->remote_addr == 0x100000 + next);
		assert_true(piece->record.offset_bytes == next);
		assert_int_equal(piece->record.len_bytes, piece->len_bytes);
		assert_true(piece->record.total_bytes == 10000);
		assert_int_equal(piece->record.piece, i);
		assert_int_equal(piece->record.pieces, 10);
		assert_int_equal(piece->record_idx, PIECES_MAX + i);
		assert_int_equal(imm.kind, WIRE_IMM_RECORD);
		assert_int_equal(imm.piece, i);
		next += piece->len_bytes;
	}
	assert_true(next == 10000);
}

static void check_alone(uint64_t size, unsigned int pieces, bool whole)
{
	unsigned int before = fake.piece_count;
	uint64_t seq;

	clear_to_send(tx.next_seq, 65536, 7);
	assert_int_equal(send_bytes(size, &seq), 0);
	assert_int_equal(fake.piece_count - before, pieces);
	for (unsigned int i = before; i < fake.piece_count; i++) {
		assert_int_equal(fake.pieces[i].path, 0);
		assert_int_equal(fake.pieces[i].whole, whole);
		assert_int_equal(wire_imm_unpack(fake.pieces[i].imm).kind,
				 whole ? WIRE_IMM_WHOLE : WIRE_IMM_RECORD);
	}
}

/* One path: large pieces, and a message of one piece is a single write where that is allowed. */
static void test_alone(void **state)
{
	(void)state;
	tx.end.active_count = 1;
	check_alone(16 * 1024, 1, false);
	check_alone(16 * 1024 + 1, 2, false);
	tx.end.limits.uncut_whole = true;
	check_alone(16 * 1024, 1, true);
	check_alone(16 * 1024 + 1, 2, false);
	tx.end.active_count = 3;
	tx.end.paths[1].state = tx.end.paths[2].state = PATH_DOWN;
	check_alone(2048, 1, true);
}

/* Whatever it was when it was cut: handed over, a whole message goes whole. */
static void test_alone_handed_over(void **state)
{
	uint64_t seq;

	(void)state;
	tx.end.active_count = 1;
	tx.end.limits.uncut_whole = true;
	clear_to_send(1, 65536, 7);
	assert_int_equal(send_bytes(10000, &seq), 0);
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	complete_path(0, CAUSE_FLUSH);
	fake_peer_fenced(&tx.end, 0, 1, 1);
	assert_int_equal(fake.piece_count, 2);
	assert_int_equal(fake.pieces[1].path, 1);
	assert_true(fake.pieces[1].whole);
	assert_int_equal(fake.pieces[1].len_bytes, 10000);
	assert_true(fake_last_report(REPAIR_REPORT_DOWN)->replay_bytes == 10000);
}

static void test_clamped(void **state)
{
	uint64_t seq, size = 0;

	(void)state;
	clear_to_send(1, 100, 7);
	assert_int_equal(send_bytes(5000, &seq), 0);
	assert_int_equal(fake.pieces[0].len_bytes, 100);
	complete_path(fake.pieces[0].path, CAUSE_NONE);
	acks[0].next_seq = 2;
	repair_tx_poll_acks(&tx);
	assert_true(repair_tx_done(&tx, 1, &size));
	assert_true(size == 100);
}

/* An empty message needs no keys. */
static void test_empty(void **state)
{
	uint64_t seq;

	(void)state;
	clear_to_send(1, 0, 0);
	assert_int_equal(send_bytes(0, &seq), 0);
	assert_int_equal(fake.piece_count, 1);
	assert_int_equal(fake.pieces[0].len_bytes, 0);
	assert_true(fake.pieces[0].whole);
}

/* What was copied when it was posted is done when the receiver has it, and not before. */
static void test_copied(void **state)
{
	uint64_t seq;

	(void)state;
	fake.copy_bytes = 64;
	clear_to_send(1, 100, 7);
	clear_to_send(2, 100, 7);
	assert_int_equal(send_bytes(64, &seq), 0);
	assert_int_equal(send_bytes(65, &seq), 0);
	assert_int_equal(tx.end.paths[0].inflight_bytes, 65);
	assert_false(is_done(1));
	acks[0].next_seq = 3;
	repair_tx_poll_acks(&tx);
	assert_true(is_done(1));
	assert_false(is_done(2)); /* the HCA may read it yet */
	fake_complete(&tx.end, fake.pieces[1].wr_id, CAUSE_NONE, 2);
	assert_true(is_done(2));
	assert_int_equal(wrq_out(&tx.end.paths[0].sq), 0);
}

/* Now and then one is signalled, so that the queue does not fill up. */
static void test_copied_signals(void **state)
{
	uint64_t seq;

	(void)state;
	fake.copy_bytes = 64;
	for (uint64_t i = 1; i <= 1000; i++) {
		fill_entry(i, 100, 7, i);
		assert_int_equal(send_bytes(8, &seq), 0);
		assert_int_equal(fake.pieces[i - 1].path, 0);
		assert_in_range(wrq_out(&tx.end.paths[0].sq), 0, 16);
		assert_int_equal(tx.end.paths[0].sq.signalled_out, fake.pieces[i - 1].needs_signal);
		if (fake.pieces[i - 1].needs_signal) {
			fake_complete(&tx.end, fake.pieces[i - 1].wr_id, CAUSE_NONE, 2);
		}
		acks[0].next_seq = i + 1;
		repair_tx_poll_acks(&tx);
		assert_true(is_done(i));
		repair_tx_release(&tx, i);
	}
}

/* One that the receiver lacks goes again, from its buffer, though no completion is awaited. */
static void test_copied_again(void **state)
{
	uint64_t seq;

	(void)state;
	fake.copy_bytes = 64;
	clear_to_send(1, 100, 7);
	assert_int_equal(send_bytes(8, &seq), 0);
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	assert_int_equal(fake.marker_count, 1); /* it is out, for all that is known */
	fake_complete(&tx.end, fake.markers[0].wr_id, CAUSE_FLUSH, 3);
	fake_peer_fenced(&tx.end, 0, 1, 1);
	assert_int_equal(fake.piece_count, 2);
	assert_int_equal(fake.pieces[1].path, 1);
	assert_true(fake.pieces[1].local_addr == (uint64_t)payload);
	assert_false(is_done(1));
}

/* A receiver that has everything may close: nothing that was copied is waited for. */
static void test_copied_close(void **state)
{
	uint64_t seq;

	(void)state;
	fake.copy_bytes = 64;
	clear_to_send(1, 100, 7);
	clear_to_send(2, 100, 7);
	assert_int_equal(send_bytes(8, &seq), 0);
	repair_tx_on_close(&tx, 2, 3);
	assert_true(is_done(1));
	assert_int_equal(fake.fence_count, 0);
	setup(NULL);
	fake.copy_bytes = 64;
	clear_to_send(1, 100, 7);
	clear_to_send(2, 100, 7);
	assert_int_equal(send_bytes(8, &seq), 0);
	assert_int_equal(send_bytes(100, &seq), 0);
	repair_tx_on_close(&tx, 3, 3);
	assert_true(is_done(1));
	assert_int_equal(fake.fence_count, 1);
}

/* The entry of a later message acknowledges as well: all of it, once it is there, in order. */
static void test_entry_acknowledges(void **state)
{
	uint64_t seq;

	(void)state;
	clear_to_send(1, 100, 7);
	clear_to_send(2, 100, 7);
	assert_int_equal(send_bytes(100, &seq), 0);
	assert_int_equal(send_bytes(100, &seq), 0);
	complete_path(0, CAUSE_NONE);
	complete_path(1, CAUSE_NONE);
	fill_entry(3, 100, 7, 2);
	cts[3].l0.addr ^= 1; /* half written */
	fill_entry(4, 100, 7, 3);
	repair_tx_poll_acks(&tx);
	assert_false(is_done(1));
	cts[3].l0.addr ^= 1;
	repair_tx_poll_acks(&tx);
	assert_true(is_done(1) && is_done(2));
	assert_int_equal(tx.end.failed, CAUSE_NONE);
}

/* So does an entry that isend is the first to look at, and one that says less than is known. */
static void test_entry_acknowledges_to_send(void **state)
{
	uint64_t seq;

	(void)state;
	send_first(7);
	complete_path(0, CAUSE_NONE);
	fill_entry(2, 100, 7, 2);
	assert_int_equal(send_bytes(100, &seq), 0);
	assert_true(is_done(1));
	fill_entry(3, 100, 7, 1);
	repair_tx_poll_acks(&tx);
	assert_true(is_done(1));
	assert_int_equal(tx.end.failed, CAUSE_NONE);
}

/* A message that was never sent can't be complete, whatever an entry says of it. */
static void test_entry_lies(void **state)
{
	uint64_t seq;

	(void)state;
	clear_to_send(1, 100, 7);
	fill_entry(2, 100, 7, 2);
	repair_tx_poll_acks(&tx);
	assert_int_equal(tx.end.failed, CAUSE_PROTOCOL);
	setup(NULL);
	fill_entry(1, 100, 7, UINT64_MAX); /* behind more than there ever were */
	repair_tx_poll_acks(&tx);
	assert_int_equal(tx.end.failed, CAUSE_PROTOCOL);
	setup(NULL);
	send_first(7);
	fill_entry(2, 100, 7, 2);
	fill_entry(3, 100, 7, 3);
	assert_int_equal(send_bytes(100, &seq),
			 -EIO); /* it would go, but 3 says that it is there */
}

/* P3: a completion is not delivery, and delivery without the completion is not done either. */
static void test_done_needs_both(void **state)
{
	uint64_t seq;

	(void)state;
	clear_to_send(1, 100, 7);
	clear_to_send(2, 100, 7);
	assert_int_equal(send_bytes(100, &seq), 0);
	assert_int_equal(send_bytes(100, &seq), 0);
	fake_complete(&tx.end, fake.pieces[0].wr_id, CAUSE_NONE, 2);
	repair_tx_poll_acks(&tx);
	assert_false(is_done(1));
	acks[2].next_seq = 3; /* any path's word will do */
	repair_tx_poll_acks(&tx);
	assert_true(is_done(1));
	assert_false(is_done(2)); /* its WR may read the buffer yet */
	fake_complete(&tx.end, fake.pieces[1].wr_id, CAUSE_NONE, 2);
	assert_true(is_done(2));
}

static void test_ack_of_unsent(void **state)
{
	(void)state;
	acks[1].next_seq = 2;
	repair_tx_poll_acks(&tx);
	assert_int_equal(tx.end.failed, CAUSE_PROTOCOL);
}

static void test_window(void **state)
{
	uint64_t seq = 0;

	(void)state;
	for (uint64_t s = 1; s <= WINDOW_MSGS; s++) {
		clear_to_send(s, 100, 7);
		assert_int_equal(send_bytes(50, &seq), 0);
		assert_true(seq == s);
	}
	clear_to_send(WINDOW_MSGS + 1, 100, 7);
	assert_int_equal(send_bytes(50, &seq), -EAGAIN);
	for (unsigned int p = 0; p < 3; p++) {
		complete_path(p, CAUSE_NONE);
	}
	acks[0].next_seq = WINDOW_MSGS + 1;
	repair_tx_poll_acks(&tx);
	repair_tx_release(&tx, 2); /* out of order: the window waits for the oldest */
	assert_int_equal(send_bytes(50, &seq), -EAGAIN);
	repair_tx_release(&tx, 1);
	assert_int_equal(send_bytes(50, &seq), 0);
	assert_true(seq == WINDOW_MSGS + 1);
}

/* A full queue: the piece waits, and nothing younger overtakes it on the same path. */
static void test_eagain(void **state)
{
	uint64_t seq;

	(void)state;
	fake.rc = -EAGAIN;
	fake.rc_path = 0;
	clear_to_send(1, 100, 1);
	clear_to_send(2, 100, 1);
	assert_int_equal(send_bytes(100, &seq), 0);
	assert_int_equal(send_bytes(100, &seq), 0);
	assert_int_equal(fake.piece_count, 0);
	assert_false(tx.end.failed);
	fake.rc = 0;
	repair_end_pump(&tx.end, 2);
	assert_int_equal(fake.piece_count, 2);
	assert_int_equal(wire_imm_unpack(fake.pieces[0].imm).seq_low, 1);
}

/* A post that fails is the path's until its fence is done, then it goes over another path. */
static void test_post_fails(void **state)
{
	uint64_t seq;

	(void)state;
	fake.rc = -EIO;
	fake.rc_path = 0;
	clear_to_send(1, 100, 3);
	assert_int_equal(send_bytes(100, &seq), 0);
	assert_int_equal(tx.end.paths[0].state, PATH_FENCING);
	assert_int_equal(fake.fence_count, 1);
	assert_int_equal(fake.piece_count, 1); /* the failed one; not on path 1 as well */
	repair_end_pump(&tx.end, 2);
	assert_int_equal(fake.piece_count, 1);
	fake.rc = 0;
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	assert_int_equal(fake.marker_count, 1);
	fake_complete(&tx.end, fake.markers[0].wr_id, CAUSE_FLUSH, 3);
	assert_int_equal(tx.end.paths[0].state, PATH_FENCED);
	assert_int_equal(fake.piece_count, 1);
	fake_peer_fenced(&tx.end, 0, 1, 1);
	assert_int_equal(tx.end.paths[0].state, PATH_DOWN);
	assert_int_equal(fake.piece_count, 2);
	assert_int_equal(fake.pieces[1].path, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_waits_for_entry, setup),
		cmocka_unit_test_setup(test_second_line, setup),
		cmocka_unit_test_setup(test_whole, setup),
		cmocka_unit_test_setup(test_pieces, setup),
		cmocka_unit_test_setup(test_alone, setup),
		cmocka_unit_test_setup(test_alone_handed_over, setup),
		cmocka_unit_test_setup(test_clamped, setup),
		cmocka_unit_test_setup(test_empty, setup),
		cmocka_unit_test_setup(test_done_needs_both, setup),
		cmocka_unit_test_setup(test_copied, setup),
		cmocka_unit_test_setup(test_copied_signals, setup),
		cmocka_unit_test_setup(test_copied_again, setup),
		cmocka_unit_test_setup(test_copied_close, setup),
		cmocka_unit_test_setup(test_entry_acknowledges, setup),
		cmocka_unit_test_setup(test_entry_acknowledges_to_send, setup),
		cmocka_unit_test_setup(test_entry_lies, setup),
		cmocka_unit_test_setup(test_ack_of_unsent, setup),
		cmocka_unit_test_setup(test_window, setup),
		cmocka_unit_test_setup(test_eagain, setup),
		cmocka_unit_test_setup(test_post_fails, setup),
	};

	log_sink_set(fake_sink);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
