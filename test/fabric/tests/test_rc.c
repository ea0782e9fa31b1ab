/* SPDX-License-Identifier: Apache-2.0 */

/* What a reliable connection promises between two processes: data, order, completions. */

#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KB 1024u

static void setup(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
}

static void run(void (*host0)(struct rig *rig), void (*host1)(struct rig *rig))
{
	struct rig_case c = {.host0 = host0, .host1 = host1};

	assert_int_equal(rig_run(&c), 0);
}

static void expect_wc(struct rig *rig, uint64_t id, enum ibv_wc_opcode opcode, uint32_t len)
{
	struct ibv_wc wc = rig_poll(rig);

	CHECK(wc.wr_id == id);
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(wc.opcode == opcode);
	CHECK(wc.byte_len == len);
	CHECK(wc.qp_num == rig->qps[0]->qp_num);
}

/* One of each operation, and zero length. The peer's own buffer is at the same offsets. */
static void ops_send(struct rig *rig)
{
	setup(rig);
	rig_barrier(rig);
	rig_fill(rig, 1, 0, 400 * KB);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 1, 0, 100 * KB + 1) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 101 * KB, 5 * KB) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_SEND, 3, 110 * KB, 20 * KB) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_SEND_WITH_IMM, 4, 130 * KB, 7) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 5, 0, 0) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_SEND, 6, 0, 0) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_READ, 7, 500 * KB, 300 * KB) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 8, 0, 0) == 0);
	expect_wc(rig, 1, IBV_WC_RDMA_WRITE, 100 * KB + 1);
	expect_wc(rig, 2, IBV_WC_RDMA_WRITE, 5 * KB);
	expect_wc(rig, 3, IBV_WC_SEND, 20 * KB);
	expect_wc(rig, 4, IBV_WC_SEND, 7);
	expect_wc(rig, 5, IBV_WC_RDMA_WRITE, 0);
	expect_wc(rig, 6, IBV_WC_SEND, 0);
	expect_wc(rig, 7, IBV_WC_RDMA_READ, 300 * KB);
	expect_wc(rig, 8, IBV_WC_RDMA_WRITE, 0);
	CHECK(rig_holds(rig, 2, 500 * KB, 300 * KB));
	rig_barrier(rig);
	rig_close(rig);
}

static void ops_recv(struct rig *rig)
{
	struct ibv_wc wc;

	setup(rig);
	rig_fill(rig, 2, 500 * KB, 300 * KB);
	for (uint32_t i = 0; i < 5; i++) { /* the sends land at 200 KB on */
		CHECK(rig_post_recv(rig, 0, 10 + i, (200 + i * 40) * KB, 40 * KB) == 0);
	}
	rig_barrier(rig);
	wc = rig_poll(rig);
	CHECK(wc.wr_id == 10 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 5 * KB);
	CHECK(wc.wc_flags == IBV_WC_WITH_IMM && wc.imm_data == (2 ^ 0x01020304u));
	CHECK(rig_holds(rig, 1, 0, 100 * KB + 1) && rig_holds(rig, 1, 101 * KB, 5 * KB));
	wc = rig_poll(rig);
	CHECK(wc.wr_id == 11 && wc.opcode == IBV_WC_RECV && wc.byte_len == 20 * KB);
	CHECK(wc.wc_flags == 0 && wc.src_qp != 0);
	wc = rig_poll(rig);
	CHECK(wc.wr_id == 12 && wc.opcode == IBV_WC_RECV && wc.byte_len == 7);
	CHECK(wc.wc_flags == IBV_WC_WITH_IMM && wc.imm_data == (4 ^ 0x01020304u));
	wc = rig_poll(rig);
	CHECK(wc.wr_id == 13 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 0);
	wc = rig_poll(rig);
	CHECK(wc.wr_id == 14 && wc.opcode == IBV_WC_RECV && wc.byte_len == 0);
	rig_barrier(rig);
	CHECK(rig_blank(rig, 100 * KB + 1, KB - 1)); /* not a byte too many */
	for (uint32_t i = 0; i < 20 * KB; i++) {     /* the send from 110 KB landed at 240 KB */
		uint8_t byte = rig->buf[240 * KB + i];

		rig->buf[110 * KB + i] = byte;
	}
	CHECK(rig_holds(rig, 1, 110 * KB, 20 * KB));
	rig_close(rig);
}

