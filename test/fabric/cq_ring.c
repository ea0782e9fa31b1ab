/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/cq.h"

#define LAP_MASK ((1ull << 46) - 1)

static uint64_t ctl_make(uint32_t producer, uint64_t lap, uint64_t phase)
{
	return (uint64_t)producer << 48 | (lap & LAP_MASK) << 2 | phase;
}

static uint64_t ctl_bare(uint64_t ctl)
{
	return ctl & ~(0xffffull << 48);
}

static uint64_t lap_of(uint64_t pos, uint32_t size)
{
	return pos >> __builtin_ctz(size);
}

static struct fab_cqe *cqe_at(struct fab_cqe *ring, uint32_t size, uint64_t pos)
{
	return &ring[pos & (size - 1)];
}

/* Takes the slot at the tail. Returns its position, or UINT64_MAX when the ring is full. */
static uint64_t slot_take(struct fab_cq_slot *cq, struct fab_cqe *ring, uint32_t producer)
{
	for (;;) {
		uint64_t pos = atomic_load_explicit(&cq->tail, memory_order_acquire);
		uint64_t lap = lap_of(pos, cq->size);
		struct fab_cqe *cqe = cqe_at(ring, cq->size, pos);
		uint64_t free_ctl = ctl_make(0, lap, FAB_CQE_FREE);
		uint64_t seen = free_ctl;
		uint64_t expect = pos;

		/* Signed: the head may have passed a position read a moment ago. */
		if ((int64_t)(pos - atomic_load_explicit(&cq->head, memory_order_acquire)) >=
		    (int64_t)cq->size) {
			return UINT64_MAX;
		}
		if (atomic_compare_exchange_strong(&cqe->ctl, &seen,
						   ctl_make(producer, lap, FAB_CQE_TAKEN))) {
			atomic_compare_exchange_strong(&cq->tail, &expect, pos + 1);
			return pos;
		}
		/* Somebody took it and may have been stopped before moving the tail: help. */
		atomic_compare_exchange_strong(&cq->tail, &expect, pos + 1);
	}
}

static bool arm_fires(struct fab_cq_slot *cq, bool solicited)
{
	uint32_t armed = atomic_load_explicit(&cq->armed, memory_order_seq_cst);

	/* Again when it was armed otherwise meanwhile. */
	while (armed == FAB_CQ_ANY || (armed == FAB_CQ_SOLICITED && solicited)) {
		if (atomic_compare_exchange_weak(&cq->armed, &armed, FAB_CQ_UNARMED)) {
			return true;
		}
	}
	return false;
}

static void overrun(struct fab_inst *inst, uint32_t cq_idx)
{
	struct fab_event event = {
		.type = IBV_EVENT_CQ_ERR,
		.kind = FAB_EVENT_CQ,
		.number = cq_idx,
	};

	if (atomic_exchange_explicit(&inst->cqs[cq_idx].overrun, 1, memory_order_relaxed) == 0) {
		fab_inst_post_event(inst, &event);
	}
}

bool fab_cq_push(struct fab_inst *inst, uint32_t cq_idx, uint32_t producer,
		 const struct fab_completion *completion)
{
	struct fab_cq_slot *cq = &inst->cqs[cq_idx];
	struct fab_cqe *ring = fab_inst_at(inst, cq->ring_off);
	uint64_t pos = slot_take(cq, ring, producer);
	struct fab_cqe *cqe;

	if (pos == UINT64_MAX) {
		overrun(inst, cq_idx);
		return false;
	}
	cqe = cqe_at(ring, cq->size, pos);
	cqe->wr_id = completion->wr_id;
	cqe->wqe_idx = completion->wqe_idx;
	cqe->status = completion->status;
	cqe->opcode = completion->opcode;
	cqe->byte_len = completion->byte_len;
	cqe->imm_data = completion->imm_data;
	cqe->qpn = completion->qpn;
	cqe->src_qpn = completion->src_qpn;
	cqe->wc_flags = completion->wc_flags;
	cqe->qp_idx = completion->qp_idx;
	cqe->qp_gen = completion->qp_gen;
	cqe->vendor_err = completion->status == IBV_WC_SUCCESS ? 0 : 0xfab;
	/* Sequentially consistent, against the consumer: it arms, then polls once more. */
	atomic_store_explicit(&cqe->ctl, ctl_make(0, lap_of(pos, cq->size), FAB_CQE_VALID),
			      memory_order_seq_cst);
	if (!arm_fires(cq, completion->solicited || completion->status != IBV_WC_SUCCESS)) {
		return false;
	}
	atomic_store_explicit(&cq->fired, 1, memory_order_release);
	atomic_store_explicit(&inst->comp_due, 1, memory_order_release);
	return true;
}

