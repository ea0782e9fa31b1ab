/* SPDX-License-Identifier: Apache-2.0 */
#include "test/unit/fake_ops.h"

static struct repair_rx rx;
static struct wire_cts cts[WINDOW_MSGS];
static struct wire_record records[WIRE_RECORDS];

static int setup(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	memset(records, 0, sizeof(records));
	repair_rx_init(&rx, &fake_ops, NULL, &fake_limits, cts, records);
	fake_paths_up(&rx.end, 3);
	return 0;
}

static int post(uint64_t size, uint64_t *seq)
{
	struct repair_recv recv = {.addr = 0x5000, .size_bytes = size, .key_mask = 7};

	for (unsigned int p = 0; p < PATHS_MAX; p++) {
		recv.rkeys[p] = 50 + p;
	}
	return repair_rx_recv(&rx, &recv, 1, seq);
}

static void arrive(unsigned int path, struct wire_imm imm, uint32_t len)
{
	struct repair_wc wc = {
		.wr_id = fake.recv_wr_id[path], .imm = wire_imm_pack(imm), .len_bytes = len};

	repair_end_completed(&rx.end, &wc, 2);
	repair_end_pump(&rx.end, 2);
}

static void whole(unsigned int path, uint64_t seq, uint32_t len)
{
	arrive(path,
	       (struct wire_imm){WIRE_IMM_WHOLE, (uint8_t)rx.end.paths[path].epoch, 0,
				 (uint16_t)seq},
	       len);
}

/* Piece i of a message of count pieces of 128 bytes. */
static void piece(unsigned int path, uint64_t seq, uint16_t i, uint16_t count)
{
	records[wire_record_idx(seq, i)] = (struct wire_record){.seq = seq,
								.total_bytes = count * 128u,
								.offset_bytes = i * 128u,
								.len_bytes = 128,
								.epoch = rx.end.paths[path].epoch,
								.piece = i,
								.pieces = count};
	arrive(path,
	       (struct wire_imm){WIRE_IMM_RECORD, (uint8_t)rx.end.paths[path].epoch, (uint8_t)i,
				 (uint16_t)seq},
	       WIRE_RECORD_BYTES);
}

static bool is_done(uint64_t seq, uint64_t *size, uint32_t *mask)
{
	return repair_rx_done(&rx, seq, size, mask);
}

/* Fence a path that is silent, with the peer's part; everything flushes. */
static void lose(unsigned int path)
{
	repair_end_fault(&rx.end, path, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&rx.end, path, FENCE_ERRORED, 3);
	if (wrq_out(&rx.end.paths[path].sq) > 0) {
		fake_complete(&rx.end, fake.markers[fake.marker_count - 1].wr_id, CAUSE_FLUSH, 3);
	}
	fake_flush_recvs(&rx.end, path, 3);
	assert_int_equal(rx.end.paths[path].state, PATH_FENCED);
	fake_peer_fenced(&rx.end, path, rx.end.paths[path].epoch, 0);
	assert_int_equal(rx.end.paths[path].state, PATH_DOWN);
}

static void test_entry(void **state)
{
	uint64_t seq = 0;

	(void)state;
	assert_int_equal(post(777, &seq), 0);
	assert_true(seq == 1);
	assert_int_equal(fake.cts_count, 1);
	assert_int_equal(fake.cts[0].value, 1);
	assert_int_equal(fake.cts[0].path, 0);
	assert_true(cts[1].l0.addr == 0x5000);
	assert_true(cts[1].l0.size_bytes == 777);
	assert_int_equal(cts[1].l0.key_mask, 7);
	assert_int_equal(cts[1].l0.rkeys[3], 53);
	assert_true(cts[1].l0.seq == 1);
	assert_int_equal(cts[1].l0.check, wire_line_check(&cts[1].l0));
	/* the second line is written only for the paths that it is for */
	assert_true(cts[1].l1.seq == 0);
	rx.end.path_count = 9;
	assert_int_equal(post(777, &seq), 0);
	assert_int_equal(cts[2].l1.rkeys[3], 61);
	assert_true(cts[2].l0.seq == 2 && cts[2].l1.seq == 2);
	assert_int_equal(cts[2].l0.check, wire_line_check(&cts[2].l0));
	assert_int_equal(cts[2].l1.check, wire_line_check(&cts[2].l1));
}

