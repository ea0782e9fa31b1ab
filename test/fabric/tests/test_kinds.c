/* SPDX-License-Identifier: Apache-2.0 */

/* Atomic operations, QPs without acknowledgements, and the last receive of a QP on a shared queue.
 */

#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KB     1024u
#define COUNTS 10000u

#define ALL_ACCESS                                                                                 \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

static void install(struct rig *rig, const char *rule)
{
	char why[200] = "";

	if (fabric_ctl_fault(rig->ctl, rule, NULL, why, sizeof(why)) != 0) {
		fprintf(stderr, "%s: %s\n", rule, why);
		_exit(1);
	}
}

static uint16_t own_lid(struct rig *rig)
{
	struct ibv_port_attr port;

	CHECK(ibv_query_port(rig->context, 1, &port) == 0);
	return port.lid;
}

/* Where an atomic operation goes. */
struct target {
	uint64_t addr;
	uint32_t rkey;
};

static int post_atomic(struct rig *rig, struct ibv_qp *qp, enum ibv_wr_opcode opcode,
		       const struct target *to, const uint64_t operands[2])
{
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)rig->buf,
		.length = 8,
		.lkey = rig->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.atomic = {.remote_addr = to->addr,
			      .rkey = to->rkey,
			      .compare_add = operands[0],
			      .swap = operands[1]},
	};
	struct ibv_send_wr *bad;

	return ibv_post_send(qp, &wr, &bad);
}

static struct ibv_wc do_atomic(struct rig *rig, struct ibv_qp *qp, enum ibv_wr_opcode opcode,
			       const struct target *to, const uint64_t operands[2])
{
	CHECK(post_atomic(rig, qp, opcode, to, operands) == 0);
	return rig_poll(rig);
}

static uint64_t result(const struct rig *rig)
{
	uint64_t value;

	memcpy(&value, rig->buf, sizeof(value));
	return value;
}

static void allow_atomics(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_access_flags = ALL_ACCESS};

	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS) == 0);
}

/* COUNTS additions of 1, up to 16 under way, while somebody else counts too. */
static void count_up(struct rig *rig, struct ibv_qp *qp, const struct target *to)
{
	static const uint64_t one[2] = {1, 0};
	uint32_t posted = 0;

	for (uint32_t done = 0; done < COUNTS; done++) {
		struct ibv_wc wc;

		for (; posted < COUNTS && posted - done < 16; posted++) {
			CHECK(post_atomic(rig, qp, IBV_WR_ATOMIC_FETCH_AND_ADD, to, one) == 0);
		}
		wc = rig_poll(rig);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_FETCH_ADD);
		CHECK(wc.byte_len == 8);
	}
}

static void swap_once(struct rig *rig, const struct target *to)
{
	const uint64_t fits[2] = {2 * COUNTS, 5};
	const uint64_t misses[2] = {4, 9};
	struct ibv_wc wc;

	wc = do_atomic(rig, rig->qps[0], IBV_WR_ATOMIC_CMP_AND_SWP, to, fits);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_COMP_SWAP);
	CHECK(result(rig) == 2 * COUNTS);
	CHECK(do_atomic(rig, rig->qps[0], IBV_WR_ATOMIC_CMP_AND_SWP, to, misses).status ==
	      IBV_WC_SUCCESS);
	CHECK(result(rig) == 5);
}

/* The first acknowledgement is lost; the repetition must not add again. */
static void add_once(struct rig *rig, const struct target *to)
{
	static const uint64_t ten[2] = {10, 0};
	struct fabric_counters c;
	uint64_t before;

	CHECK(fabric_ctl_counters(rig->ctl, 0, 0, &c) == 0);
	before = c.tx_msgs;
	install(rig, "ack_loss host=0 rail=0 dir=tx");
	CHECK(post_atomic(rig, rig->qps[0], IBV_WR_ATOMIC_FETCH_AND_ADD, to, ten) == 0);
	do {
		CHECK(fabric_ctl_counters(rig->ctl, 0, 0, &c) == 0);
	} while (c.tx_msgs == before);
	install(rig, "heal host=0 rail=0");
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS && result(rig) == 5);
}

static void refused(struct rig *rig, const struct target *to)
{
	static const uint64_t one[2] = {1, 0};
	struct target odd = {.addr = to->addr + 4, .rkey = to->rkey};
	struct target plain = {.addr = rig->peer_buf, .rkey = rig->peer_rkey};

	CHECK(do_atomic(rig, rig->qps[1], IBV_WR_ATOMIC_FETCH_AND_ADD, &odd, one).status ==
	      IBV_WC_REM_INV_REQ_ERR);
	CHECK(do_atomic(rig, rig->qps[2], IBV_WR_ATOMIC_FETCH_AND_ADD, &plain, one).status ==
	      IBV_WC_REM_ACCESS_ERR);
	CHECK(do_atomic(rig, rig->qps[3], IBV_WR_ATOMIC_FETCH_AND_ADD, to, one).status ==
	      IBV_WC_REM_INV_REQ_ERR);
}

