/* SPDX-License-Identifier: Apache-2.0 */

/* Shared receive queues: several QPs eat from one, the limit is told once, an empty one makes the
 * sender wait. */

#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define KB    1024u
#define SENDS 12u

static void sender(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_connect(rig, 1, &rig_defaults);
	rig_fill(rig, 5, 0, SENDS * KB);
	rig_barrier(rig);
	for (uint32_t i = 0; i < SENDS; i++) {
		CHECK(rig_post(rig, i % 2, IBV_WR_SEND, i, i * KB, KB) == 0);
	}
	for (uint32_t i = 0; i < 10; i++) {
		CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	}
	rig_quiet(rig, 20); /* ten receives were there */
	rig_barrier(rig);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	rig_barrier(rig);
	rig_close(rig);
}

static int post(struct rig *rig, struct ibv_srq *srq, uint64_t id)
{
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)rig->buf + id * KB,
		.length = KB,
		.lkey = rig->mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad = NULL;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

/* rig_connect() with the queue given; the peer runs the plain one. */
static void connect_shared(struct rig *rig, uint32_t n, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = rig->cq,
		.recv_cq = rig->cq,
		.srq = srq,
		.cap = {.max_send_wr = 4, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	uint32_t mine[2];
	uint32_t peers[2];
	struct ibv_port_attr port;

	rig->qps[n] = ibv_create_qp(rig->pd, &attr);
	CHECK(rig->qps[n] != NULL && rig->qps[n]->srq == srq);
	CHECK(ibv_query_port(rig->context, 1, &port) == 0);
	mine[0] = rig->qps[n]->qp_num;
	mine[1] = port.lid;
	rig_send(rig, mine, sizeof(mine));
	rig_recv(rig, peers, sizeof(peers));
	CHECK(rig_qp_init(rig->qps[n]) == 0);
	CHECK(rig_qp_rtr(rig->qps[n], peers[0], (uint16_t)peers[1], &rig_defaults) == 0);
	CHECK(rig_qp_rts(rig->qps[n], &rig_defaults) == 0);
	rig_barrier(rig);
}

static void take(struct rig *rig, uint32_t count, uint32_t *seen)
{
	for (uint32_t i = 0; i < count; i++) {
		struct ibv_wc wc = rig_poll(rig);

		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
		CHECK(wc.byte_len == KB && wc.wr_id < SENDS && (*seen & 1u << wc.wr_id) == 0);
		*seen |= 1u << wc.wr_id;
	}
}

static void receiver(struct rig *rig)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 10, .max_sge = 1}};
	struct ibv_srq_attr attr = {.srq_limit = 4};
	struct ibv_async_event event;
	struct ibv_srq *srq;
	uint32_t seen = 0;

	rig_open(rig, 0);
	srq = ibv_create_srq(rig->pd, &init);
	CHECK(srq != NULL);
	connect_shared(rig, 0, srq);
	connect_shared(rig, 1, srq);
	CHECK(rig_post_recv(rig, 0, 0, 0, 0) == EINVAL);
	CHECK(ibv_destroy_srq(srq) == EBUSY);
	for (uint32_t i = 0; i < 10; i++) {
		CHECK(post(rig, srq, i) == 0);
	}
	CHECK(post(rig, srq, 10) == ENOMEM);
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
	rig_barrier(rig);
	take(rig, 10, &seen);
	CHECK(ibv_get_async_event(rig->context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
	ibv_ack_async_event(&event);
	rig_no_event(rig, 5);
	CHECK(ibv_query_srq(srq, &attr) == 0 && attr.srq_limit == 0 && attr.max_wr == 10);
	rig_barrier(rig);
	CHECK(post(rig, srq, 10) == 0 && post(rig, srq, 11) == 0);
	take(rig, 2, &seen);
	CHECK(seen == (1u << SENDS) - 1);
	rig_barrier(rig);
	for (uint32_t i = 0; i < 2; i++) {
		CHECK(ibv_destroy_qp(rig->qps[i]) == 0);
		rig->qps[i] = NULL;
	}
	CHECK(ibv_destroy_srq(srq) == 0);
	rig_close(rig);
}

static void test_shared(void **state)
{
	static const struct rig_case c = {.host0 = sender, .host1 = receiver};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
