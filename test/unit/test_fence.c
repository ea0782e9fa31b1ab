/* SPDX-License-Identifier: Apache-2.0 */
#include "test/unit/fake_ops.h"

/*
 * The steps of repair/fence.h in every order in which two ends and a link can bring them. A sender
 * stands for both ends where the role does not matter.
 */
static struct repair_tx tx;
static struct wire_cts cts[WINDOW_MSGS];
static struct wire_ack acks[PATHS_MAX];
static uint8_t payload[4096];

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

/* One send on path 0, so that something is out. */
static void send_one(void)
{
	struct repair_send send = {
		.cookie = payload, .addr = (uint64_t)payload, .size_bytes = 100, .key_mask = 3};
	uint64_t seq = tx.next_seq;
	struct wire_cts *entry = &cts[wire_slot(seq)];

	entry->l0.size_bytes = 100;
	entry->l0.key_mask = 3;
	entry->l0.seq = seq;
	entry->l0.check = wire_line_check(&entry->l0);
	assert_int_equal(repair_tx_send(&tx, &send, 1, &seq), 0);
	assert_int_equal(fake.pieces[fake.piece_count - 1].path, 0);
}

static enum path_state state_of(unsigned int path)
{
	return tx.end.paths[path].state;
}

/* The marker of path p's fence comes back, flushed; a probe is a marker too, on another path. */
static void reap_path(unsigned int p)
{
	uint64_t marker_wr_id = 0;

	for (unsigned int i = 0; i < fake.marker_count; i++) {
		if (fake.markers[i].path == p) {
			marker_wr_id = fake.markers[i].wr_id;
		}
	}
	fake_complete(&tx.end, marker_wr_id, CAUSE_FLUSH, 4);
}

static void reap(void)
{
	reap_path(0);
}

static unsigned int frames_of(enum frame_type type)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < fake.frame_count; i++) {
		count += fake.frames[i].type == type;
	}
	return count;
}

/* The four things that happen to a fencing end, by letter, in any order that can come up:
 * n: the peer's FENCE, e: own QP in ERR, r: everything reaped, f: the peer's FENCED. */
static void play(const char *order)
{
	send_one();
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	assert_int_equal(state_of(0), PATH_FENCING);
	for (; *order; order++) {
		switch (*order) {
		case 'n':
			fake_peer_fence(&tx.end, 0, 1, 3);
			break;
		case 'e':
			repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
			break;
		case 'r':
			reap();
			break;
		case 'f':
			fake_peer_fenced(&tx.end, 0, 1, 1);
			break;
		}
	}
	assert_false(tx.end.failed);
	assert_int_equal(state_of(0), PATH_DOWN);
	assert_int_equal(tx.end.paths[0].epoch, 2);
	assert_int_equal(fake.fence_count, 1);
	assert_int_equal(frames_of(FRAME_FENCE), 1);
	assert_int_equal(frames_of(FRAME_FENCED), 1);
	assert_int_equal(fake.piece_count, 2); /* replayed once */
	assert_int_equal(fake.pieces[1].path, 1);
	assert_non_null(fake_last_report(REPAIR_REPORT_DOWN));
	assert_false(repair_end_is_repairing(&tx.end));
}

static void test_orders(void **state)
{
	static const char *const orders[] = {"erf",    "efr",   "fer",  "ernf", "enrf", "nerf",
					     "nefr",   "nfer",  "enfr", "efnr", "fner", "fenr",
					     "nenrfn", "neffr", "ffer", "efrn", "erff", "nnerff"};

	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		setup(state);
		play(orders[i]);
	}
}

/* The peer begins: this end follows with the peer's cause. */
static void test_peer_begins(void **state)
{
	(void)state;
	fake_peer_fence(&tx.end, 0, 1, 2);
	assert_int_equal(state_of(0), PATH_FENCING);
	assert_int_equal(fake_last_report(REPAIR_REPORT_FAULT)->cause, CAUSE_PORT_DOWN);
	assert_true(fake_last_report(REPAIR_REPORT_FAULT)->cause_is_peer);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3); /* nothing out: no marker */
	assert_int_equal(fake.marker_count, 0);
	assert_int_equal(state_of(0), PATH_FENCED);
}

