/* SPDX-License-Identifier: Apache-2.0 */

/* Which acknowledgements wait for a clear-to-send entry, and until when (repair/ack.h). */

#include "test/unit/fake_ops.h"

static struct repair_rx rx;
static struct wire_cts cts[WINDOW_MSGS];
static struct wire_record records[WIRE_RECORDS];

static void post(void)
{
	struct repair_recv recv = {.addr = 0x5000, .size_bytes = 1 << 20, .key_mask = 7};
	uint64_t seq;

	assert_int_equal(repair_rx_recv(&rx, &recv, 1, &seq), 0);
}

static void arrive(uint32_t len)
{
	struct wire_imm imm = {WIRE_IMM_WHOLE, 1, 0, (uint16_t)rx.book.next_seq};
	struct repair_wc wc = {
		.wr_id = fake.recv_wr_id[0], .imm = wire_imm_pack(imm), .len_bytes = len};

	repair_end_completed(&rx.end, &wc, 2);
	repair_end_pump(&rx.end, 2);
	repair_rx_release(&rx, rx.book.next_seq - 1);
}

/* One message after the other, each receive posted as soon as the last one is done. */
static void stream(unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		arrive(100);
		post();
	}
}

static bool waits(void)
{
	return rx.book.next_seq > rx.acked_seq;
}

/* Three paths, one receive posted. */
static int setup(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	fake.acks_wait = true;
	repair_rx_init(&rx, &fake_ops, NULL, &fake_limits, cts, records);
	fake_paths_up(&rx.end, 3);
	post();
	return 0;
}

/* With the entries of the next receives, from the first one on. */
static void test_entries_carry(void **state)
{
	(void)state;
	arrive(100);
	assert_true(waits());
	assert_int_equal(fake.later_count, 1);
	post();
	assert_false(waits());
	stream(100);
	assert_int_equal(fake.ack_count, 0);
	assert_int_equal(fake.later_count, 1); /* it is on the list */
	assert_true(wire_cts_acks(&cts[wire_slot(rx.book.posted_seq - 1)].l0) == rx.acked_seq);
}

/* Where nobody would call nothing waits. */
static void test_no_rounds(void **state)
{
	(void)state;
	fake.acks_wait = false;
	for (unsigned int i = 1; i < 20; i++) {
		stream(1);
		assert_int_equal(fake.ack_count, i);
	}
}

/* A word covers what came in a row, before the sender's window is full. */
static void test_many(void **state)
{
	(void)state;
	for (unsigned int i = 1; i < ACK_MSGS_MAX; i++) {
		post();
	}
	for (unsigned int i = 1; i < ACK_MSGS_MAX; i++) {
		arrive(100);
		assert_int_equal(fake.ack_count, 0);
	}
	arrive(100);
	assert_int_equal(fake.ack_count, 1);
	assert_true(fake.acks[0].value == rx.book.next_seq);
}

/* Nobody has to be asked to post anything while all that is left may wait. */
static void test_calm(void **state)
{
	(void)state;
	assert_true(repair_rx_is_calm(&rx));
	arrive(100);
	assert_true(repair_rx_is_calm(&rx));
	fake.rc = -EAGAIN;
	post();
	assert_false(repair_rx_is_calm(&rx)); /* its entry is wanted */
	fake.rc = 0;
	repair_end_pump(&rx.end, 3);
	assert_true(repair_rx_is_calm(&rx));
	fake.acks_wait = false;
	assert_false(repair_rx_ack_round(&rx, true, 3));
	fake.rc = -EAGAIN;
	arrive(100);
	assert_false(repair_rx_is_calm(&rx)); /* it may not wait */
}

/* Of large ones few. */
static void test_large(void **state)
{
	(void)state;
	for (unsigned int i = 1; i < ACK_MSGS_MAX; i++) {
		post();
	}
	for (unsigned int i = 1; i < ACK_LARGE_MAX + 1; i++) {
		arrive((uint32_t)fake_limits.ack_large_bytes);
	}
	assert_int_equal(fake.ack_count, 0);
	arrive((uint32_t)fake_limits.ack_large_bytes + 1);
	assert_int_equal(fake.ack_count, 1);
	for (unsigned int i = 1; i < ACK_LARGE_MAX; i++) {
		arrive((uint32_t)fake_limits.ack_large_bytes + 1);
		assert_true(waits());
	}
	arrive((uint32_t)fake_limits.ack_large_bytes + 1);
	assert_false(waits());
	assert_int_equal(fake.ack_count, 2);
}

