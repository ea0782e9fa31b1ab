/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/qp_send.h"

/*
 * One turn of the engine on one QP: complete what was acknowledged, look at the timers, then move
 * one step of the oldest unsent message.
 */

static uint64_t timer_period_ns(const struct fab_qp *qp)
{
	return qp->timeout == 0 ? UINT64_MAX : 4096ull << qp->timeout;
}

/* Starts the transport timer unless it runs. With timeout 0 it never ends. */
static void timer_start(struct fab_qp *qp, uint64_t now_ns)
{
	uint64_t period_ns = timer_period_ns(qp);

	if (qp->tx.retry_ns == 0) {
		qp->tx.tries = 0;
		qp->tx.retry_ns = period_ns == UINT64_MAX ? UINT64_MAX : now_ns + period_ns;
	}
}

static void timer_stop(struct fab_qp *qp)
{
	qp->tx.retry_ns = 0;
	qp->tx.tries = 0;
	qp->tx.blocked = false;
}

void fab_send_lost(struct fab_qp *qp, uint64_t now_ns)
{
	timer_start(qp, now_ns);
	qp->tx.blocked = true;
}

/* Starts again at send `number`. */
static void sender_seek(struct fab_qp *qp, uint64_t number)
{
	atomic_store_explicit(&qp->sq_next, number, memory_order_relaxed);
	qp->tx.pos_bytes = 0;
	qp->tx.rnr_tries = 0;
	qp->tx.psn = number < qp->tx.high ? fab_qp_swr(qp, number)->psn : qp->tx.high_psn;
}

/* Sends before `upto` are acknowledged at `at_ns`: acknowledgements are cumulative. */
static void acks_arrive(struct fab_qp *qp, uint64_t upto, uint64_t at_ns)
{
	for (uint64_t i = atomic_load_explicit(&qp->sq_acked, memory_order_relaxed); i < upto;
	     i++) {
		struct fab_swr *wr = fab_qp_swr(qp, i);

		wr->ack_ns = at_ns < wr->ack_ns ? at_ns : wr->ack_ns;
	}
}

void fab_send_acked(struct fab_qp *qp, const struct fab_path *path, uint64_t upto, uint64_t now_ns)
{
	uint64_t late_ns = fab_port_late_ns(path->peer_port, path->own_port);

	acks_arrive(qp, upto,
		    now_ns + late_ns + qp->ctx->lib->latency_ns +
			    fab_port_delay_ns(path->peer_port, path->own_port, &qp->ack_dice));
	if (late_ns != 0) {
		timer_start(qp, now_ns);
		return;
	}
	timer_stop(qp);
	if (upto < qp->tx.high) {
		timer_start(qp, now_ns);
	}
}

/* The send at sq_next is out, for the first time or again. */
static void sender_next(struct fab_qp *qp)
{
	uint64_t number = atomic_load_explicit(&qp->sq_next, memory_order_relaxed);

	atomic_store_explicit(&qp->sq_next, number + 1, memory_order_relaxed);
	qp->tx.pos_bytes = 0;
	qp->tx.rnr_tries = 0;
	if (number == qp->tx.high) {
		qp->tx.high = number + 1;
		qp->tx.high_psn = qp->tx.psn;
	}
}

static bool ack_drops(struct fab_qp *qp, const struct fab_path *path)
{
	uint64_t ppb = fab_port_drop_ppb(path->peer_port, path->own_port);

	return ppb != 0 && fab_dice_roll(&qp->ack_dice) % 1000000000 < ppb;
}

/* Out of the port is all that UC promises. */
static void sent_unreliably(struct fab_qp *qp, uint64_t now_ns)
{
	sender_next(qp);
	acks_arrive(qp, atomic_load_explicit(&qp->sq_next, memory_order_relaxed), now_ns);
}

void fab_send_sent(struct fab_qp *qp, const struct fab_path *path, uint64_t now_ns,
		   enum fab_ack ack)
{
	uint64_t number = atomic_load_explicit(&qp->sq_next, memory_order_relaxed);
	uint32_t opcode = fab_qp_swr(qp, number)->opcode;

	if (fab_qp_is_uc(qp)) {
		sent_unreliably(qp, now_ns);
		return;
	}
	sender_next(qp);
	/* A read's answer is its data, and that is here. */
	if (ack == FAB_ACK_FORCED || opcode == IBV_WR_RDMA_READ ||
	    (fab_port_ack_open(path->own_port, path->peer_port) && !ack_drops(qp, path))) {
		fab_send_acked(qp, path, number + 1, now_ns);
	} else {
		timer_start(qp, now_ns);
	}
}

void fab_send_held(struct fab_qp *qp, uint64_t now_ns)
{
	if (fab_qp_is_uc(qp)) {
		sent_unreliably(qp, now_ns);
		return;
	}
	sender_next(qp);
	timer_start(qp, now_ns);
}