/* The notice was lost, FENCED comes first. */
static void test_fenced_first(void **state)
{
	(void)state;
	fake_peer_fenced(&tx.end, 0, 1, 1);
	assert_int_equal(state_of(0), PATH_FENCING_HEARD);
	assert_int_equal(frames_of(FRAME_FENCE), 0); /* it need not be told */
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	assert_int_equal(state_of(0), PATH_DOWN);
	assert_int_equal(frames_of(FRAME_FENCED), 1);
}

/* An older epoch is ignored in every state; a newer one, or no such path, fails the comm. */
static void test_stale_and_impossible(void **state)
{
	(void)state;
	play("erf");
	fake_peer_fence(&tx.end, 0, 1, 5);
	fake_peer_fenced(&tx.end, 0, 1, 1);
	fake_peer_fence(&tx.end, 0, 0, 5);
	assert_false(tx.end.failed);
	assert_int_equal(state_of(0), PATH_DOWN);
	fake_peer_fence(&tx.end, 1, 2, 5);
	assert_int_equal(tx.end.failed, CAUSE_PROTOCOL);
	setup(state);
	fake_peer_fenced(&tx.end, 0, 7, 1);
	assert_int_equal(tx.end.failed, CAUSE_PROTOCOL);
	setup(state);
	fake_peer_fence(&tx.end, 2, 1, 5); /* two paths only */
	assert_int_equal(tx.end.failed, CAUSE_PROTOCOL);
	setup(state);
	fake_peer_fence(&tx.end, 255, 1, 5);
	assert_int_equal(tx.end.failed, CAUSE_PROTOCOL);
}

static void test_hostile_cause(void **state)
{
	const uint8_t causes[] = {0, CAUSE_FLUSH, CAUSE_PROTOCOL, CAUSE_COUNT, 255};

	for (size_t i = 0; i < sizeof(causes); i++) {
		struct frame_fence frame = {.path = 0, .cause = causes[i], .epoch = 1};

		setup(state);
		repair_end_on_fence(&tx.end, &frame, 2);
		assert_false(tx.end.failed);
		assert_int_equal(fake_last_report(REPAIR_REPORT_FAULT)->cause, CAUSE_PEER_NOTICE);
	}
}

static void test_marker(void **state)
{
	(void)state;
	send_one();
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	assert_int_equal(fake.marker_count, 1);
	fake_complete(&tx.end, fake.pieces[0].wr_id, CAUSE_FLUSH, 4);
	assert_int_equal(state_of(0), PATH_FENCING); /* the marker is out yet */
	reap();
	assert_int_equal(state_of(0), PATH_FENCED);
}

/* Without a marker, items whose success was not to be signalled end with the bound. */
static void test_marker_missing(void **state)
{
	(void)state;
	send_one();
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	fake.marker_rc = -ENOMEM;
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 10ull * MS);
	repair_end_tick(&tx.end, 109ull * MS);
	assert_int_equal(fake.cut_count, 0);
	repair_end_tick(&tx.end, 110ull * MS);
	repair_end_tick(&tx.end, 200ull * MS);
	assert_int_equal(fake.cut_count, 1);
	repair_fence_cut(&tx.end, 0, 0, 210ull * MS);
	assert_int_equal(state_of(0), PATH_FENCED);
	assert_int_equal(tx.msgs[1].wrs_out, 0);
}

/* A verbs call that does not come back is an error in the end, not a silent wait (P5). */
static void test_stuck_hca(void **state)
{
	(void)state;
	tx.end.limits.fence_ms = 1000;
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_end_tick(&tx.end, 999ull * MS);
	assert_int_equal(tx.end.failed, CAUSE_NONE);
	repair_end_tick(&tx.end, 1001ull * MS);
	assert_int_equal(tx.end.failed, CAUSE_UNFENCED);
	assert_int_equal(state_of(0), PATH_FENCING);
}