/* An entry says what was complete when it was filled; what it says need not be said by a word. */
static void test_entry_acknowledges(void **state)
{
	uint64_t seq;

	(void)state;
	assert_int_equal(post(100, &seq), 0);
	assert_int_equal(post(100, &seq), 0);
	assert_true(wire_cts_acks(&cts[1].l0) == 1 && wire_cts_acks(&cts[2].l0) == 1);
	fake.rc = -EAGAIN;
	whole(1, 1, 10);
	assert_int_equal(post(100, &seq), 0);
	whole(1, 2, 10);
	fake.rc = 0;
	assert_int_equal(fake.cts_count, 2);
	repair_end_pump(&rx.end, 3);
	assert_int_equal(fake.cts_count, 3);
	assert_true(wire_cts_acks(&cts[3].l0) == 2);
	assert_int_equal(fake.ack_count, 1); /* 2 as well was complete when it could be posted */
	assert_true(fake.acks[0].value == 3);
	whole(1, 3, 10);
	assert_int_equal(fake.ack_count, 2);
	assert_int_equal(post(100, &seq), 0);
	assert_true(wire_cts_acks(&cts[4].l0) == 4);
	fake.rc = -EAGAIN;
	whole(1, 4, 10);
	fake.rc = 0;
	assert_int_equal(post(100, &seq), 0); /* carries it */
	repair_end_pump(&rx.end, 3);
	assert_int_equal(fake.ack_count, 2);
}

static void test_whole_done_and_acknowledged(void **state)
{
	uint64_t seq, size = 0;
	uint32_t mask = 0;

	(void)state;
	assert_int_equal(post(777, &seq), 0);
	assert_false(is_done(1, &size, &mask));
	whole(2, 1, 700);
	assert_true(is_done(1, &size, &mask));
	assert_true(size == 700);
	assert_int_equal(mask, 4);
	assert_int_equal(fake.ack_count, 1);
	assert_true(fake.acks[0].value == 2);
}

/* The mask names every path that brought a piece: each of their HCAs is flushed. */
static void test_pieces_over_paths(void **state)
{
	uint64_t seq, size = 0;
	uint32_t mask = 0;

	(void)state;
	assert_int_equal(post(1000, &seq), 0);
	piece(0, 1, 1, 3);
	piece(2, 1, 0, 3);
	assert_false(is_done(1, &size, &mask));
	assert_int_equal(fake.ack_count, 0);
	piece(0, 1, 2, 3);
	assert_true(is_done(1, &size, &mask));
	assert_true(size == 384);
	assert_int_equal(mask, 5);
}

static void test_acks_are_cumulative(void **state)
{
	uint64_t seq;

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(post(100, &seq), 0);
	}
	whole(0, 2, 10);
	whole(0, 3, 10);
	assert_int_equal(fake.ack_count, 0); /* 1 is missing */
	whole(0, 1, 10);
	assert_int_equal(fake.ack_count, 1);
	assert_true(fake.acks[0].value == 4);
	repair_end_pump(&rx.end, 3);
	assert_int_equal(fake.ack_count, 1); /* said once */
}

static void test_window(void **state)
{
	uint64_t seq;

	(void)state;
	for (unsigned int i = 0; i < WINDOW_MSGS; i++) {
		assert_int_equal(post(100, &seq), 0);
	}
	assert_int_equal(post(100, &seq), -EAGAIN);
	whole(0, 2, 1);
	repair_rx_release(&rx, 2);
	assert_int_equal(post(100, &seq), -EAGAIN);
	whole(0, 1, 1);
	assert_int_equal(post(100, &seq), -EAGAIN); /* done, but not reported done */
	repair_rx_release(&rx, 1);
	assert_int_equal(post(100, &seq), 0);
	assert_int_equal(post(100, &seq), 0);
	assert_int_equal(post(100, &seq), -EAGAIN);
}