static void test_operations(void **state)
{
	(void)state;
	run(ops_send, ops_recv);
}

/* Gather and scatter lists whose parts do not line up, inline data, unsignaled sends. */
static void lists_send(struct rig *rig)
{
	struct ibv_sge sge[4];
	struct ibv_send_wr wr = {.sg_list = sge, .opcode = IBV_WR_SEND};
	char word[20] = "inline, then reused";

	setup(rig);
	rig_barrier(rig);
	rig_fill(rig, 3, 0, 1000);
	for (uint32_t i = 0; i < 4; i++) { /* 1000 bytes as 100, 200, 300, 400 */
		sge[i].addr = (uint64_t)(uintptr_t)rig->buf + 50 * i * (i + 1);
		sge[i].length = 100 * (i + 1);
		sge[i].lkey = rig->mr->lkey;
	}
	wr.num_sge = 4;
	CHECK(rig_post_wr(rig, 0, &wr) == 0);
	sge[0].addr = (uint64_t)(uintptr_t)word; /* not registered: inline needs no key */
	sge[0].length = sizeof(word);
	sge[0].lkey = 0;
	wr.num_sge = 1;
	wr.wr_id = 9;
	wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	CHECK(rig_post_wr(rig, 0, &wr) == 0);
	memset(word, 'x', sizeof(word));
	expect_wc(rig, 9, IBV_WC_SEND, sizeof(word)); /* the first one was not signaled */
	sge[0].length = 65;                           /* one more than granted */
	CHECK(rig_post_wr(rig, 0, &wr) == ENOMEM);
	rig_barrier(rig);
	rig_close(rig);
}

static void lists_recv(struct rig *rig)
{
	struct ibv_sge sge[3];
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = sge, .num_sge = 3};
	struct ibv_recv_wr *bad;

	setup(rig);
	for (uint32_t i = 0; i < 3; i++) { /* 333, 333, 334 and a hole of 1 KB between */
		sge[i].addr = (uint64_t)(uintptr_t)rig->buf + i * (333 + KB);
		sge[i].length = i < 2 ? 333 : 334;
		sge[i].lkey = rig->mr->lkey;
	}
	CHECK(ibv_post_recv(rig->qps[0], &wr, &bad) == 0);
	CHECK(rig_post_recv(rig, 0, 2, 100 * KB, 64) == 0);
	rig_barrier(rig);
	expect_wc(rig, 1, IBV_WC_RECV, 1000);
	expect_wc(rig, 2, IBV_WC_RECV, 20);
	CHECK(strcmp((char *)rig->buf + 100 * KB, "inline, then reused") == 0);
	CHECK(rig_blank(rig, 333, KB) && rig_blank(rig, 666 + KB, KB));
	memmove(rig->buf + 333, rig->buf + 333 + KB, 333);
	memmove(rig->buf + 666, rig->buf + 666 + 2 * KB, 334);
	CHECK(rig_holds(rig, 3, 0, 1000));
	rig_barrier(rig);
	rig_close(rig);
}

static void test_lists_inline(void **state)
{
	(void)state;
	run(lists_send, lists_recv);
}

/* A full queue says ENOMEM, and space comes back only by polling a later completion. */
static void full_send(struct rig *rig)
{
	struct rig_qp_options few = rig_defaults;
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
	struct ibv_wc wc;

	few.send_wr = 4;
	rig_open(rig, 0);
	rig_connect(rig, 0, &few);
	for (uint32_t i = 0; i < 4; i++) {
		wr.send_flags = i == 2 ? IBV_SEND_SIGNALED : 0;
		wr.wr_id = i;
		CHECK(rig_post_wr(rig, 0, &wr) == 0);
	}
	CHECK(rig_post_wr(rig, 0, &wr) == ENOMEM);
	rig_sleep_ms(5); /* all four are done by now; nobody polled */
	CHECK(rig_post_wr(rig, 0, &wr) == ENOMEM);
	wc = rig_poll(rig);
	CHECK(wc.wr_id == 2);
	for (uint32_t i = 0; i < 3; i++) { /* 0, 1 and 2 are back, 3 is not */
		CHECK(rig_post_wr(rig, 0, &wr) == 0);
	}
	CHECK(rig_post_wr(rig, 0, &wr) == ENOMEM);
	for (uint32_t i = 0; i < 64; i++) {
		CHECK(rig_post_recv(rig, 0, i, 0, 0) == 0);
	}
	CHECK(rig_post_recv(rig, 0, 64, 0, 0) == ENOMEM);
	rig_barrier(rig);
	rig_close(rig);
}