/* The same when it moved the QP to ERR and then hangs in RESET. */
static void test_stuck_cut(void **state)
{
	(void)state;
	tx.end.limits.fence_ms = 1000;
	send_one();
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	repair_end_tick(&tx.end, 101ull * MS);
	assert_int_equal(fake.cut_count, 1);
	fake_pass(&tx.end, 110, 990);
	assert_int_equal(tx.end.failed, CAUSE_NONE);
	fake_pass(&tx.end, 1000, 1010);
	assert_int_equal(tx.end.failed, CAUSE_UNFENCED);
}

static void test_cut_fails(void **state)
{
	(void)state;
	send_one();
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_cut(&tx.end, 0, -EIO, 3); /* nobody asked */
	assert_false(tx.end.failed);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	repair_end_tick(&tx.end, 200ull * MS);
	repair_fence_cut(&tx.end, 0, -EIO, 201ull * MS);
	assert_int_equal(tx.end.failed, CAUSE_UNFENCED);
	assert_int_equal(frames_of(FRAME_FENCED), 0);
}

/* What the cut found in the CQ may finish the reaping by itself. */
static void test_reaped_during_cut(void **state)
{
	(void)state;
	send_one();
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	repair_end_tick(&tx.end, 200ull * MS);
	reap();
	assert_int_equal(state_of(0), PATH_FENCED);
	repair_fence_cut(&tx.end, 0, 0, 201ull * MS);
	assert_int_equal(state_of(0), PATH_FENCED);
	assert_int_equal(frames_of(FRAME_FENCED), 1);
}

static void test_dead_device(void **state)
{
	(void)state;
	send_one();
	repair_end_fault(&tx.end, 0, CAUSE_DEVICE_FATAL, 2);
	repair_fence_errored(&tx.end, 0, FENCE_DEAD, 3);
	assert_int_equal(state_of(0), PATH_FENCED);
	assert_int_equal(fake.marker_count, 0);
	assert_int_equal(tx.msgs[1].wrs_out, 0);
	/* What the dead device left in the CQ comes too late, and does no harm. */
	fake_complete(&tx.end, fake.pieces[0].wr_id, CAUSE_NONE, 4);
	assert_false(tx.end.failed);
	fake_peer_fenced(&tx.end, 0, 1, 1);
	fake_complete(&tx.end, fake.pieces[0].wr_id, CAUSE_NONE, 5);
	assert_false(tx.end.failed);
	assert_int_equal(fake.piece_count, 2);
}

static void test_refused(void **state)
{
	uint64_t seq = 2;

	(void)state;
	send_one();
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&tx.end, 0, FENCE_REFUSED, 3);
	assert_int_equal(tx.end.failed, CAUSE_UNFENCED);
	fake_peer_fenced(&tx.end, 0, 1, 1);
	repair_end_pump(&tx.end, 4);
	assert_int_equal(fake.piece_count, 1); /* never replayed unfenced */
	assert_int_equal(repair_tx_send(&tx, &(struct repair_send){0}, 5, &seq), -EIO);
}

/* Results of the worker that come late, twice, or for a path that was not asked about. */
static void test_worker_results_out_of_place(void **state)
{
	(void)state;
	repair_fence_errored(&tx.end, 1, FENCE_ERRORED, 2);
	repair_fence_errored(&tx.end, 1, FENCE_REFUSED, 2);
	assert_int_equal(state_of(1), PATH_UP);
	play("erf");
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 9);
	repair_fence_errored(&tx.end, 0, FENCE_REFUSED, 9);
	repair_fence_cut(&tx.end, 0, -EIO, 9);
	assert_int_equal(state_of(0), PATH_DOWN);
	assert_false(tx.end.failed);
}

