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

/* What was posted has been sent. */
static void complete_all(void)
{
	for (unsigned int i = 0; i < fake.cts_count + fake.ack_count; i++) {
		const struct fake_post *log =
			i < fake.cts_count ? &fake.cts[i] : &fake.acks[i - fake.cts_count];

		if (log->signalled && wrq_knows(&rx.end.paths[0].sq, (uint32_t)log->wr_id)) {
			fake_complete(&rx.end, log->wr_id, CAUSE_NONE, 2);
		}
	}
	fake.cts_count = 0;
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

/* Three paths, one receive posted, and as many messages as are acknowledged at once at first. */
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

static int setup_streaming(void **state)
{
	setup(state);
	stream(fake_limits.ack_eager_min);
	assert_int_equal(fake.ack_count, fake_limits.ack_eager_min);
	fake.ack_count = 0;
	return 0;
}

/* At once until there is a stream, then with the entries. */
static void test_entries_take_over(void **state)
{
	(void)state;
	for (unsigned int i = 1; i <= fake_limits.ack_eager_min; i++) {
		stream(1);
		assert_int_equal(fake.ack_count, i);
		assert_int_equal(fake.later_count, 0);
	}
	arrive(100);
	assert_true(waits());
	assert_int_equal(fake.later_count, 1);
	post();
	assert_false(waits());
	stream(100);
	assert_int_equal(fake.ack_count, fake_limits.ack_eager_min);
	assert_int_equal(fake.later_count, 1); /* it is on the list */
	assert_true(wire_cts_acks(&cts[wire_slot(rx.book.posted_seq - 1)].l0) == rx.acked_seq);
}

/* Without a timer nothing waits. */
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

/* NCCL asks for other receives and posts none. */
static void test_polls(void **state)
{
	(void)state;
	for (unsigned int round = 1; round < 3; round++) {
		arrive(100);
		for (unsigned int i = 1; i < ACK_POLLS_MAX - 1; i++) {
			repair_end_pump(&rx.end, 3);
			assert_int_equal(fake.ack_count, round - 1);
		}
		repair_end_pump(&rx.end, 3);
		assert_int_equal(fake.ack_count, round);
		post();
	}
	assert_int_equal(rx.pace.eager_left, 0); /* nobody had to wait long */
}

/* Nobody has to be asked to post anything while all that is left may wait. */
static void test_calm(void **state)
{
	(void)state;
	assert_true(repair_rx_is_calm(&rx));
	arrive(100);
	assert_true(repair_rx_is_calm(&rx));
	for (unsigned int i = 1; repair_rx_is_calm(&rx); i++) {
		assert_in_range(i, 1, ACK_POLLS_MAX);
	}
	repair_end_pump(&rx.end, 3);
	assert_int_equal(fake.ack_count, 1);
	fake.rc = -EAGAIN;
	post();
	assert_false(repair_rx_is_calm(&rx)); /* its entry is wanted */
	fake.rc = 0;
	repair_end_pump(&rx.end, 3);
	assert_true(repair_rx_is_calm(&rx));
	rx.pace.eager_left = 1;
	fake.rc = -EAGAIN;
	arrive(100);
	assert_false(repair_rx_is_calm(&rx)); /* it may not wait */
}

static void test_large(void **state)
{
	(void)state;
	arrive((uint32_t)fake_limits.ack_wait_bytes);
	assert_true(waits());
	post();
	arrive((uint32_t)fake_limits.ack_wait_bytes + 1);
	assert_false(waits());
	assert_int_equal(fake.ack_count, 1);
	post();
	arrive(100);
	assert_true(waits());
}

/* A large one that comes in pieces is as large with its last piece as with its first. */
static void test_large_in_pieces(void **state)
{
	uint64_t seq = rx.book.next_seq;

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		struct wire_imm imm = {WIRE_IMM_RECORD, 1, (uint8_t)i, (uint16_t)seq};
		struct repair_wc wc = {.wr_id = fake.recv_wr_id[0], .imm = wire_imm_pack(imm)};

		records[wire_record_idx(seq, i)] = (struct wire_record){.seq = seq,
									.total_bytes = 3072,
									.offset_bytes = i * 1024u,
									.len_bytes = 1024,
									.epoch = 1,
									.piece = (uint16_t)i,
									.pieces = 3};
		repair_end_completed(&rx.end, &wc, 2);
		repair_end_pump(&rx.end, 2);
		assert_int_equal(fake.ack_count, i == 2);
	}
}

/* Nobody calls: the second round finds what the first had seen. */
static void test_rounds(void **state)
{
	(void)state;
	arrive(100);
	assert_true(repair_rx_ack_round(&rx, 3));
	assert_int_equal(fake.ack_count, 0);
	post(); /* carries it */
	arrive(100);
	assert_true(repair_rx_ack_round(&rx, 4)); /* another one */
	assert_int_equal(fake.ack_count, 0);
	assert_false(repair_rx_ack_round(&rx, 5));
	assert_int_equal(fake.ack_count, 1);
	assert_false(waits());
}

static void test_rounds_end(void **state)
{
	(void)state;
	arrive(100);
	post();
	assert_false(repair_rx_ack_round(&rx, 3));
	assert_int_equal(fake.ack_count, 0);
	arrive(100);
	assert_int_equal(fake.later_count, 2); /* on the list again */
}

static void wait_in_vain(void)
{
	arrive(100);
	assert_true(waits());
	while (repair_rx_ack_round(&rx, 3)) {
	}
	assert_false(waits());
	post();
	fake.ack_count = 0;
}

/* Each wait in vain doubles how many leave at once, up to the bound. */
static void test_in_vain(void **state)
{
	static const unsigned int eager[] = {4, 8, 16, 16};

	(void)state;
	for (size_t i = 0; i < sizeof(eager) / sizeof(eager[0]); i++) {
		wait_in_vain();
		stream(eager[i]);
		assert_int_equal(fake.ack_count, eager[i]);
	}
	/* A stream that pays makes up for them. */
	for (unsigned int i = 0; i < ACK_WORTH; i++) {
		stream(1);
		complete_all();
	}
	assert_int_equal(fake.ack_count, eager[3]);
	wait_in_vain();
	stream(eager[0]);
	assert_int_equal(fake.ack_count, eager[0]);
	arrive(100);
	assert_true(waits());
}

/* A round that finds no room leaves it to the pump. */
static void test_round_finds_no_room(void **state)
{
	(void)state;
	arrive(100);
	assert_true(repair_rx_ack_round(&rx, 3));
	fake.rc = -EAGAIN;
	assert_false(repair_rx_ack_round(&rx, 4));
	assert_true(waits());
	fake.rc = 0;
	repair_end_pump(&rx.end, 5);
	assert_false(waits());
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
		cmocka_unit_test_setup(test_entries_take_over, setup),
		cmocka_unit_test_setup(test_no_rounds, setup),
		cmocka_unit_test_setup(test_many, setup_streaming),
		cmocka_unit_test_setup(test_polls, setup_streaming),
		cmocka_unit_test_setup(test_calm, setup_streaming),
		cmocka_unit_test_setup(test_large, setup_streaming),
		cmocka_unit_test_setup(test_large_in_pieces, setup_streaming),
		cmocka_unit_test_setup(test_rounds, setup_streaming),
		cmocka_unit_test_setup(test_rounds_end, setup_streaming),
		cmocka_unit_test_setup(test_in_vain, setup_streaming),
		cmocka_unit_test_setup(test_round_finds_no_room, setup_streaming),
		cmocka_unit_test_setup(test_fenced_says_it, setup_streaming),
	};

	log_sink_set(fake_sink);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
