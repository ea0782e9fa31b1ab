/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/late.h"
#include "test/fabric/move.h"

/* What the two ends look at before a byte moves. */

#define STEP_MAX (256ull << 10)

bool fab_path_find(struct fab_qp *qp, struct fab_path *path)
{
	struct fab_ctx *ctx = qp->ctx;
	struct fab_lib *lib = ctx->lib;
	uint64_t entry = atomic_load_explicit(&lib->root->qpns[qp->dest_qpn & FAB_PSN_MASK],
					      memory_order_acquire);

	path->own_port = qp->port;
	path->peer_port = fab_root_port(lib->root, qp->peer_host, qp->peer_rail);
	path->slot = NULL;
	if (entry == 0 || (lib->rail_wired && qp->peer_rail != qp->rail) ||
	    fab_inst_pulled(lib->root, ctx->inst)) {
		return false;
	}
	path->peer = (uint32_t)(entry >> 32) == ctx->inst->id
			     ? ctx->inst
			     : fab_inst_peer(lib->root, lib->dir, (uint32_t)(entry >> 32));
	if (path->peer == NULL || path->peer->host != qp->peer_host ||
	    qp->peer_rail - path->peer->rail >= path->peer->rail_count) {
		return false;
	}
	path->slot_idx = (uint32_t)entry - 1;
	path->slot = &path->peer->qps[path->slot_idx];
	return fab_root_deaths(lib->root, path->peer->host, path->peer->rail,
			       path->peer->rail_count) == path->peer->dead_count &&
	       !fab_inst_pulled(lib->root, path->peer);
}

/* Does the responder take this QP's packets? Under the claim, so its attributes hold still. */
static bool responder_listens(const struct fab_qp *qp, const struct fab_path *path)
{
	struct fab_qp_slot *slot = path->slot;
	enum ibv_qp_state state = fab_qp_state(slot);

	if (state == IBV_QPS_ERR && slot->unfenced != 0) {
		state = IBV_QPS_RTS; /* FABRIC_BROKEN=fence */
	}
	return (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD) &&
	       atomic_load_explicit(&slot->qpn, memory_order_acquire) == qp->dest_qpn &&
	       slot->type == qp->ibv.qp_type && slot->dest_qpn == qp->ibv.qp_num &&
	       slot->own_rail == qp->peer_rail && slot->peer_host == qp->ctx->host &&
	       slot->peer_rail == qp->rail;
}

bool fab_move_local_ok(const struct fab_move *m)
{
	const struct fab_swr *wr = m->wr;
	bool written = fab_wr_is_read(wr) || fab_wr_is_atomic(wr);
	unsigned int access = written ? IBV_ACCESS_LOCAL_WRITE : 0;
	uint32_t pd = fab_pd_of(m->qp->ibv.pd)->id;

	if ((wr->flags & IBV_SEND_INLINE) != 0) {
		return true;
	}
	for (uint32_t i = 0; i < wr->sge_count; i++) {
		const struct fab_sge *sge = &wr->sge[i];

		if (sge->len_bytes != 0 && fab_mr_find(m->qp->ctx->inst, sge->lkey, sge->addr,
						       sge->len_bytes, access, pd) == 0) {
			return false;
		}
	}
	return true;
}

/* The remote range of a write or a read, checked as a whole at every step. */
static enum fab_verdict target_range(struct fab_move *m)
{
	const struct fab_swr *wr = m->wr;
	struct fab_qp_slot *slot = m->path.slot;
	unsigned int access = fab_wr_is_read(wr)     ? IBV_ACCESS_REMOTE_READ
			      : fab_wr_is_atomic(wr) ? IBV_ACCESS_REMOTE_ATOMIC
						     : IBV_ACCESS_REMOTE_WRITE;
	uint64_t addr = 0;

	if ((slot->access & access) == 0 || (fab_wr_is_atomic(wr) && wr->remote_addr % 8 != 0)) {
		return FAB_REM_INVALID; /* the QP itself does not allow the operation */
	}
	if (wr->len_bytes > 0) {
		addr = fab_mr_find(m->path.peer, wr->rkey, wr->remote_addr, wr->len_bytes, access,
				   slot->pd);
		if (addr == 0) {
			return FAB_REM_ACCESS;
		}
	}
	m->remote_sge[0].addr = addr;
	m->remote_sge[0].lkey = wr->rkey;
	m->remote_sge[0].len_bytes = (uint32_t)wr->len_bytes;
	m->remote.sge = m->remote_sge;
	m->remote.count = 1;
	return FAB_GO_ON;
}

/* The receive a send goes into. A bad receive breaks the responder and is told to the sender. */
static enum fab_verdict target_receive(struct fab_move *m)
{
	struct fab_qp_slot *slot = m->path.slot;
	const struct fab_rqe *rqe;
	uint64_t room = 0;

	if (!fab_receive_ready(m->path.peer, slot)) {
		return FAB_RNR;
	}
	rqe = fab_qp_rqe(m->path.peer, slot,
			 atomic_load_explicit(&slot->rq_head, memory_order_relaxed));
	for (uint32_t i = 0; i < rqe->sge_count && i < FAB_MAX_SGE; i++) {
		const struct fab_sge *sge = &rqe->sge[i];

		m->remote_sge[i] = *sge;
		m->remote_sge[i].addr =
			fab_mr_find(m->path.peer, sge->lkey, sge->addr, sge->len_bytes,
				    IBV_ACCESS_LOCAL_WRITE, slot->pd);
		if (sge->len_bytes != 0 && m->remote_sge[i].addr == 0) {
			return FAB_REM_OP;
		}
		room += sge->len_bytes;
	}
	m->remote.sge = m->remote_sge;
	m->remote.count = rqe->sge_count;
	return m->wr->len_bytes > room ? FAB_REM_INVALID : FAB_GO_ON;
}