static void full_recv(struct rig *rig)
{
	setup(rig);
	rig_barrier(rig);
	rig_close(rig);
}

static void test_queue_full(void **state)
{
	(void)state;
	run(full_send, full_recv);
}

static int modify_state(struct ibv_qp *qp, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {.qp_state = to};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

/* States: what is illegal is refused and changes nothing. */
static void states_one(struct rig *rig)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;

	rig_open(rig, 0);
	qp = rig_qp_create(rig, &rig_defaults);
	rig->qps[0] = qp;
	CHECK(qp != NULL && qp->state == IBV_QPS_RESET);
	CHECK(rig_post_recv(rig, 0, 1, 0, 0) == EINVAL);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 1, 0, 8) == EINVAL);
	CHECK(rig_qp_rtr(qp, 5, 1, &rig_defaults) == EINVAL);
	CHECK(rig_qp_rts(qp, &rig_defaults) == EINVAL);
	CHECK(modify_state(qp, IBV_QPS_INIT) == EINVAL); /* required attributes are missing */
	CHECK(rig_qp_init(qp) == 0);
	CHECK(rig_qp_rts(qp, &rig_defaults) == EINVAL);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 1, 0, 8) == EINVAL);
	CHECK(rig_post_recv(rig, 0, 1, 0, 0) == 0);
	CHECK(rig_qp_rtr(qp, 5, 1, &rig_defaults) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 1, 0, 8) == EINVAL);
	CHECK(rig_qp_init(qp) == EINVAL);
	CHECK(rig_qp_rts(qp, &rig_defaults) == 0);
	CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.timeout == 8 && attr.retry_cnt == 3);
	CHECK(attr.dest_qp_num == 5 && attr.rq_psn == 7 && attr.sq_psn == 7);
	CHECK(init.cap.max_send_wr == 64 && init.qp_type == IBV_QPT_RC);
	CHECK(modify_state(qp, IBV_QPS_ERR) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_WR_FLUSH_ERR);
	CHECK(modify_state(qp, IBV_QPS_RTS) == EINVAL);
	CHECK(modify_state(qp, IBV_QPS_RESET) == 0);
	CHECK(rig_qp_init(qp) == 0);
	rig_quiet(rig, 1);
	CHECK(ibv_destroy_cq(rig->cq) == EBUSY);
	rig_close(rig);
}

static void test_states(void **state)
{
	(void)state;
	run(states_one, states_one);
}

/* On an error completion only four fields hold; sends are flushed in order, then receives, also
 * those posted afterwards. */
static void flush_one(struct rig *rig)
{
	struct rig_qp_options hold = rig_defaults;
	struct ibv_wc wc;
	int junk = 0;

	hold.timeout = 20;
	rig_open(rig, 0);
	rig_connect(rig, 0, &hold);
	CHECK(fabric_ctl_fault(rig->ctl, "cut host=0 rail=0", NULL, NULL, 0) == 0);
	rig_barrier(rig);
	for (uint32_t i = 0; i < 8; i++) {
		CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, i, 0, 4096) == 0);
		CHECK(rig_post_recv(rig, 0, 100 + i, 0, 0) == 0);
	}
	rig_quiet(rig, 5);
	CHECK(rig_qp_error(rig->qps[0]) == 0);
	for (uint32_t i = 0; i < 16; i++) {
		wc = rig_poll(rig);
		CHECK(wc.wr_id == (i < 8 ? i : 92 + i));
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == rig->qps[0]->qp_num);
		junk += wc.byte_len != 0 && wc.byte_len != 4096;
	}
	CHECK(junk > 8);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 50, 0, 8) == 0);
	CHECK(rig_poll(rig).wr_id == 50);
	CHECK(rig_post_recv(rig, 0, 51, 0, 0) == 0);
	wc = rig_poll(rig);
	CHECK(wc.wr_id == 51 && wc.status == IBV_WC_WR_FLUSH_ERR);
	rig_barrier(rig);
	rig_close(rig);
}