/* P6: a software fault stops the comm, an echo is no cause, and a better cause replaces it. */
static void test_causes(void **state)
{
	for (unsigned int cause = CAUSE_FLUSH; cause < CAUSE_COUNT; cause++) {
		setup(state);
		send_one();
		fake_complete(&tx.end, fake.pieces[0].wr_id, (enum cause)cause, 2);
		if (cause_class((enum cause)cause) == CAUSE_CLASS_SOFT) {
			assert_int_equal(tx.end.failed, cause);
			assert_int_equal(fake.fence_count, 0);
		} else {
			assert_false(tx.end.failed);
			assert_int_equal(state_of(0), PATH_FENCING);
		}
	}
	setup(state);
	send_one();
	fake_complete(&tx.end, fake.pieces[0].wr_id, CAUSE_FLUSH, 2);
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 3);
	repair_end_fault(&tx.end, 0, CAUSE_RETRY_EXC, 3);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	fake_peer_fenced(&tx.end, 0, 1, 1);
	assert_int_equal(fake_last_report(REPAIR_REPORT_DOWN)->cause, CAUSE_PORT_DOWN);
}

static void test_unknown_completions(void **state)
{
	const struct wr_id ids[] = {
		{WR_KIND_ITEM, 0, 1, 0}, /* nothing is out */
		{WR_KIND_RECV, 0, 1, 0}, /* a sender has no receives */
		{WR_KIND_NONE, 0, 1, 0},   {WR_KIND_FLUSH, 0, 1, 0},
		{WR_KIND_COUNT, 0, 1, 0},  {WR_KIND_ITEM, 2, 1, 0}, /* no such path */
		{WR_KIND_ITEM, 255, 1, 0},
	};

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		setup(state);
		fake_complete(&tx.end, wr_id_pack(ids[i]), CAUSE_NONE, 2);
		assert_int_equal(tx.end.failed, CAUSE_PROTOCOL);
	}
	setup(state);
	fake_complete(&tx.end, wr_id_pack((struct wr_id){WR_KIND_ITEM, 0, 2, 0}), CAUSE_NONE, 2);
	assert_false(tx.end.failed); /* of another epoch: outlived its QP */
}

/* A part of a chain reports only errors, and retires nothing. */
static void test_part(void **state)
{
	(void)state;
	send_one();
	fake_complete(&tx.end,
		      wr_id_pack((struct wr_id){WR_KIND_PART, 0, 1,
						wr_id_unpack(fake.pieces[0].wr_id).idx}),
		      CAUSE_RETRY_EXC, 2);
	assert_int_equal(state_of(0), PATH_FENCING);
	assert_int_equal(wrq_out(&tx.end.paths[0].sq), 1);
	assert_int_equal(fake_last_report(REPAIR_REPORT_FAULT)->cause, CAUSE_RETRY_EXC);
}

/* The second path fails while the first is being fenced, and again right after its replay. */
static void test_second_failure(void **state)
{
	(void)state;
	send_one();
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 2);
	repair_end_fault(&tx.end, 1, CAUSE_PORT_DOWN, 2);
	repair_fence_errored(&tx.end, 0, FENCE_ERRORED, 3);
	reap();
	fake_peer_fenced(&tx.end, 0, 1, 1);
	assert_int_equal(state_of(0), PATH_DOWN);
	assert_int_equal(fake.piece_count, 1); /* nowhere to go */
	assert_int_equal(state_of(1), PATH_FENCING);
	setup(state);
	play("erf");
	repair_end_fault(&tx.end, 1, CAUSE_RETRY_EXC, 5);
	repair_fence_errored(&tx.end, 1, FENCE_ERRORED, 6);
	reap_path(1);
	fake_peer_fenced(&tx.end, 1, 1, 1);
	assert_int_equal(state_of(1), PATH_DOWN);
	assert_int_equal(tx.msgs[1].pending, 1);
	assert_int_equal(tx.msgs[1].wrs_out, 0);
}