/* Taken long ago and never published: is its producer dead? */
static bool head_is_orphan(struct fab_cq *cq, uint64_t ctl)
{
	uint64_t now_ns = fab_now_ns();

	if (cq->stuck_since_ns == 0) {
		cq->stuck_since_ns = now_ns;
	}
	if (now_ns - cq->stuck_since_ns < 5000000) {
		return false;
	}
	cq->stuck_since_ns = now_ns;
	return fab_inst_life(cq->ctx->lib->root, (uint32_t)(ctl >> 48)) == FAB_LIFE_GONE;
}

/* Looks at the head. 1: *out holds the entry, which is consumed; 0: empty; -1: look again. */
static int head_take(struct fab_cq *cq, struct fab_cqe *out)
{
	struct fab_cq_slot *slot = cq->slot;
	uint64_t pos = atomic_load_explicit(&cq->next, memory_order_relaxed);
	uint64_t lap = lap_of(pos, cq->size);
	struct fab_cqe *cqe = cqe_at(cq->ring, cq->size, pos);
	uint64_t ctl = atomic_load_explicit(&cqe->ctl, memory_order_seq_cst);
	int found = 1;

	if (ctl_bare(ctl) == ctl_make(0, lap, FAB_CQE_TAKEN)) {
		if (!head_is_orphan(cq, ctl)) {
			return 0;
		}
		found = -1;
	} else if (ctl_bare(ctl) != ctl_make(0, lap, FAB_CQE_VALID)) {
		return 0;
	} else {
		out->wr_id = cqe->wr_id;
		out->wqe_idx = cqe->wqe_idx;
		out->status = cqe->status;
		out->opcode = cqe->opcode;
		out->vendor_err = cqe->vendor_err;
		out->byte_len = cqe->byte_len;
		out->imm_data = cqe->imm_data;
		out->qpn = cqe->qpn;
		out->src_qpn = cqe->src_qpn;
		out->wc_flags = cqe->wc_flags;
		out->qp_idx = cqe->qp_idx;
		out->qp_gen = cqe->qp_gen;
	}
	cq->stuck_since_ns = 0;
	/* The tail may lag behind a producer that died before moving it. */
	if (atomic_load_explicit(&slot->tail, memory_order_acquire) == pos) {
		uint64_t expect = pos;

		atomic_compare_exchange_strong(&slot->tail, &expect, pos + 1);
	}
	atomic_store_explicit(&cqe->ctl, ctl_make(0, lap + 1, FAB_CQE_FREE), memory_order_release);
	atomic_store_explicit(&slot->head, pos + 1, memory_order_release);
	atomic_store_explicit(&cq->next, pos + 1, memory_order_relaxed);
	return found;
}

static void advance(_Atomic uint64_t *number, uint64_t to)
{
	if (atomic_load_explicit(number, memory_order_relaxed) < to) {
		atomic_store_explicit(number, to, memory_order_release);
	}
}

/* Gives the WR's place in its queue back, as polling does. False: its QP was reset or destroyed
 * since, so the completion is no more. */
static bool entry_settle(struct fab_cq *cq, const struct fab_cqe *cqe)
{
	struct fab_qp_slot *qp = &cq->ctx->inst->qps[cqe->qp_idx];

	if (atomic_load_explicit(&qp->qpn, memory_order_acquire) != cqe->qpn ||
	    atomic_load_explicit(&qp->gen, memory_order_acquire) != cqe->qp_gen) {
		return false;
	}
	advance((cqe->opcode & IBV_WC_RECV) != 0 ? &qp->rq_polled : &qp->sq_polled,
		cqe->wqe_idx + 1);
	return true;
}

