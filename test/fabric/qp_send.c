/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/gpu.h"
#include "test/fabric/late.h"
#include "test/fabric/move.h"

/* One step of a send: the bytes, the completion at the receiver, the rules that count both. */

#define BUSY_NS    20000ull
#define BETWEEN_NS 200000ull /* a turn, and what went behind it already */

static enum fab_verdict copied_verdict(enum fab_copied copied)
{
	switch (copied) {
	case FAB_COPIED_OK:
		return FAB_GO_ON;
	case FAB_COPIED_GONE:
		return FAB_LOST;
	case FAB_COPIED_BUSY:
		return FAB_BUSY;
	case FAB_COPIED_BAD_LOCAL:
		return FAB_LOCAL_PROT;
	case FAB_COPIED_BAD_PEER:
	default:
		return FAB_REM_OP;
	}
}

/* Moves the bytes and turns the claim to its book-keeping. */
static enum fab_verdict step_copy(struct fab_move *m)
{
	struct fab_inst *own = m->qp->ctx->inst;
	struct fab_qp_slot *slot = m->path.slot;
	enum fab_copied copied = FAB_COPIED_OK;
	bool gpu;

	if (!fab_wr_is_atomic(m->wr)) { /* which are not done by halves */
		m->step_bytes = fab_gate_allow(&m->gate, m->step_bytes);
	}
	m->local.sge = m->wr->sge;
	m->local.count = m->wr->sge_count;
	m->local.pos_bytes = m->qp->tx.pos_bytes - (m->late != NULL ? m->late->first_bytes : 0);
	m->remote.pos_bytes = m->qp->tx.pos_bytes;
	gpu = m->step_bytes > 0 && fab_gpu_concerns(m); /* now: from here on a fence waits */
	if (!fab_claim_move(slot, m->claim, FAB_CLAIM_LOOK, FAB_CLAIM_COPY)) {
		return FAB_LOST;
	}
	/* Also with no bytes: the mark finds out whether the process is still there. */
	if (fab_wr_is_atomic(m->wr)) {
		copied = fab_atomic_execute(m);
	} else if (gpu) {
		copied = fab_gpu_copy(m);
	} else if (m->step_bytes > 0 && fab_wr_is_read(m->wr)) {
		copied = fab_copy_in(own, m->path.peer, &m->local, &m->remote, m->step_bytes);
	} else {
		copied = fab_copy_out(own, m->path.peer, &m->local, &m->remote, m->step_bytes,
				      &slot->claim_done, m->claim);
	}
	if (!fab_claim_move(slot, m->claim, FAB_CLAIM_COPY, FAB_CLAIM_FINISH)) {
		return FAB_LOST; /* the responder was fenced while this process was stopped */
	}
	m->claim_phase = FAB_CLAIM_FINISH;
	return copied_verdict(copied);
}

static void count_message(const struct fab_move *m)
{
	atomic_fetch_add_explicit(&m->gate.tx->msgs[FAB_TX], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->gate.rx->msgs[FAB_RX], 1, memory_order_relaxed);
}

static void deliver_completion(struct fab_move *m)
{
	const struct fab_swr *wr = m->wr;
	struct fab_completion completion = {
		.status = IBV_WC_SUCCESS,
		.opcode = fab_wr_is_imm(wr) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.byte_len = (uint32_t)wr->len_bytes,
		.solicited = (wr->flags & IBV_SEND_SOLICITED) != 0,
	};

	if (wr->opcode != IBV_WR_SEND) {
		completion.imm_data = wr->imm_data;
		completion.wc_flags = IBV_WC_WITH_IMM;
	}
	m->ring |= fab_recv_complete(m->path.peer, m->path.slot, m->path.slot_idx,
				     m->qp->ctx->inst->id, &completion);
}

/* Part of it was placed, or all of it executed. */
static void message_moved(struct fab_move *m)
{
	if (m->late != NULL) {
		m->late->over = m->qp->tx.pos_bytes >= m->late->last_bytes;
	} else {
		fab_send_moved(m->qp, &m->path, m->now_ns);
	}
}

static void message_sent(struct fab_move *m, enum fab_ack ack)
{
	if (m->late != NULL) {
		m->late->over = true;
		fab_late_executed(m);
	} else {
		fab_send_sent(m->qp, &m->path, m->now_ns, ack);
	}
}

/* All bytes are there. Tells the receiver; false when a fault came in between. */
static bool message_end(struct fab_move *m)
{
	struct fab_sender *tx = &m->qp->tx;

	if (fab_wr_is_imm(m->wr) && (m->wr->edges & FAB_EDGE_WAS_PLACED) == 0) {
		m->wr->edges |= FAB_EDGE_WAS_PLACED;
		fab_gate_imm(&m->gate, FAB_EDGE_MID);
		if (fab_gate_imm(&m->gate, FAB_EDGE_ACKED)) {
			m->path.slot->eoff = 0;
			message_sent(m, FAB_ACK_FORCED);
			return true; /* the adapter lied: the receiver never hears of it */
		}
	}
	if (fab_wr_is_imm(m->wr) || fab_wr_is_send(m->wr)) {
		if (!fab_move_arrives(m)) {
			return false;
		}
		deliver_completion(m);
	}
	tx->psn = (tx->psn + fab_wr_packets(m->qp, m->wr)) & FAB_PSN_MASK;
	m->path.slot->epsn = tx->psn;
	m->path.slot->eoff = 0;
	count_message(m);
	if (fab_wr_is_imm(m->wr)) {
		fab_gate_imm(&m->gate, FAB_EDGE_AFTER);
	} else if (m->wr->opcode == IBV_WR_RDMA_WRITE) {
		fab_gate_write(&m->gate);
	}
	message_sent(m, FAB_ACK_IF_OPEN);
	return true;
}