static void test_no_path(void **state)
{
	(void)state;
	repair_end_tick(&tx.end, 10ull * MS);
	assert_null(fake_last_report(REPAIR_REPORT_NO_PATH));
	repair_end_fault(&tx.end, 0, CAUSE_PORT_DOWN, 11ull * MS);
	repair_end_tick(&tx.end, 12ull * MS);
	assert_null(fake_last_report(REPAIR_REPORT_NO_PATH));
	repair_end_fault(&tx.end, 1, CAUSE_PORT_DOWN, 13ull * MS);
	repair_end_tick(&tx.end, 20ull * MS);
	assert_non_null(fake_last_report(REPAIR_REPORT_NO_PATH));
	fake_pass(&tx.end, 30, 1010);
	assert_false(tx.end.failed);
	fake_pass(&tx.end, 1020, 1020 + 1000 / 8);
	assert_int_equal(tx.end.failed, CAUSE_NO_PATH);
	assert_int_equal(fake_last_report(REPAIR_REPORT_FAILED)->cause, CAUSE_NO_PATH);
	repair_end_fail(&tx.end, CAUSE_PROTOCOL, 0, NULL); /* the first cause stays */
	assert_int_equal(tx.end.failed, CAUSE_NO_PATH);
}

/* An end that is being closed neither fails nor fences. */
static void test_closing(void **state)
{
	(void)state;
	send_one();
	tx.end.closing = true;
	fake_complete(&tx.end, fake.pieces[0].wr_id, CAUSE_REM_ACCESS, 2);
	fake_peer_fence(&tx.end, 0, 1, 2);
	fake_peer_fence(&tx.end, 9, 9, 2);
	repair_end_tick(&tx.end, 5000ull * MS);
	assert_false(tx.end.failed);
	assert_int_equal(fake.fence_count, 0);
	assert_int_equal(fake.report_count, 0);
}

/* A stall of every path kills none until it has lasted for no_path_ms. */
static void test_stall_of_all(void **state)
{
	(void)state;
	tx.end.path_count = 1;
	send_one();
	repair_end_tick(&tx.end, 10ull * MS); /* takes the time of the post */
	repair_end_tick(&tx.end, 250ull * MS);
	assert_int_equal(fake.ask_count, 1);
	repair_end_answered(&tx.end, 251ull * MS);
	assert_int_equal(state_of(0), PATH_UP);
	for (unsigned int ms = 260; ms < 1250; ms += 10) {
		repair_end_tick(&tx.end, (uint64_t)ms * MS);
		repair_end_answered(&tx.end, (uint64_t)ms * MS);
		assert_int_equal(state_of(0), PATH_UP);
	}
	repair_end_tick(&tx.end, 1500ull * MS);
	repair_end_answered(&tx.end, 1501ull * MS);
	assert_int_equal(state_of(0), PATH_FENCING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_orders, setup),
		cmocka_unit_test_setup(test_peer_begins, setup),
		cmocka_unit_test_setup(test_fenced_first, setup),
		cmocka_unit_test_setup(test_stale_and_impossible, setup),
		cmocka_unit_test_setup(test_hostile_cause, setup),
		cmocka_unit_test_setup(test_marker, setup),
		cmocka_unit_test_setup(test_marker_missing, setup),
		cmocka_unit_test_setup(test_stuck_hca, setup),
		cmocka_unit_test_setup(test_stuck_cut, setup),
		cmocka_unit_test_setup(test_cut_fails, setup),
		cmocka_unit_test_setup(test_reaped_during_cut, setup),
		cmocka_unit_test_setup(test_dead_device, setup),
		cmocka_unit_test_setup(test_refused, setup),
		cmocka_unit_test_setup(test_worker_results_out_of_place, setup),
		cmocka_unit_test_setup(test_causes, setup),
		cmocka_unit_test_setup(test_unknown_completions, setup),
		cmocka_unit_test_setup(test_part, setup),
		cmocka_unit_test_setup(test_second_failure, setup),
		cmocka_unit_test_setup(test_no_path, setup),
		cmocka_unit_test_setup(test_closing, setup),
		cmocka_unit_test_setup(test_stall_of_all, setup),
	};

	log_sink_set(fake_sink);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
