/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/claim.h"

#include "test/fabric/gpu.h"

#include <infiniband/verbs.h>

#include <sched.h>
#include <unistd.h>

#define CLAIM_SPIN_NS 2000000ull

static _Atomic uint64_t claim_number;

uint64_t fab_claim_begin(struct fab_qp_slot *qp, uint32_t id)
{
	uint64_t number = atomic_fetch_add_explicit(&claim_number, 1, memory_order_relaxed) + 1;
	uint64_t claim = (uint64_t)id << 48 | (number << 2 & 0xffffffffffffull);
	uint64_t none = 0;

	return atomic_compare_exchange_strong(&qp->claim, &none, claim) ? claim : 0;
}

bool fab_claim_move(struct fab_qp_slot *qp, uint64_t claim, uint64_t from, uint64_t to)
{
	uint64_t expect = claim | from;

	return atomic_compare_exchange_strong(&qp->claim, &expect, claim | to);
}

bool fab_claim_end(struct fab_qp_slot *qp, uint64_t claim)
{
	uint64_t looking = claim | FAB_CLAIM_LOOK;
	uint64_t finishing = claim | FAB_CLAIM_FINISH;

	return atomic_compare_exchange_strong(&qp->claim, &looking, 0) ||
	       atomic_compare_exchange_strong(&qp->claim, &finishing, 0);
}

/* The holder died in its book-keeping: a receive whose completion is out counts as consumed. */
static void claim_mend(struct fab_inst *inst, struct fab_qp_slot *qp)
{
	struct fab_cq_slot *cq = &inst->cqs[qp->recv_cq_idx];
	struct fab_cqe *ring = fab_inst_at(inst, cq->ring_off);
	uint64_t head = atomic_load_explicit(&qp->rq_head, memory_order_acquire);
	uint32_t qpn = atomic_load_explicit(&qp->qpn, memory_order_acquire);
	bool out = atomic_load_explicit(&qp->rq_polled, memory_order_acquire) > head;

	for (uint32_t i = 0; i < cq->size && !out; i++) {
		uint64_t ctl = atomic_load_explicit(&ring[i].ctl, memory_order_acquire);

		out = (ctl & 3) == FAB_CQE_VALID && ring[i].qpn == qpn && ring[i].wqe_idx == head &&
		      (ring[i].opcode & IBV_WC_RECV) != 0;
	}
	if (out) {
		atomic_store_explicit(&qp->rq_head, head + 1, memory_order_release);
	}
}

/* Tries to take `held` away from a holder that may never give it back. */
static bool claim_strike(struct fab_root *root, struct fab_inst *inst, struct fab_qp_slot *qp,
			 uint64_t held)
{
	enum fab_life life = fab_inst_life(root, (uint32_t)(held >> 48));
	uint64_t phase = held & FAB_CLAIM_PHASES;

	if (life == FAB_LIFE_GONE) {
		if (phase == FAB_CLAIM_FINISH) {
			claim_mend(inst, qp);
		}
		return atomic_compare_exchange_strong(&qp->claim, &held, 0);
	}
	if (life == FAB_LIFE_STOPPED &&
	    (phase == FAB_CLAIM_LOOK ||
	     (phase == FAB_CLAIM_COPY &&
	      atomic_load_explicit(&qp->claim_done, memory_order_acquire) == (held ^ phase)))) {
		return atomic_compare_exchange_strong(&qp->claim, &held, 0);
	}
	return false;
}

static void claims_end(struct fab_root *root, struct fab_inst *inst, struct fab_qp_slot *qp)
{
	uint64_t first = atomic_load_explicit(&qp->claim, memory_order_seq_cst);
	uint64_t start_ns;

	if (first == 0) { /* of thousands of QPs, all but a few */
		return;
	}
	start_ns = fab_now_ns();
	for (;;) {
		uint64_t held = atomic_load_explicit(&qp->claim, memory_order_seq_cst);

		if (held == 0 || ((held ^ first) & ~FAB_CLAIM_PHASES) != 0) {
			return;
		}
		if (fab_now_ns() - start_ns < CLAIM_SPIN_NS) {
			sched_yield();
			continue;
		}
		if (claim_strike(root, inst, qp, held)) {
			return;
		}
		usleep(200);
	}
}

void fab_claim_drain(struct fab_root *root, struct fab_inst *inst, struct fab_qp_slot *qp)
{
	claims_end(root, inst, qp);
	fab_gpu_settle(inst);
}