void fab_move_book(struct fab_move *m, uint64_t bytes)
{
	struct fab_turn *turn = &m->qp->turn;

	fab_port_spend(m->gate.tx, m->gate.rx, bytes, m->now_ns);
	if (!m->between) {
		fab_port_take_turn(m->gate.tx, m->gate.rx);
	}
	m->qp->turns_seen = fab_port_turns(m->gate.tx, m->gate.rx);
	turn->moved = true;
	turn->bytes += bytes;
	turn->over = turn->bytes >= fab_port_step_bytes(m->gate.tx, m->gate.rx, UINT64_MAX);
}

/* Under claim and gate. */
enum fab_verdict fab_move_run(struct fab_move *m)
{
	struct fab_sender *tx = &m->qp->tx;
	enum fab_verdict verdict = fab_move_check(m);

	if (verdict != FAB_GO_ON) {
		return verdict;
	}
	if (fab_wr_is_imm(m->wr) && (m->wr->edges & FAB_EDGE_WAS_BEGUN) == 0) {
		m->wr->edges |= FAB_EDGE_WAS_BEGUN;
		fab_gate_imm(&m->gate, FAB_EDGE_BEFORE);
		if (!fab_move_arrives(m)) {
			return FAB_LOST;
		}
		if (fab_gate_imm(&m->gate, FAB_EDGE_ACKED_BLANK)) {
			message_sent(m, FAB_ACK_FORCED);
			return FAB_GO_ON;
		}
	}
	verdict = step_copy(m);
	if (verdict != FAB_GO_ON) {
		return verdict;
	}
	tx->pos_bytes += m->step_bytes;
	m->path.slot->eoff = tx->pos_bytes;
	if (m->late == NULL) {
		fab_move_book(m, m->step_bytes);
	}
	if (m->step_bytes > 0) {
		fab_gate_bytes(&m->gate, m->step_bytes);
	}
	if (tx->pos_bytes < m->wr->len_bytes) {
		message_moved(m);
		return FAB_GO_ON;
	}
	return message_end(m) ? FAB_GO_ON : FAB_LOST;
}

void fab_move_aim(struct fab_move *m)
{
	m->gate.root = m->qp->ctx->lib->root;
	m->gate.dir = m->qp->ctx->lib->dir;
	m->gate.tx = fab_wr_is_read(m->wr) ? m->path.peer_port : m->path.own_port;
	m->gate.rx = fab_wr_is_read(m->wr) ? m->path.own_port : m->path.peer_port;
}

/*
 * An adapter sends packets of its QPs in turn, so that a message of one packet waits for one packet
 * of each of the others. Here the others take turns of many packets, and such a message goes
 * between two of them, although the port is booked out: by one turn at most, or by several such
 * messages, and one of each QP. So many small ones keep nobody from its turn; their bytes are
 * booked as all others, which keeps the rate.
 */
static bool goes_between(const struct fab_move *m, uint64_t free_ns)
{
	return !fab_wr_is_read(m->wr) && !fab_wr_is_atomic(m->wr) &&
	       fab_wr_packets(m->qp, m->wr) == 1 && free_ns - m->now_ns <= BETWEEN_NS &&
	       m->qp->turns_seen != fab_port_turns(m->gate.tx, m->gate.rx);
}

uint64_t fab_send_move(struct fab_qp *qp, uint64_t now_ns)
{
	struct fab_move m = {.qp = qp, .now_ns = now_ns};
	enum fab_verdict verdict;
	uint64_t late_ns;
	uint64_t free_ns;
	bool found;

	m.wr = fab_qp_swr(qp, atomic_load_explicit(&qp->sq_next, memory_order_relaxed));
	m.wr->psn = qp->tx.psn;
	if (!fab_move_local_ok(&m)) {
		return fab_move_answer(&m, FAB_LOCAL_PROT);
	}
	found = fab_path_find(qp, &m.path);
	fab_move_aim(&m);
	free_ns = fab_port_free_at(m.gate.tx, m.gate.rx);
	m.between = free_ns > now_ns && goes_between(&m, free_ns);
	if (free_ns > now_ns && !m.between) {
		qp->turn.port_busy = true;
		return free_ns;
	}
	late_ns = fab_port_late_ns(m.path.own_port, m.path.peer_port);
	if (late_ns != 0 && !fab_wr_is_read(m.wr) && !fab_wr_is_atomic(m.wr) &&
	    fab_port_sends(m.path.own_port)) {
		return fab_late_hold(&m, late_ns);
	}
	if (!found || late_ns != 0 || qp->tx.doomed) {
		qp->tx.doomed = false;
		return fab_move_answer(&m, FAB_LOST);
	}
	if (!fab_atomic_begin(&m)) {
		return now_ns + BUSY_NS;
	}
	m.claim = fab_claim_begin(m.path.slot, qp->ctx->inst->id);
	if (m.claim == 0) {
		fab_atomic_end(&m);
		return now_ns + BUSY_NS; /* another engine is at that QP */
	}
	fab_gate_enter(&m.gate);
	verdict = fab_move_run(&m);
	fab_gate_leave(&m.gate);
	free_ns = fab_move_answer(&m, verdict);
	fab_claim_end(m.path.slot, m.claim);
	fab_atomic_end(&m);
	if (m.ring) {
		fab_inst_ring(m.path.peer);
	}
	return free_ns;
}