/* The caller's struct may be another release's: fields only. On an error only four of them mean
 * anything; the others are set to what nobody would expect. */
static void wc_fill(struct ibv_wc *wc, const struct fab_cqe *cqe)
{
	bool good = cqe->status == IBV_WC_SUCCESS;
	uint32_t junk = 0xdeadbe00u ^ (uint32_t)cqe->wqe_idx * 2654435761u;

	wc->wr_id = cqe->wr_id;
	wc->status = (enum ibv_wc_status)cqe->status;
	wc->vendor_err = cqe->vendor_err;
	wc->qp_num = cqe->qpn;
	wc->opcode = good ? (enum ibv_wc_opcode)cqe->opcode : (enum ibv_wc_opcode)(junk & 0xff);
	wc->byte_len = good ? cqe->byte_len : junk;
	wc->imm_data = good ? cqe->imm_data : ~junk;
	wc->src_qp = good ? cqe->src_qpn : junk >> 8;
	wc->wc_flags = good ? cqe->wc_flags : junk & (IBV_WC_GRH | IBV_WC_WITH_IMM);
	wc->pkey_index = good ? 0 : (uint16_t)junk;
	wc->slid = good ? 0 : (uint16_t)junk;
	wc->sl = good ? 0 : (uint8_t)junk;
	wc->dlid_path_bits = good ? 0 : (uint8_t)junk;
}

/*
 * Is there nothing to take? Without the lock, since programs ask far more often than something is
 * there. An entry that was taken never reads FREE in the same lap again: if the one at `next` does,
 * it has not come yet, and what is behind it is not to be had before it. If it is taken and not
 * published, or `next` is old because another thread polls, it reads otherwise; the lock decides.
 *
 * Who armed before, and finds nothing, gets an event: this load, arming, publishing and the
 * producer's look at `armed` are sequentially consistent. The load that reads FREE comes before the
 * entry is published, so the arming comes before that entry's producer looks. An old `next` makes
 * no difference, it only means that the entry whose producer finds the queue armed is another one.
 */
static bool is_empty(struct fab_cq *cq)
{
	uint64_t pos = atomic_load_explicit(&cq->next, memory_order_relaxed);
	uint64_t ctl =
		atomic_load_explicit(&cqe_at(cq->ring, cq->size, pos)->ctl, memory_order_seq_cst);

	return ctl == ctl_make(0, lap_of(pos, cq->size), FAB_CQE_FREE);
}

static int poll_locked(struct fab_cq *cq, int count, struct ibv_wc *wc)
{
	struct fab_cqe cqe = {0}; /* gcc 13 does not see that head_take() fills it */
	int done = 0;

	pthread_mutex_lock(&cq->poll_lock);
	while (done < count) {
		int found = head_take(cq, &cqe);

		if (found == 0) {
			break;
		}
		if (found > 0 && entry_settle(cq, &cqe)) {
			wc_fill(&wc[done++], &cqe);
		}
	}
	pthread_mutex_unlock(&cq->poll_lock);
	return done;
}

int fab_cq_poll(struct ibv_cq *ibv, int count, struct ibv_wc *wc)
{
	struct fab_cq *cq = fab_cq_of(ibv);

	return is_empty(cq) ? 0 : poll_locked(cq, count, wc);
}

int fab_cq_req_notify(struct ibv_cq *ibv, int solicited_only)
{
	struct fab_cq *cq = fab_cq_of(ibv);
	uint32_t was = FAB_CQ_UNARMED;

	if (solicited_only == 0) {
		atomic_store_explicit(&cq->slot->armed, FAB_CQ_ANY, memory_order_seq_cst);
	} else { /* does not take back that any completion was asked for */
		atomic_compare_exchange_strong(&cq->slot->armed, &was, FAB_CQ_SOLICITED);
	}
	return 0;
}
