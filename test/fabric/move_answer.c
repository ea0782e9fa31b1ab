/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/action.h"
#include "test/fabric/move.h"

/* What comes back when a step moved nothing, and what the requester makes of it. */

#define AGAIN_NS 1000000ull

static uint64_t rnr_delay_ns(uint32_t code)
{
	/* The IB specification's table of FAB_RNR NAK timer values, in units of 10 us. */
	static const uint32_t tens_us[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
					     16,    24,   32,   48,    64,    96,    128,   192,
					     256,   384,  512,  768,   1024,  1536,  2048,  3072,
					     4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

	return (uint64_t)tens_us[code & 31] * 10000ull;
}

/* Does an answer come back, from a process that still is? */
static bool answer_arrives(const struct fab_move *m)
{
	return fab_port_ack_open(m->path.own_port, m->path.peer_port) &&
	       fab_inst_life(m->qp->ctx->lib->root, m->path.peer->id) != FAB_LIFE_GONE;
}

static uint64_t answer_rnr(struct fab_move *m)
{
	struct fab_qp *qp = m->qp;
	uint32_t timer = m->path.slot->min_rnr_timer;

	/* Without the claim from here on, since asking for the process takes long. */
	if (!fab_claim_end(m->path.slot, m->claim) || !answer_arrives(m)) {
		fab_send_lost(qp, m->now_ns);
		return 0;
	}
	if (qp->rnr_retry != 7 && qp->tx.rnr_tries >= qp->rnr_retry) {
		fab_send_fail_at_next(qp, IBV_WC_RNR_RETRY_EXC_ERR);
		return 0;
	}
	qp->tx.rnr_tries++;
	qp->tx.rnr_ns = m->now_ns + rnr_delay_ns(timer);
	fab_send_moved(qp, &m->path, m->now_ns);
	return qp->tx.rnr_ns;
}

/* A send that does not fit its receive, or whose receive is bad, is seen there too. */
static void spoil_receive(struct fab_move *m, enum ibv_wc_status status)
{
	struct fab_completion completion = {
		.status = status == IBV_WC_REM_OP_ERR ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR,
	};

	if (!fab_receive_ready(m->path.peer, m->path.slot)) {
		return;
	}
	m->ring |= fab_recv_complete(m->path.peer, m->path.slot, m->path.slot_idx,
				     m->qp->ctx->inst->id, &completion);
}

static enum ibv_wc_status verdict_status(enum fab_verdict verdict)
{
	return verdict == FAB_REM_ACCESS    ? IBV_WC_REM_ACCESS_ERR
	       : verdict == FAB_REM_INVALID ? IBV_WC_REM_INV_REQ_ERR
					    : IBV_WC_REM_OP_ERR;
}

/* The responder refuses for good: its QP breaks. False: it was fenced meanwhile. */
static bool nak_responder(struct fab_move *m, enum ibv_wc_status status)
{
	/* From a look, or from a copy that failed and is finishing already. */
	if (m->claim_phase == FAB_CLAIM_LOOK &&
	    !fab_claim_move(m->path.slot, m->claim, FAB_CLAIM_LOOK, FAB_CLAIM_FINISH)) {
		return false;
	}
	if (fab_wr_is_send(m->wr)) {
		spoil_receive(m, status);
	}
	(void)fab_action_break_qp(m->path.peer, m->path.slot, IBV_EVENT_QP_ACCESS_ERR);
	return true;
}

/* ... and the requester hears of it if it can. */
static uint64_t answer_nak(struct fab_move *m, enum ibv_wc_status status)
{
	if (!nak_responder(m, status) || !answer_arrives(m)) {
		fab_send_lost(m->qp, m->now_ns);
		return 0;
	}
	fab_send_fail_at_next(m->qp, status);
	return 0;
}

/* The requester hears again what it missed, unless it still cannot. */
static uint64_t answer_again(struct fab_move *m)
{
	struct fab_sender *tx = &m->qp->tx;
	bool arrives = fab_claim_end(m->path.slot, m->claim) && answer_arrives(m);

	tx->psn = (tx->psn + fab_wr_packets(m->qp, m->wr)) & FAB_PSN_MASK;
	if (arrives) {
		fab_send_sent(m->qp, &m->path, m->now_ns, FAB_ACK_IF_OPEN);
	} else {
		fab_send_held(m->qp, m->now_ns);
	}
	return 0;
}

/* UC: nothing comes back, and the rest of the message is not worth sending. */
static uint64_t answer_never(struct fab_move *m)
{
	struct fab_sender *tx = &m->qp->tx;

	tx->psn = (tx->psn + fab_wr_packets(m->qp, m->wr)) & FAB_PSN_MASK;
	fab_send_held(m->qp, m->now_ns);
	return 0;
}

uint64_t fab_move_answer(struct fab_move *m, enum fab_verdict verdict)
{
	if (m->late != NULL) { /* nobody waits for an answer; only the responder may break */
		if (verdict >= FAB_REM_ACCESS && verdict <= FAB_REM_OP && !fab_qp_is_uc(m->qp)) {
			nak_responder(m, verdict_status(verdict));
		}
		return 0;
	}
	if (fab_qp_is_uc(m->qp) && verdict != FAB_GO_ON && verdict != FAB_LOCAL_PROT) {
		return answer_never(m);
	}
	switch (verdict) {
	case FAB_DUPLICATE:
		return answer_again(m);
	case FAB_LOST:
		fab_send_lost(m->qp, m->now_ns);
		return 0;
	case FAB_RNR:
		return answer_rnr(m);
	case FAB_BUSY:
		return fab_now_ns() + AGAIN_NS; /* not lost, so no timer */
	case FAB_REM_ACCESS:
	case FAB_REM_INVALID:
	case FAB_REM_OP:
		return answer_nak(m, verdict_status(verdict));
	case FAB_LOCAL_PROT:
		if (!fab_send_is_oldest(m->qp)) {
			return UINT64_MAX; /* the ones before it are answered first */
		}
		fab_send_fail_at_next(m->qp, IBV_WC_LOC_PROT_ERR);
		return 0;
	case FAB_GO_ON:
	default:
		return 0;
	}
}
