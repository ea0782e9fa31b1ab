/* SPDX-License-Identifier: Apache-2.0 */

/* Completion events and who has to acknowledge them: none is missed between arming and looking,
 * none is left of a queue that is gone, and destroying waits for those that were read. */

#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#define QPS    4u
#define ROUNDS 10000u

static void install(struct rig *rig, const char *rule)
{
	char why[200] = "";

	CHECK(fabric_ctl_fault(rig->ctl, rule, NULL, why, sizeof(why)) == 0);
}

/* Hanging is what the cases below are about: then it ends here, with a signal. */
static void open_all(struct rig *rig, uint32_t qp_count)
{
	struct rig_qp_options deep = rig_defaults;

	alarm(30);
	deep.recv_wr = 512;
	rig_open(rig, 0);
	for (uint32_t i = 0; i < qp_count; i++) {
		rig_connect(rig, i, &deep);
	}
}

static int has_event(const struct ibv_comp_channel *channel, int timeout_ms)
{
	struct pollfd fd = {.fd = channel->fd, .events = POLLIN};

	return poll(&fd, 1, timeout_ms) == 1;
}

static void passive(struct rig *rig)
{
	open_all(rig, 1);
	rig_barrier(rig);
	rig_close(rig);
}

/* A second queue on the same channel, with a QP that is connected to itself. */
struct twin {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static struct twin twin_make(struct rig *rig)
{
	struct twin twin = {.cq = ibv_create_cq(rig->context, 16, &twin, rig->channel, 0)};
	struct ibv_cq *own = rig->cq;
	struct ibv_port_attr port;

	CHECK(twin.cq != NULL && ibv_query_port(rig->context, 1, &port) == 0);
	rig->cq = twin.cq;
	twin.qp = rig_qp_create(rig, &rig_defaults);
	rig->cq = own;
	CHECK(twin.qp != NULL && rig_qp_init(twin.qp) == 0);
	CHECK(rig_qp_rtr(twin.qp, twin.qp->qp_num, port.lid, &rig_defaults) == 0);
	CHECK(rig_qp_rts(twin.qp, &rig_defaults) == 0);
	return twin;
}

/* One completion, of a send with nothing in it. */
static void complete_one(struct ibv_qp *qp, struct ibv_cq *cq, struct rig *rig)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = rig->peer_buf, .rkey = rig->peer_rkey},
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	while (ibv_poll_cq(cq, 1, &wc) == 0) {
		sched_yield();
	}
	CHECK(wc.status == IBV_WC_SUCCESS);
}

static void event_due(struct ibv_qp *qp, struct ibv_cq *cq, struct rig *rig)
{
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
	complete_one(qp, cq, rig);
	CHECK(has_event(cq->channel, 5000));
}

static void unread(struct rig *rig)
{
	struct ibv_cq *cq;
	struct twin twin;
	void *context;

	open_all(rig, 1);
	twin = twin_make(rig);
	event_due(twin.qp, twin.cq, rig);
	event_due(rig->qps[0], rig->cq, rig);
	rig_sleep_ms(20); /* the second event is behind the first */
	CHECK(ibv_destroy_qp(twin.qp) == 0);
	CHECK(ibv_destroy_cq(twin.cq) == 0);
	CHECK(ibv_get_cq_event(rig->channel, &cq, &context) == 0);
	CHECK(cq == rig->cq && context == rig);
	CHECK(!has_event(rig->channel, 0));
	ibv_ack_cq_events(cq, 1);
	event_due(rig->qps[0], rig->cq, rig); /* left unread until the end */
	rig_barrier(rig);
	rig_close(rig);
}

struct destroyer {
	pthread_t thread;
	struct twin twin;
	_Atomic int step;
};

static void *destroy_both(void *arg)
{
	struct destroyer *d = arg;

	CHECK(ibv_destroy_qp(d->twin.qp) == 0);
	atomic_store(&d->step, 1);
	CHECK(ibv_destroy_cq(d->twin.cq) == 0);
	atomic_store(&d->step, 2);
	return NULL;
}

static void reaches(struct destroyer *d, int step)
{
	while (atomic_load(&d->step) < step) {
		sched_yield();
	}
	rig_sleep_ms(50);
	CHECK(atomic_load(&d->step) == step);
}