/* Receives never run short: each path holds one per piece that may be out. */
static void test_receives(void **state)
{
	uint64_t seq;

	(void)state;
	for (unsigned int p = 0; p < 3; p++) {
		assert_in_range(rx.end.paths[p].recvs_out, RECV_WRS, RECV_WRS + 32);
	}
	for (unsigned int i = 1; i <= 200; i++) {
		assert_int_equal(post(100, &seq), 0);
		whole(1, seq, 1);
		repair_rx_release(&rx, seq);
		assert_true(rx.end.paths[1].recvs_out >= RECV_WRS);
	}
}

/* Entries that went over the lost path and that the sender lacks are posted again. */
static void test_entries_again(void **state)
{
	uint64_t seq;

	(void)state;
	assert_int_equal(post(100, &seq), 0);
	assert_int_equal(post(100, &seq), 0);
	whole(1, 1, 10);
	assert_int_equal(fake.cts_count, 2);
	lose(0);
	assert_int_equal(fake.cts_count, 3);
	assert_int_equal(fake.cts[2].value, 2);
	assert_int_equal(fake.cts[2].path, 1);
	assert_int_equal(fake_last_report(REPAIR_REPORT_DOWN)->again_count, 1);
	lose(2); /* carried no entry */
	assert_int_equal(fake.cts_count, 3);
}

/* An acknowledgement that may be lost with its path is not written again: FENCED says it. */
static void test_ack_in_fenced(void **state)
{
	uint64_t seq;

	(void)state;
	assert_int_equal(post(100, &seq), 0);
	whole(1, 1, 10);
	assert_int_equal(fake.acks[0].path, 0);
	lose(0);
	assert_int_equal(fake_last_frame(FRAME_FENCED)->fenced.next_seq, 2);
	assert_int_equal(fake.ack_count, 1);
}

/* What the sender's FENCED says is in its ring, or taken already, is not written a second time. */
static void test_entries_there(void **state)
{
	struct frame_fenced frame = {.path = 0, .epoch = 1, .next_seq = 3};
	uint64_t seq;

	(void)state;
	for (unsigned int i = 0; i < 5; i++) {
		assert_int_equal(post(100, &seq), 0); /* 1 and 2 are taken, 4 is in the ring */
	}
	frame.pieces[1] = 1;
	repair_end_fault(&rx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&rx.end, 0, FENCE_ERRORED, 3);
	fake_complete(&rx.end, fake.markers[0].wr_id, CAUSE_FLUSH, 3);
	fake_flush_recvs(&rx.end, 0, 3);
	repair_end_on_fenced(&rx.end, &frame, 4);
	assert_int_equal(rx.end.paths[0].state, PATH_DOWN);
	assert_int_equal(fake.cts_count, 7);
	assert_int_equal(fake.cts[5].value, 3);
	assert_int_equal(fake.cts[6].value, 5);
	/* The repeated ones go with the path that they are on now, the others are safe. */
	lose(1);
	assert_int_equal(fake.cts_count, 9);
	assert_int_equal(fake.cts[7].value, 3);
	assert_int_equal(fake.cts[8].value, 5);
}

static void test_read_out_at_fence(void **state)
{
	const struct frame *frame;
	uint64_t seq;

	(void)state;
	assert_int_equal(post(1000, &seq), 0);
	assert_int_equal(post(1000, &seq), 0);
	repair_end_fault(&rx.end, 0, CAUSE_PORT_DOWN, 2);
	assert_non_null(fake_last_frame(FRAME_FENCE));
	repair_fence_errored(&rx.end, 0, FENCE_ERRORED, 3);
	assert_null(fake_last_frame(FRAME_FENCED)); /* not before everything is back */
	whole(0, 1, 10);                            /* it was in the CQ: it counts */
	piece(0, 2, 1, 3);
	fake_complete(&rx.end, fake.markers[0].wr_id, CAUSE_FLUSH, 3);
	assert_null(fake_last_frame(FRAME_FENCED));
	fake_flush_recvs(&rx.end, 0, 3);
	frame = fake_last_frame(FRAME_FENCED);
	assert_non_null(frame);
	assert_int_equal(frame->fenced.path, 0);
	assert_int_equal(frame->fenced.epoch, 1);
	assert_true(frame->fenced.next_seq == 2);
	assert_int_equal(frame->fenced.pieces[0], 2);
}