void fab_send_moved(struct fab_qp *qp, const struct fab_path *path, uint64_t now_ns)
{
	if (fab_qp_is_uc(qp)) {
		return;
	}
	if (!fab_port_ack_open(path->own_port, path->peer_port) ||
	    fab_port_late_ns(path->peer_port, path->own_port) != 0) {
		timer_start(qp, now_ns);
	} else if (fab_send_is_oldest(qp)) {
		timer_stop(qp);
	}
}

/* Completes what is acknowledged by now. Returns when the next one is, UINT64_MAX if unknown. */
static uint64_t acks_take(struct fab_qp *qp, uint64_t now_ns)
{
	uint64_t first = atomic_load_explicit(&qp->sq_acked, memory_order_relaxed);
	uint64_t next_ns = UINT64_MAX;
	uint64_t acked = first;

	while (acked < qp->tx.high && !fab_ctx_dead(qp->ctx)) {
		const struct fab_swr *wr = fab_qp_swr(qp, acked);

		if (wr->ack_ns > now_ns) {
			next_ns = wr->ack_ns;
			break;
		}
		fab_send_complete(qp, IBV_WC_SUCCESS);
		acked++;
	}
	if (acked == first) {
		return next_ns;
	}
	if (acked > atomic_load_explicit(&qp->sq_next, memory_order_relaxed)) {
		sender_seek(qp, acked);
	}
	if (qp->tx.retry_ns != 0) { /* the timer starts afresh for what is still out */
		bool blocked = qp->tx.blocked;

		timer_stop(qp);
		if (blocked || acked < qp->tx.high) {
			timer_start(qp, now_ns);
			qp->tx.blocked = blocked;
		}
	}
	return next_ns;
}

void fab_send_fail_at_next(struct fab_qp *qp, enum ibv_wc_status status)
{
	while (!fab_send_is_oldest(qp)) {
		fab_send_complete(qp, IBV_WC_SUCCESS);
	}
	fab_send_fail(qp, status);
}

/* The timer ran out. False: that was the last try and the QP is in ERR. */
static bool timer_expire(struct fab_qp *qp, uint64_t now_ns)
{
	qp->tx.tries++;
	if (qp->tx.tries > qp->retry_cnt) {
		fab_send_fail(qp, IBV_WC_RETRY_EXC_ERR);
		return false;
	}
	qp->tx.retry_ns += timer_period_ns(qp);
	/* An engine that got no CPU for long must not use up its tries without time for an answer:
	 * an adapter never stalls. */
	if (qp->tx.retry_ns < now_ns + timer_period_ns(qp) / 2) {
		qp->tx.retry_ns = now_ns + timer_period_ns(qp);
	}
	qp->tx.blocked = false;
	/* All again that has no answer; the responder knows what of it is new. */
	sender_seek(qp, atomic_load_explicit(&qp->sq_acked, memory_order_relaxed));
	return true;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t timer_due(const struct fab_qp *qp)
{
	return qp->tx.retry_ns == 0 ? UINT64_MAX : qp->tx.retry_ns;
}

/* When sending may go on: 0 = now, UINT64_MAX = not by time. */
static uint64_t send_ready_ns(const struct fab_qp *qp, uint64_t now_ns)
{
	uint64_t next = atomic_load_explicit(&qp->sq_next, memory_order_relaxed);
	uint64_t at_ns;

	if (qp->tx.blocked || next == atomic_load_explicit(&qp->sq_tail, memory_order_acquire)) {
		return UINT64_MAX;
	}
	at_ns = fab_qp_swr(qp, next)->start_ns;
	at_ns = qp->tx.rnr_ns > at_ns ? qp->tx.rnr_ns : at_ns;
	return at_ns > now_ns ? at_ns : 0;
}

static uint64_t step_rts(struct fab_qp *qp, uint64_t now_ns)
{
	uint64_t ack_ns = acks_take(qp, now_ns);
	uint64_t at_ns;

	if (qp->tx.retry_ns != 0 && now_ns >= qp->tx.retry_ns && !timer_expire(qp, now_ns)) {
		return 0;
	}
	at_ns = send_ready_ns(qp, now_ns);
	if (at_ns == 0) {
		at_ns = fab_send_move(qp, now_ns);
		if (fab_qp_state(qp->slot) != IBV_QPS_RTS) {
			return 0; /* it failed: what is left is flushed, not acknowledged */
		}
		ack_ns = acks_take(qp, now_ns);
	}
	return earlier(at_ns, earlier(ack_ns, timer_due(qp)));
}

uint64_t fab_qp_step(struct fab_qp *qp, uint64_t now_ns)
{
	qp->turn.port_busy = false;
	if (fab_ctx_dead(qp->ctx)) {
		return UINT64_MAX; /* nothing sent, acknowledged or completed any more */
	}
	if (fab_qp_state(qp->slot) == IBV_QPS_ERR) {
		return fab_qp_flush(qp) ? UINT64_MAX : now_ns + 50000;
	}
	if (fab_qp_state(qp->slot) != IBV_QPS_RTS) {
		return UINT64_MAX;
	}
	return step_rts(qp, now_ns);
}
