/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/rejoin.h"
#include "test/unit/fake_ops.h"

/* A path comes back on a HCA that was opened again: which keys count from then on. */

static struct repair_tx tx;
static struct repair_rx rx;
static struct wire_cts cts[WINDOW_MSGS];
static struct wire_ack acks[PATHS_MAX];
static struct wire_record records[WIRE_RECORDS];
static uint8_t probes[2][PATHS_MAX * WIRE_PROBE_BYTES];
static uint8_t payload[64];

static void op_rebuild(void *ctx, unsigned int path, uint32_t epoch)
{
	(void)ctx;
	(void)path;
	(void)epoch;
}

static void op_join(void *ctx, unsigned int path, uint32_t epoch, const struct path_side *peer)
{
	(void)ctx;
	(void)path;
	(void)epoch;
	(void)peer;
}

static int op_probe(void *ctx, unsigned int path, uint64_t wr_id)
{
	(void)ctx;
	return fake_note(fake.markers, &fake.marker_count,
			 (struct fake_post){.path = path, .wr_id = wr_id});
}

static int setup(void **state)
{
	static struct repair_ops ops;
	struct repair_limits limits = fake_limits;

	(void)state;
	ops = fake_ops;
	ops.rebuild = op_rebuild;
	ops.join = op_join;
	ops.post_probe = op_probe;
	limits.rejoin_min_ms = 1;
	limits.rejoin_max_ms = 10;
	memset(&fake, 0, sizeof(fake));
	memset(cts, 0, sizeof(cts));
	repair_tx_init(&tx, &ops, NULL, &limits, cts, acks);
	repair_rx_init(&rx, &ops, NULL, &limits, cts, records);
	for (unsigned int i = 0; i < 2; i++) {
		struct repair_end *end = i ? &rx.end : &tx.end;

		end->probes_in = probes[0];
		end->probes_out = probes[1];
		fake_paths_up(end, 2);
	}
	return 0;
}

/* Path 1 of an end goes down; time is short, so that no clock strikes. */
static void take_down(struct repair_end *end, uint64_t next_seq)
{
	repair_end_fault(end, 1, CAUSE_DEVICE_FATAL, 2);
	repair_fence_errored(end, 1, FENCE_DEAD, 3);
	fake_peer_fenced(end, 1, 1, next_seq);
	assert_int_equal(end->paths[1].state, PATH_DOWN);
	end->paths[1].rejoin.is_busy = true; /* the job that is told to rebuild it */
}

static void clear_to_send(uint64_t seq, uint32_t key_mask)
{
	struct wire_cts *entry = &cts[wire_slot(seq)];

	memset(entry, 0, sizeof(*entry));
	entry->l0 = (struct wire_cts_line0){.addr = 0x1000,
					    .size_bytes = 64,
					    .rkeys = {100, 101},
					    .key_mask = (uint16_t)key_mask,
					    .seq = seq};
	entry->l0.behind = (uint16_t)(seq - 1);
	entry->l0.check = wire_line_check(&entry->l0);
}

static void send_one(void *cookie, uint32_t key_mask)
{
	struct repair_send send = {.cookie = cookie,
				   .addr = (uint64_t)payload,
				   .size_bytes = cookie ? 64 : 0,
				   .key_mask = key_mask};
	uint64_t seq;

	assert_int_equal(repair_tx_send(&tx, &send, 4, &seq), 0);
}

/* The receiver's answer: seq 1 to 4 are open there, 3 is not registered any more. */
static void hear_answer(uint32_t key_count)
{
	struct path_side side = {.qp = {.qpn = 7}, .rail = {.port = 1}};
	struct frame frame = {.type = FRAME_REJOINED};

	repair_rejoin_built(&tx.end, 1, 2, 0, &side, 5);
	frame.rejoin = (struct frame_rejoin){.path = 1,
					     .epoch = 2,
					     .side = {.qp = {.qpn = 9}, .rail = {.port = 1}},
					     .keys_seq = 1,
					     .key_count = key_count,
					     .key_mask = 0xb,
					     .keys = {201, 202, 203, 204}};
	repair_rejoin_on_frame(&tx.end, &frame, 6);
}