static void test_flush(void **state)
{
	(void)state;
	run(flush_one, flush_one);
}

/* The sender uses one PSN, the receiver waits for another: nothing lands, the sender times out. */
static void psn_send(struct rig *rig)
{
	struct rig_qp_options odd = rig_defaults;

	odd.sq_psn = 8;
	rig_open(rig, 0);
	rig_connect(rig, 0, &odd);
	rig_fill(rig, 1, 0, 64);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 64) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_RETRY_EXC_ERR);
	rig_barrier(rig);
	rig_close(rig);
}

static void psn_recv(struct rig *rig)
{
	setup(rig);
	CHECK(rig_post_recv(rig, 0, 1, 0, 0) == 0);
	rig_barrier(rig);
	rig_quiet(rig, 2);
	CHECK(rig_blank(rig, 0, 64));
	rig_close(rig);
}

static void test_psn(void **state)
{
	(void)state;
	run(psn_send, psn_recv);
}

/* PSNs run on over 24 bits: start just below the end. */
static void wrap_both(struct rig *rig)
{
	struct rig_qp_options high = rig_defaults;

	high.sq_psn = 0xfffffe;
	high.rq_psn = 0xfffffe;
	rig_open(rig, 0);
	rig_connect(rig, 0, &high);
	for (uint32_t i = 0; i < 5; i++) {
		CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, i, 0, 20 * KB) == 0);
		CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	}
	rig_barrier(rig);
	rig_close(rig);
}

static void test_psn_wrap(void **state)
{
	(void)state;
	run(wrap_both, wrap_both);
}

/* No receive: 0 retries fail at once, 7 wait until one is posted. The payload up to the last
 * packet is there already. */
static void rnr_send(struct rig *rig)
{
	struct rig_qp_options never = rig_defaults;

	never.rnr_retry = 0;
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_connect(rig, 1, &never);
	rig_fill(rig, 1, 0, 10 * KB);
	CHECK(rig_post(rig, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 10 * KB) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_RNR_RETRY_EXC_ERR);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 100 * KB, 0) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_SEND, 3, 0, 10 * KB) == 0);
	rig_quiet(rig, 5);
	rig_barrier(rig);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	rig_barrier(rig);
	rig_close(rig);
}

static void rnr_recv(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_connect(rig, 1, &rig_defaults);
	rig_barrier(rig);
	CHECK(rig_holds(rig, 1, 0, 8 * KB) && rig_blank(rig, 8 * KB, 2 * KB));
	CHECK(rig_post_recv(rig, 0, 1, 0, 0) == 0);
	CHECK(rig_post_recv(rig, 0, 2, 50 * KB, 10 * KB) == 0);
	CHECK(rig_poll(rig).wr_id == 1 && rig_poll(rig).wr_id == 2);
	rig_barrier(rig);
	rig_close(rig);
}

static void test_rnr(void **state)
{
	(void)state;
	run(rnr_send, rnr_recv);
}

/* An RDMA read of a QP connected to itself, as NCCL's flush does it. */
static void loop_one(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect_self(rig, 0);
	rig_fill(rig, 1, 0, 8 * KB);
	rig->peer_buf = (uint64_t)(uintptr_t)rig->buf - 8 * KB;
	rig->peer_rkey = rig->mr->rkey;
	for (uint32_t i = 0; i < 100; i++) {
		CHECK(rig_post(rig, 0, IBV_WR_RDMA_READ, i, 8 * KB, i == 0 ? 8 * KB : 1) == 0);
		CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	}
	CHECK(memcmp(rig->buf, rig->buf + 8 * KB, 8 * KB) == 0);
	rig_close(rig);
}

static void test_loopback(void **state)
{
	(void)state;
	run(loop_one, loop_one);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operations), cmocka_unit_test(test_lists_inline),
		cmocka_unit_test(test_queue_full), cmocka_unit_test(test_states),
		cmocka_unit_test(test_flush),      cmocka_unit_test(test_psn),
		cmocka_unit_test(test_psn_wrap),   cmocka_unit_test(test_rnr),
		cmocka_unit_test(test_loopback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