static void test_violations(void **state)
{
	static const struct wire_imm bad[] = {
		{(enum wire_imm_kind)0, 1, 0, 1},                            /* unknown kinds */
		{(enum wire_imm_kind)3, 1, 0, 1}, {WIRE_IMM_WHOLE, 2, 0, 1}, /* another epoch */
		{WIRE_IMM_WHOLE, 1, 0, 2},                                   /* not posted */
		{WIRE_IMM_RECORD, 1, 0, 2},                                  /* not posted */
		{WIRE_IMM_RECORD, 1, 40, 1},                                 /* no such piece */
		{WIRE_IMM_RECORD, 1, 0, 1},                                  /* no record */
	};
	uint64_t seq;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setup(NULL);
		assert_int_equal(post(100, &seq), 0);
		arrive(0, bad[i], 10);
		assert_int_equal(rx.end.failed, CAUSE_PROTOCOL);
		assert_int_equal(post(100, &seq), -EIO);
		assert_non_null(fake_last_report(REPAIR_REPORT_FAILED)->detail);
	}
	setup(NULL);
	assert_int_equal(post(1000, &seq), 0);
	piece(0, 1, 0, 3);
	piece(1, 1, 0, 3); /* twice */
	assert_int_equal(rx.end.failed, CAUSE_PROTOCOL);
	setup(NULL);
	assert_int_equal(post(1000, &seq), 0);
	records[wire_record_idx(1, 0)] = (struct wire_record){
		.seq = 1, .total_bytes = 256, .len_bytes = 128, .epoch = 2, .pieces = 2};
	arrive(0, (struct wire_imm){WIRE_IMM_RECORD, 1, 0, 1}, 40);
	assert_int_equal(rx.end.failed, CAUSE_PROTOCOL); /* record of another epoch */
}

/* A post that fails is the path's; the entry goes over another one after the fence. */
static void test_post_fails(void **state)
{
	uint64_t seq;

	(void)state;
	fake.rc = -EIO;
	assert_int_equal(post(100, &seq), 0);
	assert_int_equal(rx.end.paths[0].state, PATH_FENCING);
	assert_int_equal(fake.cts_count, 1);
	fake.rc = 0;
	lose(0);
	assert_int_equal(fake.cts_count, 2);
	assert_int_equal(fake.cts[1].path, 1);
}

static void test_eagain(void **state)
{
	uint64_t seq;

	(void)state;
	fake.rc = -EAGAIN;
	assert_int_equal(post(100, &seq), 0);
	assert_int_equal(fake.cts_count, 0);
	assert_int_equal(wrq_out(&rx.end.paths[0].sq), 0);
	fake.rc = 0;
	repair_end_pump(&rx.end, 2);
	assert_int_equal(fake.cts_count, 1);
}

