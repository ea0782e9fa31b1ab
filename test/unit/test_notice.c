/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/notice.h"
#include "repair/rejoin.h"
#include "test/unit/fake_ops.h"

#include <errno.h>

/* What the link refuses is told later, in order, or not at all when it has become pointless. */
static struct repair_tx tx;
static struct wire_cts cts[WINDOW_MSGS];
static struct wire_ack acks[PATHS_MAX];
static uint8_t probes[2][PATHS_MAX * WIRE_PROBE_BYTES];
static unsigned int rebuild_count;

static void note_rebuild(void *ctx, unsigned int path, uint32_t epoch)
{
	(void)ctx;
	(void)path;
	(void)epoch;
	rebuild_count++;
}

static int setup(void **state)
{
	static struct repair_ops ops;
	struct repair_limits limits = fake_limits;

	(void)state;
	ops = fake_ops;
	ops.rebuild = note_rebuild;
	limits.rejoin_min_ms = 1;
	limits.rejoin_max_ms = 10;
	memset(&fake, 0, sizeof(fake));
	memset(cts, 0, sizeof(cts));
	memset(acks, 0, sizeof(acks));
	rebuild_count = 0;
	repair_tx_init(&tx, &ops, NULL, &limits, cts, acks);
	tx.end.probes_in = probes[0];
	tx.end.probes_out = probes[1];
	fake_paths_up(&tx.end, 2);
	return 0;
}

static void fence_own_end(void)
{
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
}

/* FENCE is told again as long as the own fence is under way. */
static void test_fence_again(void **state)
{
	(void)state;
	fake.send_rc = -ENOBUFS;
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	assert_int_equal(fake.frame_count, 0);
	repair_end_tick(&tx.end, 1ull * MS);
	assert_int_equal(fake.frame_count, 0);
	fake.send_rc = 0;
	repair_end_tick(&tx.end, 2ull * MS);
	repair_end_tick(&tx.end, 3ull * MS);
	assert_int_equal(fake.frame_count, 1);
	assert_int_equal(fake.frames[0].type, FRAME_FENCE);
	assert_int_equal(fake.frames[0].fence.epoch, 1);
	assert_int_equal(fake.frames[0].fence.cause, CAUSE_PORT_DOWN);
}

/* Both are owed: FENCED says it all. */
static void test_fenced_replaces_fence(void **state)
{
	(void)state;
	fake.send_rc = -ENOMEM;
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	fence_own_end();
	assert_int_equal(tx.end.paths[0].state, PATH_FENCED);
	fake.send_rc = 0;
	repair_end_tick(&tx.end, 1ull * MS);
	assert_int_equal(fake.frame_count, 1);
	assert_int_equal(fake.frames[0].type, FRAME_FENCED);
	assert_int_equal(fake.frames[0].fenced.cause, CAUSE_PORT_DOWN);
}

/* The peer was first, so this end goes DOWN and raises its epoch while it still owes FENCED. */
static void go_down_owing(void)
{
	fake_peer_fenced(&tx.end, 0, 1, 1);
	fake.send_rc = -ENOBUFS;
	fence_own_end();
	assert_int_equal(tx.end.paths[0].state, PATH_DOWN);
	assert_int_equal(tx.end.paths[0].epoch, 2);
	assert_int_equal(fake.frame_count, 0);
}

static void test_fenced_keeps_its_epoch(void **state)
{
	(void)state;
	go_down_owing();
	assert_true(repair_end_is_repairing(&tx.end));
	fake.send_rc = 0;
	repair_end_tick(&tx.end, 1);
	assert_int_equal(fake.frame_count, 1);
	assert_int_equal(fake.frames[0].type, FRAME_FENCED);
	assert_int_equal(fake.frames[0].fenced.epoch, 1);
	assert_int_equal(fake.frames[0].fenced.cause, CAUSE_PORT_DOWN);
	assert_false(repair_end_is_repairing(&tx.end));
}

/* An offer of the new epoch means nothing to a peer that has not had the end of the old one. */
static void test_offer_waits_for_fenced(void **state)
{
	struct path_side side = {.qp = {.qpn = 77}, .rail = {.port = 1}, .ring_rkey = 5};

	(void)state;
	go_down_owing();
	repair_end_tick(&tx.end, 20ull * MS);
	assert_int_equal(rebuild_count, 1);
	repair_rejoin_built(&tx.end, 0, 2, 0, &side, 21ull * MS);
	assert_int_equal(fake.frame_count, 0);
	fake.send_rc = 0;
	repair_end_tick(&tx.end, 22ull * MS);
	assert_int_equal(fake.frame_count, 2);
	assert_int_equal(fake.frames[0].type, FRAME_FENCED);
	assert_int_equal(fake.frames[1].type, FRAME_REJOIN);
	assert_int_equal(fake.frames[1].rejoin.epoch, 2);
	assert_int_equal(fake.frames[1].rejoin.side.qp.qpn, 77);
	assert_int_equal(fake.frames[1].rejoin.side.ring_rkey, 5);
	repair_end_tick(&tx.end, 23ull * MS);
	assert_int_equal(fake.frame_count, 2);
}

/* A peer that is gone is no reason to try again. */
static void test_gone(void **state)
{
	(void)state;
	fake.send_rc = -EPIPE;
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	fake.send_rc = 0;
	repair_end_tick(&tx.end, 1ull * MS);
	assert_int_equal(fake.frame_count, 0);
}

/* A peer that goes on without FENCED breaks the protocol: there is no room to owe two. */
static void test_hostile(void **state)
{
	(void)state;
	go_down_owing();
	fake_peer_fence(&tx.end, 0, 2, 5);
	assert_int_equal(tx.end.failed, CAUSE_PROTOCOL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_fence_again, setup),
		cmocka_unit_test_setup(test_fenced_replaces_fence, setup),
		cmocka_unit_test_setup(test_fenced_keeps_its_epoch, setup),
		cmocka_unit_test_setup(test_offer_waits_for_fenced, setup),
		cmocka_unit_test_setup(test_gone, setup),
		cmocka_unit_test_setup(test_hostile, setup),
	};

	log_sink_set(fake_sink);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