static struct rig_qp_options enduring(void)
{
	struct rig_qp_options options = rig_defaults;

	options.timeout = 14;
	options.retry_cnt = 7;
	return options;
}

static void atomic_requester(struct rig *rig)
{
	struct rig_qp_options options = enduring();
	struct target to;

	rig_open(rig, 0);
	for (uint32_t i = 0; i < 4; i++) {
		rig_connect(rig, i, &options);
	}
	rig_recv(rig, &to, sizeof(to));
	rig_barrier(rig);
	count_up(rig, rig->qps[0], &to);
	rig_barrier(rig);
	swap_once(rig, &to);
	add_once(rig, &to);
	refused(rig, &to);
	rig_barrier(rig);
	rig_close(rig);
}

static void atomic_responder(struct rig *rig)
{
	struct rig_qp_options options = enduring();
	_Alignas(8) uint64_t counter[2] = {0, 0};
	struct target to = {.addr = (uint64_t)(uintptr_t)counter};
	struct ibv_qp *self;
	struct ibv_mr *mr;

	rig_open(rig, 0);
	for (uint32_t i = 0; i < 4; i++) {
		rig_connect(rig, i, &options);
	}
	for (uint32_t i = 0; i < 3; i++) {
		allow_atomics(rig->qps[i]);
	}
	self = rig_qp_create(rig, &options);
	CHECK(self != NULL && rig_qp_init(self) == 0);
	CHECK(rig_qp_rtr(self, self->qp_num, own_lid(rig), &options) == 0);
	CHECK(rig_qp_rts(self, &options) == 0);
	allow_atomics(self);
	mr = ibv_reg_mr(rig->pd, counter, sizeof(counter), ALL_ACCESS);
	CHECK(mr != NULL);
	to.rkey = mr->rkey;
	rig_send(rig, &to, sizeof(to));
	rig_barrier(rig);
	count_up(rig, self, &to); /* while the peer counts too */
	rig_barrier(rig);
	rig_barrier(rig);
	CHECK(counter[0] == 15 && counter[1] == 0);
	CHECK(ibv_destroy_qp(self) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	rig_close(rig);
}

/* A UC QP of both ends. */
static void connect_uc(struct rig *rig)
{
	struct ibv_qp_init_attr init = {
		.send_cq = rig->cq,
		.recv_cq = rig->cq,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UC,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.rq_psn = 77,
		.sq_psn = 77,
		.ah_attr = {.port_num = 1},
	};
	int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	struct ibv_qp *qp = ibv_create_qp(rig->pd, &init);
	uint32_t mine[2];
	uint32_t peers[2];

	CHECK(qp != NULL && qp->qp_type == IBV_QPT_UC);
	rig->qps[0] = qp;
	mine[0] = qp->qp_num;
	mine[1] = own_lid(rig);
	rig_send(rig, mine, sizeof(mine));
	rig_recv(rig, peers, sizeof(peers));
	CHECK(rig_qp_init(qp) == 0);
	attr.dest_qp_num = peers[0];
	attr.ah_attr.dlid = (uint16_t)peers[1];
	CHECK(ibv_modify_qp(qp, &attr, rtr | IBV_QP_MIN_RNR_TIMER) == EINVAL);
	CHECK(ibv_modify_qp(qp, &attr, rtr) == 0);
	CHECK(rig_qp_rts(qp, &rig_defaults) == EINVAL); /* time-outs and retries: for RC */
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	rig_barrier(rig);
}

static void uc_post(struct rig *rig, enum ibv_wr_opcode opcode, uint32_t offset, uint32_t len)
{
	CHECK(rig_post(rig, 0, opcode, offset, offset, len) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
}

static void uc_sender(struct rig *rig)
{
	uint32_t rkey;

	rig_open(rig, 0);
	connect_uc(rig);
	rig_fill(rig, 3, 0, 64 * KB);
	rig_barrier(rig);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_READ, 0, 0, 8) == EINVAL);
	uc_post(rig, IBV_WR_RDMA_WRITE, 0, 8 * KB);
	uc_post(rig, IBV_WR_RDMA_WRITE_WITH_IMM, 8 * KB, 8 * KB);
	uc_post(rig, IBV_WR_SEND, 16 * KB, 8 * KB);
	uc_post(rig, IBV_WR_SEND, 24 * KB, KB); /* no receive left: lost, and nobody says so */
	rig_barrier(rig);
	rig_barrier(rig);
	install(rig, "cut host=0 rail=0 dir=tx bytes=5000"); /* in the middle of this one */
	uc_post(rig, IBV_WR_RDMA_WRITE_WITH_IMM, 32 * KB, 8 * KB);
	uc_post(rig, IBV_WR_RDMA_WRITE_WITH_IMM, 40 * KB, 8 * KB);
	install(rig, "heal host=0 rail=0");
	rkey = rig->peer_rkey;
	rig->peer_rkey ^= 0x55;
	uc_post(rig, IBV_WR_RDMA_WRITE_WITH_IMM, 48 * KB, KB); /* refused without a word */
	rig->peer_rkey = rkey;
	uc_post(rig, IBV_WR_RDMA_WRITE_WITH_IMM, 56 * KB, 8 * KB);
	rig_barrier(rig);
	rig_close(rig);
}