/* One that comes in pieces is one, and as large with its last piece as with its first. */
static void test_large_in_pieces(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 3 * ACK_LARGE_MAX; i++) {
		uint64_t seq = rx.book.next_seq;
		unsigned int piece = i % 3;
		struct wire_imm imm = {WIRE_IMM_RECORD, 1, (uint8_t)piece, (uint16_t)seq};
		struct repair_wc wc = {.wr_id = fake.recv_wr_id[0], .imm = wire_imm_pack(imm)};

		if (i == 0) {
			post();
		}
		records[wire_record_idx(seq, piece)] =
			(struct wire_record){.seq = seq,
					     .total_bytes = 3072,
					     .offset_bytes = piece * 1024u,
					     .len_bytes = 1024,
					     .epoch = 1,
					     .piece = (uint16_t)piece,
					     .pieces = 3};
		repair_end_completed(&rx.end, &wc, 2);
		repair_end_pump(&rx.end, 2);
		assert_int_equal(fake.ack_count, i == 3 * ACK_LARGE_MAX - 1);
	}
}

/* What has waited for a whole round leaves. */
static void test_rounds(void **state)
{
	(void)state;
	arrive(100);
	post(); /* carries it */
	arrive(100);
	assert_true(repair_rx_ack_round(&rx, false, 3)); /* another one, since a moment ago */
	assert_int_equal(fake.ack_count, 0);
	assert_false(repair_rx_ack_round(&rx, false, 4));
	assert_int_equal(fake.ack_count, 1);
	assert_false(waits());
	post();
	arrive(100);
	assert_int_equal(fake.later_count, 2); /* on the list again, and nothing came since */
	assert_false(repair_rx_ack_round(&rx, false, 5));
	assert_int_equal(fake.ack_count, 2);
}

/* Nobody calls for long: all leaves. */
static void test_last_round(void **state)
{
	(void)state;
	arrive(100);
	post();
	arrive(100);
	assert_false(repair_rx_ack_round(&rx, true, 3));
	assert_int_equal(fake.ack_count, 1);
	assert_false(waits());
}

static void test_rounds_end(void **state)
{
	(void)state;
	arrive(100);
	post();
	assert_false(repair_rx_ack_round(&rx, false, 3));
	assert_int_equal(fake.ack_count, 0);
	arrive(100);
	assert_int_equal(fake.later_count, 2); /* on the list again */
}

/* A round that finds no room leaves it to the next one. */
static void test_round_finds_no_room(void **state)
{
	(void)state;
	arrive(100);
	fake.rc = -EAGAIN;
	assert_true(repair_rx_ack_round(&rx, false, 3));
	assert_true(waits());
	fake.rc = 0;
	repair_end_pump(&rx.end, 4);
	assert_true(waits()); /* it is on the list */
	assert_false(repair_rx_ack_round(&rx, false, 5));
	assert_false(waits());
}

/* A failed comm asks for no more rounds. */
static void test_round_of_failed(void **state)
{
	(void)state;
	arrive(100);
	repair_end_fail(&rx.end, CAUSE_PROTOCOL, PATHS_MAX, "a test");
	assert_false(repair_rx_ack_round(&rx, false, 3));
	assert_int_equal(fake.ack_count, 0);
}

/* What waits when a path is lost is in the book that is read out. */
static void test_fenced_says_it(void **state)
{
	(void)state;
	arrive(100);
	assert_true(waits());
	repair_end_fault(&rx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&rx.end, 0, FENCE_ERRORED, 3);
	fake_complete(&rx.end, fake.markers[fake.marker_count - 1].wr_id, CAUSE_FLUSH, 3);
	fake_flush_recvs(&rx.end, 0, 3);
	assert_true(fake_last_frame(FRAME_FENCED)->fenced.next_seq == rx.book.next_seq);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_entries_carry, setup),
		cmocka_unit_test_setup(test_no_rounds, setup),
		cmocka_unit_test_setup(test_many, setup),
		cmocka_unit_test_setup(test_calm, setup),
		cmocka_unit_test_setup(test_large, setup),
		cmocka_unit_test_setup(test_large_in_pieces, setup),
		cmocka_unit_test_setup(test_rounds, setup),
		cmocka_unit_test_setup(test_last_round, setup),
		cmocka_unit_test_setup(test_rounds_end, setup),
		cmocka_unit_test_setup(test_round_finds_no_room, setup),
		cmocka_unit_test_setup(test_round_of_failed, setup),
		cmocka_unit_test_setup(test_fenced_says_it, setup),
	};

	log_sink_set(fake_sink);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
