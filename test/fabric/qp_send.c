/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/qp_send.h"

#include "test/fabric/copy.h"

#define STEP_MAX (256ull << 10)
#define BUSY_NS  20000ull

/* One step of one message. */
struct move {
	struct fab_qp *qp;
	struct fab_swr *wr;
	struct fab_path path;
	struct fab_gate gate;
	uint64_t claim;
	uint64_t claim_phase;
	uint64_t now_ns;
	uint64_t step_bytes;
	struct fab_list local;
	struct fab_list remote;
	struct fab_sge remote_sge[FAB_MAX_SGE]; /* the receive's list, or the one remote range */
	bool ring;                              /* the responder's owner wants waking */
};

/* How a step may end without having moved anything. */
enum verdict {
	GO_ON,
	LOST,       /* dropped without an answer */
	RNR,        /* the responder has no receive posted */
	REM_ACCESS, /* the responder refuses: key, bounds, rights */
	REM_INVALID,
	REM_OP,
	LOCAL_PROT,
};

static bool is_imm(const struct fab_swr *wr)
{
	return wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_send(const struct fab_swr *wr)
{
	return wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;
}

static bool is_read(const struct fab_swr *wr)
{
	return wr->opcode == IBV_WR_RDMA_READ;
}

static uint32_t packet_count(const struct fab_qp *qp, const struct fab_swr *wr)
{
	uint64_t mtu = fab_mtu_bytes(qp->path_mtu);

	return wr->len_bytes == 0 ? 1 : (uint32_t)((wr->len_bytes + mtu - 1) / mtu);
}

bool fab_path_find(struct fab_qp *qp, struct fab_path *path)
{
	struct fab_ctx *ctx = qp->ctx;
	struct fab_lib *lib = ctx->lib;
	uint64_t entry = atomic_load_explicit(&lib->root->qpns[qp->dest_qpn & FAB_PSN_MASK],
					      memory_order_acquire);

	path->own_port = ctx->port;
	path->peer_port = fab_root_port(lib->root, qp->peer_host, qp->peer_rail);
	path->slot = NULL;
	if (entry == 0 || (lib->rail_wired && qp->peer_rail != ctx->rail)) {
		return false;
	}
	path->peer = (uint32_t)(entry >> 32) == ctx->inst->id
			     ? ctx->inst
			     : fab_inst_peer(lib->root, lib->dir, (uint32_t)(entry >> 32));
	if (path->peer == NULL || path->peer->host != qp->peer_host ||
	    path->peer->rail != qp->peer_rail) {
		return false;
	}
	path->slot_idx = (uint32_t)entry - 1;
	path->slot = &path->peer->qps[path->slot_idx];
	return atomic_load_explicit(&path->peer_port->dead_count, memory_order_acquire) ==
	       path->peer->dead_count;
}

/* Does the responder take this QP's packets? Under the claim, so its attributes hold still. */
static bool responder_listens(const struct fab_qp *qp, const struct fab_path *path)
{
	struct fab_qp_slot *slot = path->slot;
	enum ibv_qp_state state = fab_qp_state(slot);

	return (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD) &&
	       atomic_load_explicit(&slot->qpn, memory_order_acquire) == qp->dest_qpn &&
	       slot->dest_qpn == qp->ibv.qp_num && slot->peer_host == qp->ctx->host &&
	       slot->peer_rail == qp->ctx->rail;
}

bool fab_path_alive(const struct fab_qp *qp, const struct fab_path *path)
{
	uint64_t claim = fab_claim_begin(path->slot, qp->ctx->inst->id);
	bool alive;

	if (claim == 0) {
		return false;
	}
	alive = responder_listens(qp, path);
	return fab_claim_end(path->slot, claim) && alive &&
	       fab_inst_life(qp->ctx->lib->root, path->peer->id) != FAB_LIFE_GONE;
}

/* A packet with the wrong number is dropped, and so is what was sent to the QP before a reset. */
static bool psn_fits(const struct move *m)
{
	const struct fab_sender *tx = &m->qp->tx;

	return m->path.slot->epsn == tx->psn &&
	       (tx->pos_bytes == 0 ||
		tx->peer_gen == atomic_load_explicit(&m->path.slot->gen, memory_order_relaxed));
}

static bool local_list_ok(const struct move *m)
{
	const struct fab_swr *wr = m->wr;
	unsigned int access = is_read(wr) ? IBV_ACCESS_LOCAL_WRITE : 0;
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
static enum verdict target_range(struct move *m)
{
	const struct fab_swr *wr = m->wr;
	struct fab_qp_slot *slot = m->path.slot;
	unsigned int access = is_read(wr) ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
	uint64_t addr = 0;

	if ((slot->access & access) == 0) {
		return REM_INVALID; /* the QP itself does not allow the operation */
	}
	if (wr->len_bytes > 0) {
		addr = fab_mr_find(m->path.peer, wr->rkey, wr->remote_addr, wr->len_bytes, access,
				   slot->pd);
		if (addr == 0) {
			return REM_ACCESS;
		}
	}
	m->remote_sge[0].addr = addr;
	m->remote_sge[0].len_bytes = (uint32_t)wr->len_bytes;
	m->remote.sge = m->remote_sge;
	m->remote.count = 1;
	return GO_ON;
}

static bool receive_posted(const struct fab_qp_slot *slot)
{
	return atomic_load_explicit(&slot->rq_head, memory_order_relaxed) !=
	       atomic_load_explicit(&slot->rq_tail, memory_order_seq_cst);
}

/* The receive a send goes into. A bad receive breaks the responder and is told to the sender. */
static enum verdict target_receive(struct move *m)
{
	struct fab_qp_slot *slot = m->path.slot;
	const struct fab_rqe *rqe;
	uint64_t room = 0;

	if (!receive_posted(slot)) {
		return RNR;
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
			return REM_OP;
		}
		room += sge->len_bytes;
	}
	m->remote.sge = m->remote_sge;
	m->remote.count = rqe->sge_count;
	return m->wr->len_bytes > room ? REM_INVALID : GO_ON;
}

/* How many bytes this step may move; the last packet of a message with immediate needs a receive,
 * the packets before it do not. */
static enum verdict step_size(struct move *m)
{
	const struct fab_swr *wr = m->wr;
	uint64_t left = wr->len_bytes - m->qp->tx.pos_bytes;
	uint64_t mtu = fab_mtu_bytes(m->qp->path_mtu);
	struct fab_port *from = is_read(wr) ? m->path.peer_port : m->path.own_port;
	struct fab_port *to = is_read(wr) ? m->path.own_port : m->path.peer_port;

	m->step_bytes = fab_port_step_bytes(from, to, STEP_MAX);
	m->step_bytes = left < m->step_bytes ? left : m->step_bytes;
	if (is_imm(wr) && !receive_posted(m->path.slot) && m->step_bytes == left) {
		uint64_t before_last = (packet_count(m->qp, wr) - 1) * mtu;

		if (before_last <= m->qp->tx.pos_bytes) {
			return RNR;
		}
		m->step_bytes = before_last - m->qp->tx.pos_bytes;
	}
	return GO_ON;
}

/* Everything the two ends look at before the bytes move. */
static enum verdict step_check(struct move *m)
{
	enum verdict verdict;

	if (!fab_port_open(m->path.own_port, m->path.peer_port)) {
		return LOST;
	}
	if (!responder_listens(m->qp, &m->path) || !psn_fits(m)) {
		return LOST;
	}
	if (m->path.slot->mtu_bytes != fab_mtu_bytes(m->qp->path_mtu)) {
		return REM_INVALID;
	}
	verdict = is_send(m->wr) ? target_receive(m) : target_range(m);
	if (verdict == GO_ON) {
		verdict = step_size(m);
	}
	if (verdict != GO_ON || !is_read(m->wr)) {
		return verdict;
	}
	return fab_port_open(m->path.peer_port, m->path.own_port) ? GO_ON : LOST;
}

static enum verdict copied_verdict(enum fab_copied copied)
{
	switch (copied) {
	case FAB_COPIED_OK:
		return GO_ON;
	case FAB_COPIED_GONE:
		return LOST;
	case FAB_COPIED_BAD_LOCAL:
		return LOCAL_PROT;
	case FAB_COPIED_BAD_PEER:
	default:
		return REM_OP;
	}
}

/* Moves the bytes and turns the claim to its book-keeping. */
static enum verdict step_copy(struct move *m)
{
	struct fab_inst *own = m->qp->ctx->inst;
	struct fab_qp_slot *slot = m->path.slot;
	enum fab_copied copied = FAB_COPIED_OK;

	m->step_bytes = fab_gate_allow(&m->gate, m->step_bytes);
	m->local.sge = m->wr->sge;
	m->local.count = m->wr->sge_count;
	m->local.pos_bytes = m->qp->tx.pos_bytes;
	m->remote.pos_bytes = m->qp->tx.pos_bytes;
	if (!fab_claim_move(slot, m->claim, FAB_CLAIM_LOOK, FAB_CLAIM_COPY)) {
		return LOST;
	}
	/* Also with no bytes: the mark finds out whether the process is still there. */
	if (m->step_bytes > 0 && is_read(m->wr)) {
		copied = fab_copy_in(own, m->path.peer, &m->local, &m->remote, m->step_bytes);
	} else {
		copied = fab_copy_out(own, m->path.peer, &m->local, &m->remote, m->step_bytes,
				      &slot->claim_done, m->claim);
	}
	if (!fab_claim_move(slot, m->claim, FAB_CLAIM_COPY, FAB_CLAIM_FINISH)) {
		return LOST; /* the responder was fenced while this process was stopped */
	}
	m->claim_phase = FAB_CLAIM_FINISH;
	return copied_verdict(copied);
}

static void count_message(const struct move *m)
{
	atomic_fetch_add_explicit(&m->gate.tx->msgs[FAB_TX], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&m->gate.rx->msgs[FAB_RX], 1, memory_order_relaxed);
}

static void deliver_completion(struct move *m)
{
	const struct fab_swr *wr = m->wr;
	struct fab_completion completion = {
		.status = IBV_WC_SUCCESS,
		.opcode = is_imm(wr) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
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

/* All bytes are there. Tells the receiver; false when a fault came in between. */
static bool message_end(struct move *m)
{
	struct fab_sender *tx = &m->qp->tx;

	if (is_imm(m->wr) && !tx->placed) {
		tx->placed = true;
		fab_gate_imm(&m->gate, FAB_EDGE_MID);
		if (fab_gate_imm(&m->gate, FAB_EDGE_ACKED)) {
			fab_send_sent(m->qp, &m->path, m->now_ns, FAB_ACK_FORCED);
			return true; /* the adapter lied: the receiver never hears of it */
		}
	}
	if (is_imm(m->wr) || is_send(m->wr)) {
		if (!fab_port_open(m->path.own_port, m->path.peer_port)) {
			return false;
		}
		deliver_completion(m);
	}
	tx->psn = (tx->psn + packet_count(m->qp, m->wr)) & FAB_PSN_MASK;
	m->path.slot->epsn = tx->psn;
	count_message(m);
	if (is_imm(m->wr)) {
		fab_gate_imm(&m->gate, FAB_EDGE_AFTER);
	} else if (m->wr->opcode == IBV_WR_RDMA_WRITE) {
		fab_gate_write(&m->gate);
	}
	fab_send_sent(m->qp, &m->path, m->now_ns, FAB_ACK_IF_OPEN);
	return true;
}

/* Under claim and gate. */
static enum verdict step_run(struct move *m)
{
	struct fab_sender *tx = &m->qp->tx;
	enum verdict verdict = step_check(m);

	if (verdict != GO_ON) {
		return verdict;
	}
	if (is_imm(m->wr) && !tx->begun) {
		tx->begun = true;
		fab_gate_imm(&m->gate, FAB_EDGE_BEFORE);
		if (!fab_port_open(m->path.own_port, m->path.peer_port)) {
			return LOST;
		}
		if (fab_gate_imm(&m->gate, FAB_EDGE_ACKED_BLANK)) {
			fab_send_sent(m->qp, &m->path, m->now_ns, FAB_ACK_FORCED);
			return GO_ON;
		}
	}
	tx->peer_gen = atomic_load_explicit(&m->path.slot->gen, memory_order_relaxed);
	verdict = step_copy(m);
	if (verdict != GO_ON) {
		return verdict;
	}
	tx->pos_bytes += m->step_bytes;
	fab_port_spend(m->gate.tx, m->gate.rx, m->step_bytes, m->now_ns);
	if (m->step_bytes > 0) {
		fab_gate_bytes(&m->gate, m->step_bytes);
	}
	if (tx->pos_bytes < m->wr->len_bytes) {
		fab_send_moved(m->qp, &m->path, m->now_ns);
		return GO_ON;
	}
	return message_end(m) ? GO_ON : LOST;
}

static uint64_t rnr_delay_ns(uint32_t code)
{
	/* The IB specification's table of RNR NAK timer values, in units of 10 us. */
	static const uint32_t tens_us[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
					     16,    24,   32,   48,    64,    96,    128,   192,
					     256,   384,  512,  768,   1024,  1536,  2048,  3072,
					     4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

	return (uint64_t)tens_us[code & 31] * 10000ull;
}

/* Does an answer come back, from a process that still is? */
static bool answer_arrives(const struct move *m)
{
	return fab_port_ack_open(m->path.own_port, m->path.peer_port) &&
	       fab_inst_life(m->qp->ctx->lib->root, m->path.peer->id) != FAB_LIFE_GONE;
}

static uint64_t answer_rnr(struct move *m)
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
static void spoil_receive(struct move *m, enum ibv_wc_status status)
{
	struct fab_completion completion = {
		.status = status == IBV_WC_REM_OP_ERR ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR,
	};

	if (!receive_posted(m->path.slot)) {
		return;
	}
	m->ring |= fab_recv_complete(m->path.peer, m->path.slot, m->path.slot_idx,
				     m->qp->ctx->inst->id, &completion);
}

/* The responder refuses for good: its QP breaks, and the requester hears of it if it can. */
static uint64_t answer_nak(struct move *m, enum ibv_wc_status status)
{
	/* From a look, or from a copy that failed and is finishing already. */
	if (m->claim_phase == FAB_CLAIM_LOOK &&
	    !fab_claim_move(m->path.slot, m->claim, FAB_CLAIM_LOOK, FAB_CLAIM_FINISH)) {
		fab_send_lost(m->qp, m->now_ns);
		return 0;
	}
	if (is_send(m->wr)) {
		spoil_receive(m, status);
	}
	fab_qp_break_peer(m->path.peer, m->path.slot);
	if (!answer_arrives(m)) {
		fab_send_lost(m->qp, m->now_ns);
		return 0;
	}
	fab_send_fail_at_next(m->qp, status);
	return 0;
}

static uint64_t step_answer(struct move *m, enum verdict verdict)
{
	switch (verdict) {
	case LOST:
		fab_send_lost(m->qp, m->now_ns);
		return 0;
	case RNR:
		return answer_rnr(m);
	case REM_ACCESS:
		return answer_nak(m, IBV_WC_REM_ACCESS_ERR);
	case REM_INVALID:
		return answer_nak(m, IBV_WC_REM_INV_REQ_ERR);
	case REM_OP:
		return answer_nak(m, IBV_WC_REM_OP_ERR);
	case LOCAL_PROT:
		if (!fab_send_is_oldest(m->qp)) {
			return UINT64_MAX; /* the ones before it are answered first */
		}
		fab_send_fail_at_next(m->qp, IBV_WC_LOC_PROT_ERR);
		return 0;
	case GO_ON:
	default:
		return 0;
	}
}

static void gate_aim(struct move *m)
{
	m->gate.root = m->qp->ctx->lib->root;
	m->gate.dir = m->qp->ctx->lib->dir;
	m->gate.tx = is_read(m->wr) ? m->path.peer_port : m->path.own_port;
	m->gate.rx = is_read(m->wr) ? m->path.own_port : m->path.peer_port;
}

uint64_t fab_send_move(struct fab_qp *qp, uint64_t now_ns)
{
	struct move m = {.qp = qp, .now_ns = now_ns};
	enum verdict verdict;
	uint64_t free_ns;

	m.wr = fab_qp_swr(qp, atomic_load_explicit(&qp->sq_next, memory_order_relaxed));
	if (!local_list_ok(&m)) {
		return step_answer(&m, LOCAL_PROT);
	}
	if (!fab_path_find(qp, &m.path)) {
		return step_answer(&m, LOST);
	}
	gate_aim(&m);
	free_ns = fab_port_free_at(m.gate.tx, m.gate.rx);
	if (free_ns > now_ns) {
		return free_ns;
	}
	m.claim = fab_claim_begin(m.path.slot, qp->ctx->inst->id);
	if (m.claim == 0) {
		return now_ns + BUSY_NS; /* another engine is at that QP */
	}
	fab_gate_enter(&m.gate);
	verdict = step_run(&m);
	fab_gate_leave(&m.gate);
	free_ns = step_answer(&m, verdict);
	fab_claim_end(m.path.slot, m.claim);
	if (m.ring) {
		fab_inst_ring(m.path.peer);
	}
	return free_ns;
}
