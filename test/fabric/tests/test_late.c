/* SPDX-License-Identifier: Apache-2.0 */

/* Packets that arrive when their requester has given up: where they land, and where not. */

#include "test/fabric/tests/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define KB 1024u

/* What the responder does before the packets come, and what is expected then. */
enum responder {
	STAYS,
	FENCES,
	RESETS,
	DESTROYS,
};

struct plan {
	const char *rule;
	enum responder responder;
	uint32_t landed;   /* of the 200 KB of the first write, then of the second's 100 KB */
	uint32_t told;     /* immediates the receiver got */
	uint32_t acked;    /* sends the sender saw succeed */
	const char *heal;  /* given when the writes are posted, NULL = none */
	int sender_leaves; /* the sender destroys its QP as soon as it failed */
};

static const struct plan *plan;

/* The first packet comes 700 ms after it was posted. On a busy machine the responder may have got
 * to its act only then: that run says nothing and is made again. Shared by the processes. */
#define ACT_WITHIN_NS 650000000ull
struct run {
	uint32_t too_slow;
	uint64_t posted_ns; /* 0 = not yet */
};
static struct run *run;

static int in_time(void)
{
	if (run->posted_ns != 0 && rig_now_ns() - run->posted_ns > ACT_WITHIN_NS) {
		run->too_slow = 1;
	}
	return run->too_slow == 0;
}

static int slow_run(struct rig *rig)
{
	(void)in_time(); /* the sender, once the responder acted */
	rig_barrier(rig);
	if (run->too_slow != 0) {
		rig_close(rig);
		return 1;
	}
	return 0;
}

static const struct rig_qp_options patient = {
	.send_wr = 64,
	.recv_wr = 64,
	.timeout = 14, /* 67 ms */
	.retry_cnt = 2,
	.rnr_retry = 7,
	.min_rnr_timer = 1,
	.sq_psn = 0xfffff0, /* round the end */
	.rq_psn = 0xfffff0,
};

/* Who is to succeed must not give up on a busy machine: what is late by 10 or 30 ms has 134 ms, the
 * healing 1 s, and the next try is 134 ms after it. */
static const struct rig_qp_options *plan_options(void)
{
	static struct rig_qp_options enduring;

	if (plan->acked == 0) {
		return &patient;
	}
	enduring = patient;
	enduring.timeout = plan->heal != NULL ? 15 : 12;
	enduring.retry_cnt = 7;
	return &enduring;
}

static void install(struct rig *rig, const char *rule)
{
	char why[200] = "";

	if (fabric_ctl_fault(rig->ctl, rule, NULL, why, sizeof(why)) != 0) {
		fprintf(stderr, "%s: %s\n", rule, why);
		_exit(1);
	}
}

/* The packets are on their way, held back or without an answer: from now on all goes well. On a
 * busy machine the sender may be about to give up by then. */
#define HEAL_WITHIN_NS 600000000ull

static void heal(struct rig *rig)
{
	struct fabric_counters c;

	do {
		rig_sleep_ms(1);
		CHECK(fabric_ctl_counters(rig->ctl, 0, 0, &c) == 0);
	} while (c.late_held == 0 && c.tx_msgs < 2);
	install(rig, plan->heal);
	if (rig_now_ns() - run->posted_ns > HEAL_WITHIN_NS) {
		run->too_slow = 1;
	}
}

/* Waits until every piece that was held back landed or was dropped. */
static struct fabric_counters settle(struct rig *rig)
{
	uint64_t end_ns = rig_now_ns() + 10000000000ull;
	struct fabric_counters c;

	do {
		rig_sleep_ms(1);
		CHECK(fabric_ctl_counters(rig->ctl, 0, 0, &c) == 0);
		CHECK(rig_now_ns() < end_ns);
	} while (c.late_landed + c.late_dropped != c.late_held);
	return c;
}