/* On hand, still to come, not registered at one end or the other. */
static void test_sender(void **state)
{
	(void)state;
	for (uint64_t seq = 1; seq <= 5; seq++) {
		clear_to_send(seq, seq == 4 ? 1 : 3);
	}
	send_one(payload, 3); /* taken with the keys of its entry */
	send_one(NULL, 0);    /* nothing in it: any path, whatever is registered */
	take_down(&tx.end, 1);
	send_one(payload, 3);
	hear_answer(4);
	assert_int_equal(tx.end.failed, CAUSE_NONE);
	assert_int_equal(tx.msgs[1].rkeys[1], 201);
	assert_int_equal(tx.msgs[1].rkeys[0], 100);
	assert_int_equal(tx.msgs[1].key_mask, 3);
	assert_int_equal(tx.msgs[2].key_mask, UINT32_MAX);
	assert_int_equal(tx.msgs[3].key_mask, 1);
	send_one(payload, 3); /* its entry is of before, and did not have path 1 */
	assert_int_equal(tx.msgs[4].rkeys[1], 204);
	assert_int_equal(tx.msgs[4].key_mask, 3);
	send_one(payload, 3); /* posted after the answer was read out */
	assert_int_equal(tx.msgs[5].rkeys[1], 101);
	assert_int_equal(tx.msgs[5].key_mask, 3);
}

/* This end's own memory could not be registered on the new device. */
static void test_sender_has_none(void **state)
{
	(void)state;
	clear_to_send(1, 3);
	clear_to_send(2, 3);
	send_one(payload, 3);
	take_down(&tx.end, 1);
	fake.no_key_mask = 2;
	hear_answer(2);
	assert_int_equal(tx.msgs[1].key_mask, 1);
	send_one(payload, 1);
	assert_int_equal(tx.msgs[2].rkeys[1], 202);
	assert_int_equal(tx.msgs[2].key_mask, 1);
}

static void test_too_many(void **state)
{
	(void)state;
	take_down(&tx.end, 1);
	hear_answer(WINDOW_MSGS + 1);
	assert_int_equal(tx.end.failed, CAUSE_PROTOCOL);
}

static void post_recv(uintptr_t cookie)
{
	struct repair_recv recv = {.cookie = (void *)cookie,
				   .addr = 0x1000,
				   .size_bytes = cookie ? 64 : 0,
				   .key_mask = cookie ? 3 : 0,
				   .rkeys = {100, 101}};
	uint64_t seq;

	assert_int_equal(repair_rx_recv(&rx, &recv, 1, &seq), 0);
}

static void arrive(uint16_t seq)
{
	struct repair_wc wc = {.wr_id = fake.recv_wr_id[0],
			       .imm = wire_imm_pack((struct wire_imm){WIRE_IMM_WHOLE, 1, 0, seq}),
			       .len_bytes = 64};

	repair_end_completed(&rx.end, &wc, 2);
}

/* Those that are not complete, with the keys of the moment in which the frame leaves. */
static void test_receiver(void **state)
{
	struct path_side side = {.qp = {.qpn = 7}, .rail = {.port = 1}, .ring_rkey = 77};
	struct frame offer = {.type = FRAME_REJOIN};
	const struct frame *answer;

	(void)state;
	post_recv(11);
	post_recv(12);
	post_recv(0);
	arrive(1);
	take_down(&rx.end, 1);
	offer.rejoin = (struct frame_rejoin){.path = 1, .epoch = 2, .side = side};
	rx.end.paths[1].rejoin.is_busy = false;
	repair_rejoin_on_frame(&rx.end, &offer, 5);
	repair_rejoin_built(&rx.end, 1, 2, 0, &side, 6);
	fake.key_base = 500;
	fake.send_rc = -ENOBUFS; /* it leaves later */
	repair_rejoin_joined(&rx.end, 1, 2, 0, 7);
	assert_null(fake_last_frame(FRAME_REJOINED));
	post_recv(14);
	fake.key_base = 1000;
	fake.send_rc = 0;
	repair_end_tick(&rx.end, 8);
	answer = fake_last_frame(FRAME_REJOINED);
	assert_non_null(answer);
	assert_int_equal(answer->rejoin.side.ring_rkey, 77);
	assert_int_equal(answer->rejoin.keys_seq, 2);
	assert_int_equal(answer->rejoin.key_count, 3);
	assert_int_equal(answer->rejoin.key_mask, 5); /* seq 3 is empty */
	assert_int_equal(answer->rejoin.keys[0], 1012);
	assert_int_equal(answer->rejoin.keys[2], 1014);
	/* the entries are what they were */
	assert_int_equal(cts[2].l0.rkeys[1], 101);
	assert_int_equal(cts[2].l0.check, wire_line_check(&cts[2].l0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_sender, setup),
		cmocka_unit_test_setup(test_sender_has_none, setup),
		cmocka_unit_test_setup(test_too_many, setup),
		cmocka_unit_test_setup(test_receiver, setup),
	};

	log_sink_set(fake_sink);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
