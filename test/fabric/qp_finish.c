/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/qp.h"

/* How work requests end: completed, failed, flushed. */

static enum ibv_wc_opcode send_wc_opcode(uint32_t opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return IBV_WC_SEND;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_RDMA_WRITE;
	}
}

static void push_own(struct fab_qp *qp, struct fab_cq *cq, struct fab_completion *completion)
{
	struct fab_inst *inst = qp->ctx->inst;

	completion->qpn = qp->ibv.qp_num;
	completion->qp_idx = qp->idx;
	completion->qp_gen = atomic_load_explicit(&qp->slot->gen, memory_order_relaxed);
	if (fab_cq_push(inst, cq->idx, inst->id, completion)) {
		fab_inst_ring(inst); /* this very engine, in its next round */
	}
}

void fab_send_complete(struct fab_qp *qp, enum ibv_wc_status status)
{
	uint64_t number = atomic_load_explicit(&qp->sq_acked, memory_order_relaxed);
	const struct fab_swr *wr = fab_qp_swr(qp, number);
	struct fab_completion completion = {
		.wr_id = wr->wr_id,
		.wqe_idx = number,
		.status = status,
		.opcode = send_wc_opcode(wr->opcode),
		.byte_len = (uint32_t)wr->len_bytes,
		.src_qpn = qp->dest_qpn,
	};

	if (status != IBV_WC_SUCCESS || (wr->flags & IBV_SEND_SIGNALED) != 0) {
		push_own(qp, qp->send_cq, &completion);
	}
	atomic_store_explicit(&qp->sq_acked, number + 1, memory_order_release);
}

void fab_send_fail(struct fab_qp *qp, enum ibv_wc_status status)
{
	/* The state first: who sees the completion finds the QP in ERR. Sequentially consistent
	 * against a peer's claim, like any fence. */
	atomic_store_explicit(&qp->slot->state, IBV_QPS_ERR, memory_order_seq_cst);
	fab_send_complete(qp, status);
}

static bool flush_receives(struct fab_qp *qp)
{
	struct fab_qp_slot *slot = qp->slot;
	struct fab_inst *inst = qp->ctx->inst;
	uint64_t claim;

	if (atomic_load_explicit(&slot->rq_head, memory_order_acquire) ==
	    atomic_load_explicit(&slot->rq_tail, memory_order_seq_cst)) {
		return true;
	}
	claim = fab_claim_begin(slot, inst->id);
	if (claim == 0 || !fab_claim_move(slot, claim, FAB_CLAIM_LOOK, FAB_CLAIM_FINISH)) {
		return false; /* a peer is still placing; it leaves soon */
	}
	while (atomic_load_explicit(&slot->rq_head, memory_order_relaxed) !=
	       atomic_load_explicit(&slot->rq_tail, memory_order_seq_cst)) {
		struct fab_completion completion = {.status = IBV_WC_WR_FLUSH_ERR};

		if (fab_recv_complete(inst, slot, qp->idx, inst->id, &completion)) {
			fab_inst_ring(inst);
		}
	}
	fab_claim_end(slot, claim);
	return true;
}

/* No receive of the shared queue is this QP's any more: told once each time it goes to ERR. */
static void tell_last_receive(struct fab_qp *qp)
{
	struct fab_event event = {
		.type = IBV_EVENT_QP_LAST_WQE_REACHED,
		.kind = FAB_EVENT_QP,
		.number = qp->ibv.qp_num,
	};

	if (qp->ibv.srq != NULL && !qp->last_told) {
		qp->last_told = true;
		fab_inst_post_event(qp->ctx->inst, &event);
	}
}

bool fab_qp_flush(struct fab_qp *qp)
{
	while (atomic_load_explicit(&qp->sq_acked, memory_order_relaxed) !=
	       atomic_load_explicit(&qp->sq_tail, memory_order_acquire)) {
		fab_send_complete(qp, IBV_WC_WR_FLUSH_ERR);
	}
	atomic_store_explicit(&qp->sq_next,
			      atomic_load_explicit(&qp->sq_acked, memory_order_relaxed),
			      memory_order_relaxed);
	if (!flush_receives(qp)) {
		return false;
	}
	tell_last_receive(qp);
	return true;
}

bool fab_recv_complete(struct fab_inst *inst, struct fab_qp_slot *slot, uint32_t qp_idx,
		       uint32_t producer, struct fab_completion *completion)
{
	uint64_t number = atomic_load_explicit(&slot->rq_head, memory_order_relaxed);
	const struct fab_rqe *rqe = fab_qp_rqe(inst, slot, number);
	bool ring;

	completion->wr_id = rqe->wr_id;
	completion->wqe_idx = number;
	if (completion->opcode == 0) {
		completion->opcode = IBV_WC_RECV;
	}
	completion->qpn = atomic_load_explicit(&slot->qpn, memory_order_relaxed);
	completion->src_qpn = slot->dest_qpn;
	completion->qp_idx = qp_idx;
	completion->qp_gen = atomic_load_explicit(&slot->gen, memory_order_relaxed);
	ring = fab_cq_push(inst, slot->recv_cq_idx, producer, completion);
	atomic_store_explicit(&slot->rq_head, number + 1, memory_order_release);
	return ring;
}