static void sender(struct rig *rig)
{
	uint32_t acked = 0;
	struct fabric_counters c;

	rig_open(rig, 0);
	rig_connect(rig, 0, plan_options());
	rig_fill(rig, 1, 0, 300 * KB);
	install(rig, plan->rule);
	rig_barrier(rig);
	run->posted_ns = rig_now_ns();
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 200 * KB) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 200 * KB, 100 * KB) == 0);
	if (plan->heal != NULL) {
		heal(rig);
	}
	for (uint32_t i = 0; i < 2; i++) {
		struct ibv_wc wc = rig_poll(rig);

		CHECK(wc.wr_id == i);
		acked += wc.status == IBV_WC_SUCCESS;
		CHECK(wc.status == IBV_WC_SUCCESS ||
		      wc.status == (i == acked ? IBV_WC_RETRY_EXC_ERR : IBV_WC_WR_FLUSH_ERR));
	}
	CHECK(acked == plan->acked || !in_time());
	/* What arrives from now on is what was sent, not what is here now. */
	rig_fill(rig, 2, 0, 300 * KB);
	if (plan->sender_leaves) {
		CHECK(ibv_destroy_qp(rig->qps[0]) == 0);
		rig->qps[0] = NULL;
	}
	rig_barrier(rig);
	if (slow_run(rig)) {
		return;
	}
	c = settle(rig);
	CHECK(plan->responder == STAYS || c.late_landed == 0);
	CHECK(plan->responder != STAYS || plan->heal != NULL || c.late_dropped < c.late_held ||
	      c.late_held == 0);
	CHECK((strncmp(plan->rule, "late", 4) != 0 ||
	       strstr(plan->rule, " host=0 rail=0 dir=rx") != NULL) == (c.late_held == 0));
	rig_barrier(rig);
	rig_barrier(rig);
	rig_close(rig);
}

static void responder_acts(struct rig *rig)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	switch (plan->responder) {
	case FENCES:
		CHECK(rig_qp_error(rig->qps[0]) == 0);
		for (uint32_t i = 0; i < 2; i++) {
			CHECK(rig_poll(rig).status == IBV_WC_WR_FLUSH_ERR || !in_time());
		}
		return;
	case RESETS:
		CHECK(ibv_modify_qp(rig->qps[0], &attr, IBV_QP_STATE) == 0);
		return;
	case DESTROYS:
		CHECK(ibv_destroy_qp(rig->qps[0]) == 0);
		rig->qps[0] = NULL;
		return;
	case STAYS:
	default:
		return;
	}
}

static void responder(struct rig *rig)
{
	uint32_t landed = plan->landed;

	rig_open(rig, 0);
	rig_connect(rig, 0, plan_options());
	CHECK(rig_post_recv(rig, 0, 10, 0, 0) == 0);
	CHECK(rig_post_recv(rig, 0, 11, 0, 0) == 0);
	rig_barrier(rig);
	rig_barrier(rig); /* the sender has its verdict */
	responder_acts(rig);
	if (plan->heal != NULL) { /* all there already; what comes now must leave no trace */
		CHECK(!in_time() || rig_holds(rig, 1, 0, landed));
		memset(rig->buf, 0, 300 * KB);
		CHECK(rig_post_recv(rig, 0, 12, 0, 0) == 0);
		CHECK(rig_post_recv(rig, 0, 13, 0, 0) == 0);
		landed = 0;
	}
	if (slow_run(rig)) {
		return;
	}
	rig_barrier(rig); /* all came or did not */
	for (uint32_t i = 0; i < plan->told; i++) {
		struct ibv_wc wc = rig_poll(rig);

		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 10 + i);
		CHECK(wc.imm_data == (i ^ 0x01020304u));
	}
	rig_quiet(rig, 2);
	CHECK(rig_holds(rig, 1, 0, landed));
	CHECK(rig_blank(rig, landed, 300 * KB - landed));
	rig_barrier(rig);
	rig_close(rig);
}