/* Rolls for each packet of the step. It ends before the first that is lost; true: that is the very
 * first one. */
static bool step_drops(struct fab_move *m, uint64_t ppb)
{
	uint64_t mtu = fab_mtu_bytes(m->qp->path_mtu);
	uint64_t first = m->qp->tx.pos_bytes / mtu;
	uint64_t count = (m->qp->tx.pos_bytes + m->step_bytes + mtu - 1) / mtu - first;

	for (uint64_t i = 0; ppb != 0 && i < (count > 0 ? count : 1); i++) {
		if (fab_dice_roll(&m->qp->loss_dice) % 1000000000 >= ppb) {
			continue;
		}
		atomic_fetch_add_explicit(&m->path.own_port->lost, 1, memory_order_relaxed);
		if (i == 0) {
			return true;
		}
		m->step_bytes = (first + i) * mtu - m->qp->tx.pos_bytes;
		m->qp->tx.doomed = true;
		return false;
	}
	return false;
}

/* How many bytes this step may move; the last packet of a message with immediate needs a receive,
 * the packets before it do not. */
static enum fab_verdict step_size(struct fab_move *m)
{
	const struct fab_swr *wr = m->wr;
	uint64_t left = wr->len_bytes - m->qp->tx.pos_bytes;
	uint64_t mtu = fab_mtu_bytes(m->qp->path_mtu);
	struct fab_port *from = fab_wr_is_read(wr) ? m->path.peer_port : m->path.own_port;
	struct fab_port *to = fab_wr_is_read(wr) ? m->path.own_port : m->path.peer_port;

	m->step_bytes = fab_port_step_bytes(from, to, STEP_MAX);
	m->step_bytes = left < m->step_bytes ? left : m->step_bytes;
	m->step_bytes = m->late != NULL ? fab_late_left(m) : m->step_bytes;
	if (fab_wr_is_imm(wr) && !fab_receive_ready(m->path.peer, m->path.slot) &&
	    m->step_bytes == left) {
		uint64_t before_last = (fab_wr_packets(m->qp, wr) - 1) * mtu;

		if (before_last <= m->qp->tx.pos_bytes) {
			return FAB_RNR;
		}
		m->step_bytes = before_last - m->qp->tx.pos_bytes;
	}
	return m->late == NULL && step_drops(m, fab_port_drop_ppb(from, to)) ? FAB_LOST : FAB_GO_ON;
}

/* What was held back left its own port long ago. */
bool fab_move_arrives(const struct fab_move *m)
{
	uint32_t rx = atomic_load_explicit(&m->path.peer_port->flags, memory_order_seq_cst);

	if (m->late != NULL) {
		return (rx & (FAB_CUT_RX | FAB_DOWN | FAB_DEAD)) == 0;
	}
	return fab_port_open(m->path.own_port, m->path.peer_port);
}

/* The responder takes the byte it expects next, and knows what it has: a packet from before is a
 * duplicate, one from after is dropped. */
static enum fab_verdict psn_check(struct fab_move *m)
{
	struct fab_sender *tx = &m->qp->tx;
	struct fab_qp_slot *slot = m->path.slot;
	uint32_t ahead = (slot->epsn - tx->psn) & FAB_PSN_MASK;

	if (fab_qp_is_uc(m->qp)) { /* each message begins afresh, and has no holes */
		if (tx->pos_bytes == 0) {
			slot->epsn = tx->psn;
			slot->eoff = 0;
		}
		return slot->epsn == tx->psn && slot->eoff == tx->pos_bytes ? FAB_GO_ON : FAB_LOST;
	}
	if (ahead != 0) {
		return ahead <= FAB_PSN_MASK / 2 ? FAB_DUPLICATE : FAB_LOST;
	}
	if (slot->eoff < tx->pos_bytes || slot->eoff > m->wr->len_bytes) {
		return FAB_LOST;
	}
	tx->pos_bytes = slot->eoff;
	return m->late != NULL && fab_late_passed(m) ? FAB_DUPLICATE : FAB_GO_ON;
}

enum fab_verdict fab_move_check(struct fab_move *m)
{
	enum fab_verdict verdict;

	if (!fab_move_arrives(m) || !responder_listens(m->qp, &m->path)) {
		return FAB_LOST;
	}
	verdict = psn_check(m);
	if (verdict != FAB_GO_ON) {
		return verdict;
	}
	if (m->path.slot->mtu_bytes != fab_mtu_bytes(m->qp->path_mtu)) {
		return FAB_REM_INVALID;
	}
	verdict = fab_wr_is_send(m->wr) ? target_receive(m) : target_range(m);
	if (verdict == FAB_GO_ON) {
		verdict = step_size(m);
	}
	if (verdict != FAB_GO_ON || !fab_wr_is_read(m->wr)) {
		return verdict;
	}
	return fab_port_open(m->path.peer_port, m->path.own_port) &&
			       fab_port_late_ns(m->path.peer_port, m->path.own_port) == 0
		       ? FAB_GO_ON
		       : FAB_LOST;
}