static void uc_told(struct rig *rig, uint64_t wr_id, enum ibv_wc_opcode opcode, uint32_t offset)
{
	struct ibv_wc wc = rig_poll(rig);

	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == opcode && wc.wr_id == wr_id);
	CHECK(wc.byte_len == 8 * KB);
	CHECK((wc.wc_flags & IBV_WC_WITH_IMM) == 0 || wc.imm_data == (offset ^ 0x01020304u));
}

static void uc_receiver(struct rig *rig)
{
	rig_open(rig, 0);
	connect_uc(rig);
	CHECK(rig_post_recv(rig, 0, 1, 0, 0) == 0);
	CHECK(rig_post_recv(rig, 0, 2, 16 * KB, 8 * KB) == 0);
	rig_barrier(rig);
	rig_barrier(rig);
	uc_told(rig, 1, IBV_WC_RECV_RDMA_WITH_IMM, 8 * KB);
	uc_told(rig, 2, IBV_WC_RECV, 0);
	CHECK(rig_holds(rig, 3, 0, 24 * KB) && rig_blank(rig, 24 * KB, 40 * KB));
	CHECK(rig_post_recv(rig, 0, 3, 0, 0) == 0);
	CHECK(rig_post_recv(rig, 0, 4, 0, 0) == 0);
	rig_barrier(rig);
	rig_barrier(rig);
	uc_told(rig, 3, IBV_WC_RECV_RDMA_WITH_IMM, 56 * KB);
	rig_quiet(rig, 5);
	CHECK(rig_holds(rig, 3, 32 * KB, 5000));
	CHECK(rig_blank(rig, 32 * KB + 5000, 24 * KB - 5000));
	CHECK(rig_holds(rig, 3, 56 * KB, 8 * KB));
	CHECK(!rig_has_event(rig));
	rig_close(rig);
}

static struct ibv_qp *shared_qp(struct rig *rig, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = rig->cq,
		.recv_cq = rig->cq,
		.srq = srq,
		.cap = {.max_send_wr = 4, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(rig->pd, &attr);

	CHECK(qp != NULL && rig_qp_init(qp) == 0);
	CHECK(rig_qp_rtr(qp, qp->qp_num, own_lid(rig), &rig_defaults) == 0);
	return qp;
}

static void last_receive(struct rig *rig)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	struct ibv_async_event event;
	struct ibv_srq *srq;
	struct ibv_qp *qp;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	srq = ibv_create_srq(rig->pd, &init);
	CHECK(srq != NULL);
	qp = shared_qp(rig, srq);
	for (int i = 0; i < 2; i++) {
		CHECK(rig_qp_error(qp) == 0);
		CHECK(rig_qp_error(qp) == 0); /* is there already */
		CHECK(ibv_get_async_event(rig->context, &event) == 0);
		CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED);
		CHECK(event.element.qp == qp);
		ibv_ack_async_event(&event);
		rig_no_event(rig, 5);
		CHECK(ibv_modify_qp(qp, &reset, IBV_QP_STATE) == 0);
		CHECK(rig_qp_init(qp) == 0);
	}
	CHECK(rig_qp_error(rig->qps[0]) == 0); /* has a queue of its own: no event */
	rig_no_event(rig, 5);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_srq(srq) == 0);
	rig_barrier(rig);
	rig_close(rig);
}

static void passive(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_barrier(rig);
	rig_close(rig);
}

static void run(void (*host0)(struct rig *), void (*host1)(struct rig *))
{
	struct rig_case c = {.host0 = host0, .host1 = host1};

	assert_int_equal(rig_run(&c), 0);
}

static void test_atomics(void **state)
{
	(void)state;
	run(atomic_requester, atomic_responder);
}

static void test_uc(void **state)
{
	(void)state;
	run(uc_sender, uc_receiver);
}

static void test_last_receive(void **state)
{
	(void)state;
	run(last_receive, passive);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_atomics),
		cmocka_unit_test(test_uc),
		cmocka_unit_test(test_last_receive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