static const struct plan plans[] = {
	/* in time for the requester, also when its first tries were in vain */
	{"late host=0 rail=0 dir=tx delay_ms=5", STAYS, 300 * KB, 2, 2, NULL, 0},
	{"late host=1 rail=0 dir=rx delay_ms=30", STAYS, 300 * KB, 2, 2, NULL, 0},
	/* too late for it; the responder's QP decides */
	{"late host=0 rail=0 dir=tx delay_ms=700", STAYS, 300 * KB, 2, 0, NULL, 0},
	{"late host=0 rail=0 dir=tx delay_ms=700", STAYS, 300 * KB, 2, 0, NULL, 1},
	{"late host=0 rail=0 dir=tx delay_ms=700", FENCES, 0, 0, 0, NULL, 0},
	{"late host=0 rail=0 dir=tx delay_ms=700", RESETS, 0, 0, 0, NULL, 0},
	{"late host=0 rail=0 dir=tx delay_ms=700", DESTROYS, 0, 0, 0, NULL, 0},
	/* the head of a message was in time */
	{"late host=0 rail=0 dir=tx delay_ms=700 bytes=100001", STAYS, 300 * KB, 2, 0, NULL, 0},
	{"late host=0 rail=0 dir=tx delay_ms=700 bytes=100001", FENCES, 100001, 0, 0, NULL, 0},
	/* the repetition was faster: duplicates are not executed */
	{"late host=0 rail=0 dir=tx delay_ms=700", STAYS, 300 * KB, 2, 2, "heal host=0 rail=0", 0},
	{"late host=0 rail=0 delay_ms=700 bytes=100001", STAYS, 300 * KB, 2, 2,
	 "heal host=0 rail=0", 0},
	{"ack_loss host=0 rail=0 dir=tx", STAYS, 300 * KB, 2, 2, "heal host=0 rail=0", 0},
	/* the data is in time, its acknowledgements are not */
	{"late host=0 rail=0 dir=rx delay_ms=10", STAYS, 300 * KB, 2, 2, NULL, 0},
	{"late host=0 rail=0 dir=rx delay_ms=700", STAYS, 300 * KB, 2, 0, NULL, 0},
};

static int run_in_time(const struct rig_case *c)
{
	for (int i = 0; i < 8; i++) {
		int rc;

		*run = (struct run){.posted_ns = 0};
		rc = rig_run(c);
		if (rc != 0 || run->too_slow == 0) {
			return rc;
		}
	}
	fprintf(stderr, "the machine is too slow for this test\n");
	return -1;
}

static void test_plans(void **state)
{
	static const struct rig_case c = {.host0 = sender, .host1 = responder};

	(void)state;
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		plan = &plans[i];
		if (run_in_time(&c) != 0) {
			fail_msg("plan %zu: %s", i, plan->rule);
		}
	}
}

/* FABRIC_BROKEN=fence: an adapter that goes on accepting after the fence. The bytes land; there is
 * no receive left for an immediate. */
static void broken_responder(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, plan_options());
	CHECK(rig_post_recv(rig, 0, 10, 0, 0) == 0);
	CHECK(rig_post_recv(rig, 0, 11, 0, 0) == 0);
	rig_barrier(rig);
	rig_barrier(rig);
	responder_acts(rig);
	if (slow_run(rig)) {
		return;
	}
	rig_barrier(rig);
	CHECK(rig_holds(rig, 1, 0, 196 * KB));
	rig_barrier(rig);
	rig_close(rig);
}

static void test_broken(void **state)
{
	static const struct plan broken = {
		"late host=0 rail=0 dir=tx delay_ms=700", FENCES, 0, 0, 0, NULL, 0};
	static const struct rig_case c = {
		.host0 = sender, .host1 = broken_responder, .env = {"FABRIC_BROKEN", "fence"}};

	(void)state;
	plan = &broken;
	assert_int_equal(run_in_time(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_plans),
		cmocka_unit_test(test_broken),
	};

	run = mmap(NULL, sizeof(*run), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (run == MAP_FAILED) {
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