/* Without a path entries and acknowledgements wait; an end without paths says so and gives up. */
static void test_no_path(void **state)
{
	uint64_t seq;

	(void)state;
	assert_int_equal(post(100, &seq), 0);
	repair_end_fault(&rx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_end_fault(&rx.end, 1, CAUSE_PORT_DOWN, 2);
	repair_end_fault(&rx.end, 2, CAUSE_PORT_DOWN, 2);
	whole(2, 1, 10); /* was in the CQ */
	assert_int_equal(post(100, &seq), 0);
	assert_int_equal(fake.cts_count, 1);
	assert_int_equal(fake.ack_count, 0);
	assert_true(repair_end_is_repairing(&rx.end));
	repair_end_tick(&rx.end, 10ull * MS);
	assert_non_null(fake_last_report(REPAIR_REPORT_NO_PATH));
	fake_pass(&rx.end, 20, 1200);
	assert_int_equal(rx.end.failed, CAUSE_NO_PATH);
}

/* An acknowledgement that finds the queue full is not lost. */
static void test_ack_eagain(void **state)
{
	uint64_t seq;

	(void)state;
	assert_int_equal(post(100, &seq), 0);
	fake.rc = -EAGAIN;
	whole(1, 1, 10);
	assert_int_equal(fake.ack_count, 0);
	fake.rc = 0;
	repair_end_pump(&rx.end, 3);
	assert_int_equal(fake.ack_count, 1);
	assert_true(fake.acks[0].value == 2);
}

/* A receiver that waits says its word once more, signalled, on each path that is silent. */
static void test_probe_while_waiting(void **state)
{
	uint64_t seq;

	(void)state;
	repair_end_tick(&rx.end, 300ull * MS);
	assert_int_equal(fake.ack_count, 0); /* nothing is owed */
	assert_int_equal(post(100, &seq), 0);
	repair_end_tick(&rx.end, 300ull * MS); /* takes the time of the post, on path 0 */
	assert_int_equal(fake.ack_count, 2);
	repair_end_tick(&rx.end, 500ull * MS);
	assert_int_equal(fake.ack_count, 3);
	for (unsigned int i = 0; i < 3; i++) {
		assert_true(fake.acks[i].signalled);
		assert_int_equal(fake.acks[i].path, (i + 1) % 3);
	}
	repair_end_tick(&rx.end, 600ull * MS);
	assert_int_equal(fake.ack_count, 3);
}

static void test_completed_twice(void **state)
{
	(void)state;
	rx.end.paths[0].recvs_out = 0;
	fake_complete(&rx.end, fake.recv_wr_id[0], CAUSE_NONE, 2);
	assert_int_equal(rx.end.failed, CAUSE_PROTOCOL);
}

/* Posting receives fails half way: those that are posted are reaped, the path is fenced. */
static void test_recvs_fail(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	fake.rc = -ENOMEM;
	fake.rc_path = 1;
	repair_rx_init(&rx, &fake_ops, NULL, &fake_limits, cts, records);
	fake_paths_up(&rx.end, 3);
	assert_int_equal(rx.end.paths[1].state, PATH_FENCING);
	assert_int_equal(rx.end.paths[1].recvs_out, (RECV_WRS + 32) / 2);
	assert_int_equal(rx.end.paths[0].state, PATH_UP);
	repair_fence_errored(&rx.end, 1, FENCE_ERRORED, 3);
	fake_flush_recvs(&rx.end, 1, 3);
	assert_int_equal(rx.end.paths[1].state, PATH_FENCED);
}

/* Queues never fill up with unsignalled writes. */
static void test_some_are_signalled(void **state)
{
	unsigned int since = 0;
	uint64_t seq;

	(void)state;
	for (unsigned int i = 0; i < 100; i++) {
		assert_int_equal(post(100, &seq), 0);
		whole(1, seq, 1);
		repair_rx_release(&rx, seq);
	}
	for (unsigned int i = 0; i < fake.cts_count; i++) {
		since = fake.cts[i].signalled || fake.acks[i].signalled ? 0 : since + 1;
		assert_true(since < 16);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_entry, setup),
		cmocka_unit_test_setup(test_entry_acknowledges, setup),
		cmocka_unit_test_setup(test_whole_done_and_acknowledged, setup),
		cmocka_unit_test_setup(test_pieces_over_paths, setup),
		cmocka_unit_test_setup(test_acks_are_cumulative, setup),
		cmocka_unit_test_setup(test_window, setup),
		cmocka_unit_test_setup(test_receives, setup),
		cmocka_unit_test_setup(test_entries_again, setup),
		cmocka_unit_test_setup(test_ack_in_fenced, setup),
		cmocka_unit_test_setup(test_entries_there, setup),
		cmocka_unit_test_setup(test_read_out_at_fence, setup),
		cmocka_unit_test_setup(test_violations, setup),
		cmocka_unit_test_setup(test_post_fails, setup),
		cmocka_unit_test_setup(test_eagain, setup),
		cmocka_unit_test_setup(test_recvs_fail, setup),
		cmocka_unit_test_setup(test_no_path, setup),
		cmocka_unit_test_setup(test_ack_eagain, setup),
		cmocka_unit_test_setup(test_probe_while_waiting, setup),
		cmocka_unit_test_setup(test_completed_twice, setup),
		cmocka_unit_test_setup(test_some_are_signalled, setup),
	};

	log_sink_set(fake_sink);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
