/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/port.h"
#include "test/fabric/qp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_MSG_BYTES (1ull << 31)

static int opcode_check(enum ibv_wr_opcode opcode)
{
	char name[64];

	switch ((int)opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return 0;
	default:
		snprintf(name, sizeof(name), "ibv_post_send: opcode %d", (int)opcode);
		return fab_unsupported(name);
	}
}

static uint64_t list_length(const struct ibv_sge *list, int count)
{
	uint64_t len = 0;

	for (int i = 0; i < count; i++) {
		len += list[i].length;
	}
	return len;
}

static bool is_atomic(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static int send_check(const struct fab_qp *qp, const struct ibv_send_wr *wr, uint64_t len)
{
	int rc = opcode_check(wr->opcode);

	if (rc != 0) {
		return rc;
	}
	if (fab_qp_is_uc(qp) && (wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr))) {
		return EINVAL;
	}
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge ||
	    len > MAX_MSG_BYTES) {
		return EINVAL;
	}
	if (is_atomic(wr) && len != sizeof(uint64_t)) {
		return EINVAL;
	}
	if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
		if (wr->opcode == IBV_WR_RDMA_READ || is_atomic(wr)) {
			return EINVAL;
		}
		return len > qp->cap.max_inline_data ? ENOMEM : 0;
	}
	return 0;
}

static void inline_copy(const struct fab_qp *qp, struct fab_swr *slot, const struct ibv_send_wr *wr)
{
	char *to = fab_qp_inline(qp, slot);

	slot->sge[0].addr = (uint64_t)(uintptr_t)to;
	slot->sge[0].len_bytes = (uint32_t)slot->len_bytes;
	slot->sge[0].lkey = 0;
	slot->sge_count = slot->len_bytes > 0 ? 1 : 0;
	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(to, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		to += wr->sg_list[i].length;
	}
}

/* When a send posted now may arrive; never before the one posted before it. */
static uint64_t start_ns(struct fab_qp *qp)
{
	const struct fab_lib *lib = qp->ctx->lib;
	uint64_t delay_ns =
		lib->latency_ns +
		fab_port_delay_ns(qp->port, fab_root_port(lib->root, qp->peer_host, qp->peer_rail),
				  &qp->delay_dice);
	uint64_t at_ns = delay_ns == 0 ? 0 : fab_now_ns() + delay_ns;

	qp->start_ns = at_ns > qp->start_ns ? at_ns : qp->start_ns;
	return qp->start_ns;
}

static void send_copy(struct fab_qp *qp, struct fab_swr *slot, const struct ibv_send_wr *wr,
		      uint64_t len)
{
	slot->wr_id = wr->wr_id;
	slot->opcode = wr->opcode;
	slot->flags = (uint32_t)wr->send_flags | (qp->sq_sig_all != 0 ? IBV_SEND_SIGNALED : 0);
	slot->imm_data = wr->imm_data;
	if (is_atomic(wr)) {
		slot->remote_addr = wr->wr.atomic.remote_addr;
		slot->rkey = wr->wr.atomic.rkey;
		slot->compare_add = wr->wr.atomic.compare_add;
		slot->swap = wr->wr.atomic.swap;
	} else {
		slot->remote_addr = wr->wr.rdma.remote_addr;
		slot->rkey = wr->wr.rdma.rkey;
	}
	slot->len_bytes = len;
	slot->start_ns = start_ns(qp);
	slot->ack_ns = UINT64_MAX;
	slot->edges = 0;
	if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
		inline_copy(qp, slot, wr);
		return;
	}
	slot->sge_count = (uint32_t)wr->num_sge;
	for (uint32_t i = 0; i < slot->sge_count; i++) {
		slot->sge[i].addr = wr->sg_list[i].addr;
		slot->sge[i].len_bytes = wr->sg_list[i].length;
		slot->sge[i].lkey = wr->sg_list[i].lkey;
	}
}

static int send_one(struct fab_qp *qp, const struct ibv_send_wr *wr)
{
	uint64_t tail = atomic_load_explicit(&qp->sq_tail, memory_order_relaxed);
	uint64_t len = list_length(wr->sg_list, wr->num_sge);
	int rc = send_check(qp, wr, len);

	if (rc != 0) {
		return rc;
	}
	/* As on an adapter, space comes back when a later completion is polled. */
	if (tail - atomic_load_explicit(&qp->slot->sq_polled, memory_order_acquire) >=
	    qp->cap.max_send_wr) {
		return ENOMEM;
	}
	send_copy(qp, fab_qp_swr(qp, tail), wr, len);
	atomic_store_explicit(&qp->sq_tail, tail + 1, memory_order_release);
	return 0;
}

int fab_qp_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct fab_qp *qp = fab_qp_of(ibv);
	enum ibv_qp_state state = fab_qp_state(qp->slot);
	int rc = 0;

	if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR) {
		*bad_wr = wr;
		return EINVAL;
	}
	pthread_mutex_lock(&qp->post_lock);
	while (wr != NULL && rc == 0) {
		rc = send_one(qp, wr);
		if (rc != 0) {
			*bad_wr = wr;
		}
		wr = wr->next;
	}
	pthread_mutex_unlock(&qp->post_lock);
	fab_engine_posted(qp->ctx, qp);
	return rc;
}

static int recv_one(struct fab_qp *qp, const struct ibv_recv_wr *wr)
{
	struct fab_qp_slot *slot = qp->slot;
	uint64_t tail = atomic_load_explicit(&slot->rq_tail, memory_order_relaxed);

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > slot->rq_max_sge) {
		return EINVAL;
	}
	if (tail - atomic_load_explicit(&slot->rq_polled, memory_order_acquire) >=
	    qp->cap.max_recv_wr) {
		return ENOMEM;
	}
	fab_rqe_fill(fab_qp_rqe(qp->ctx->inst, slot, tail), wr);
	atomic_store_explicit(&slot->rq_tail, tail + 1, memory_order_seq_cst);
	return 0;
}

int fab_qp_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct fab_qp *qp = fab_qp_of(ibv);
	int rc = 0;

	if (fab_qp_state(qp->slot) == IBV_QPS_RESET || ibv->srq != NULL) {
		*bad_wr = wr;
		return EINVAL;
	}
	pthread_mutex_lock(&qp->recv_lock);
	while (wr != NULL && rc == 0) {
		rc = recv_one(qp, wr);
		if (rc != 0) {
			*bad_wr = wr;
		}
		wr = wr->next;
	}
	pthread_mutex_unlock(&qp->recv_lock);
	/* After the store of rq_tail, so a move to ERR is seen here or the engine sees the WR. */
	if (fab_qp_state(qp->slot) == IBV_QPS_ERR) {
		fab_engine_kick(qp->ctx, qp);
	}
	return rc;
}