/* One event of each kind was read and is acknowledged later. */
static void unacked(struct rig *rig)
{
	struct ibv_async_event event;
	struct destroyer d = {.step = 0};
	struct ibv_cq *cq;
	void *context;

	open_all(rig, 1);
	d.twin = twin_make(rig);
	event_due(d.twin.qp, d.twin.cq, rig);
	CHECK(ibv_get_cq_event(rig->channel, &cq, &context) == 0 && cq == d.twin.cq);
	install(rig, "qp_fatal host=0 rail=0 nth=2");
	CHECK(ibv_get_async_event(rig->context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_QP_FATAL && event.element.qp == d.twin.qp);
	CHECK(pthread_create(&d.thread, NULL, destroy_both, &d) == 0);
	reaches(&d, 0);
	ibv_ack_async_event(&event);
	reaches(&d, 1);
	ibv_ack_cq_events(cq, 1);
	CHECK(pthread_join(d.thread, NULL) == 0);
	rig_barrier(rig);
	rig_close(rig);
}

/* An asynchronous event nobody read goes with its QP. */
static void forgotten(struct rig *rig)
{
	struct twin twin;

	open_all(rig, 1);
	twin = twin_make(rig);
	install(rig, "qp_fatal host=0 rail=0 nth=2");
	while (!rig_has_event(rig)) {
		sched_yield();
	}
	CHECK(ibv_destroy_qp(twin.qp) == 0);
	CHECK(!rig_has_event(rig));
	CHECK(ibv_destroy_cq(twin.cq) == 0);
	rig_barrier(rig);
	rig_close(rig);
}

static void count_in(struct rig *rig, uint32_t *done)
{
	struct ibv_wc wc[16];
	int got;

	do {
		got = ibv_poll_cq(rig->cq, 16, wc);
		CHECK(got >= 0);
		for (int i = 0; i < got; i++) {
			CHECK(wc[i].status == IBV_WC_SUCCESS);
		}
		*done += (uint32_t)got;
	} while (got > 0);
}

/* Sleeps, arms, looks, as ibv_get_cq_event(3) says. */
static void next_event(struct rig *rig)
{
	struct ibv_cq *cq;
	void *context;

	CHECK(has_event(rig->channel, 10000)); /* a missed one shows here */
	CHECK(ibv_get_cq_event(rig->channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
	CHECK(ibv_req_notify_cq(cq, 0) == 0);
}

/* Bursts of a few sends over several QPs; the answer to one releases the next. So each last
 * completion of a burst is one that nothing comes after: a missed event stops both ends. */
static uint32_t burst_len(uint32_t round)
{
	return 1 + round % 5;
}

static void await(struct rig *rig, uint32_t count)
{
	uint32_t done = 0;

	while (done < count) {
		next_event(rig);
		count_in(rig, &done);
	}
	CHECK(done == count);
}

static void burst_sender(struct rig *rig)
{
	open_all(rig, QPS);
	CHECK(ibv_req_notify_cq(rig->cq, 0) == 0);
	rig_barrier(rig);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		CHECK(rig_post_recv(rig, 0, round, 0, 64) == 0);
		for (uint32_t i = 0; i < burst_len(round); i++) {
			CHECK(rig_post(rig, i % QPS, IBV_WR_SEND, round, 0, 8) == 0);
		}
		await(rig, burst_len(round) + 1);
	}
	rig_barrier(rig);
	rig_close(rig);
}

static void burst_receiver(struct rig *rig)
{
	open_all(rig, QPS);
	CHECK(ibv_req_notify_cq(rig->cq, 0) == 0);
	for (uint32_t i = 0; i < QPS * 8; i++) {
		CHECK(rig_post_recv(rig, i % QPS, i, 0, 64) == 0);
	}
	rig_barrier(rig);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		/* The completion of the answer before comes in between. */
		await(rig, burst_len(round) + (round > 0 ? 1 : 0));
		for (uint32_t i = 0; i < burst_len(round); i++) {
			CHECK(rig_post_recv(rig, i % QPS, i, 0, 64) == 0);
		}
		CHECK(rig_post(rig, 0, IBV_WR_SEND, round, 0, 8) == 0);
	}
	rig_barrier(rig);
	rig_close(rig);
}

/* Armed for solicited completions only, then for any, and what the second asking leaves. */
static void arming(struct rig *rig)
{
	struct ibv_cq *cq;
	void *context;

	open_all(rig, 1);
	CHECK(ibv_req_notify_cq(rig->cq, 1) == 0);
	complete_one(rig->qps[0], rig->cq, rig);
	CHECK(!has_event(rig->channel, 20));
	CHECK(ibv_req_notify_cq(rig->cq, 0) == 0);
	CHECK(!has_event(rig->channel, 20)); /* not for what was there before */
	CHECK(ibv_req_notify_cq(rig->cq, 1) == 0);
	complete_one(rig->qps[0], rig->cq, rig);
	complete_one(rig->qps[0], rig->cq, rig);
	CHECK(has_event(rig->channel, 5000));
	CHECK(ibv_get_cq_event(rig->channel, &cq, &context) == 0);
	CHECK(!has_event(rig->channel, 20)); /* one only */
	ibv_ack_cq_events(cq, 1);
	rig_barrier(rig);
	rig_close(rig);
}

static void run(void (*host0)(struct rig *), void (*host1)(struct rig *))
{
	struct rig_case c = {.host0 = host0, .host1 = host1};

	assert_int_equal(rig_run(&c), 0);
}

static void test_unread(void **state)
{
	(void)state;
	run(unread, passive);
}

static void test_unacked(void **state)
{
	(void)state;
	run(unacked, passive);
}

static void test_forgotten(void **state)
{
	(void)state;
	run(forgotten, passive);
}

static void test_bursts(void **state)
{
	(void)state;
	run(burst_sender, burst_receiver);
}

static void test_arming(void **state)
{
	(void)state;
	run(arming, passive);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unread),    cmocka_unit_test(test_unacked),
		cmocka_unit_test(test_forgotten), cmocka_unit_test(test_bursts),
		cmocka_unit_test(test_arming),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
