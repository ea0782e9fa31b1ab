/* SPDX-License-Identifier: Apache-2.0 */
#include "test/sim/net.h"

#include "test/sim/sim.h"

#include <string.h>

void net_init(struct sim *sim)
{
	struct net *net = &sim->net;

	net->arena_used = 0;
	net->next_qpn = 1;
	memset(net->wires, 0, sizeof(net->wires));
	memset(net->nics, 0, sizeof(net->nics));
	for (unsigned int p = 0; p < sim->conf.path_count; p++) {
		net->qps[SIDE_TX][p].gen = 0;
		net->qps[SIDE_RX][p].gen = 0;
		net_qp_make(sim, SIDE_TX, p);
		net_qp_make(sim, SIDE_RX, p);
		net_qp_connect(sim, SIDE_TX, p, net->qps[SIDE_RX][p].qpn);
		net_qp_connect(sim, SIDE_RX, p, net->qps[SIDE_TX][p].qpn);
	}
}

bool net_qp_make(struct sim *sim, unsigned int side, unsigned int path)
{
	struct net_qp *qp = &sim->net.qps[side][path];
	uint32_t gen = qp->gen;

	if (sim->net.nics[side][path].dead) {
		return false;
	}
	memset(qp, 0, offsetof(struct net_qp, sq));
	qp->gen = gen + 1;
	qp->qpn = sim->net.next_qpn++;
	qp->flushes = !rng_chance(&sim->rng, sim->conf.no_flush_permille);
	qp->resends_left = sim->conf.retry_count;
	return true;
}

bool net_qp_connect(struct sim *sim, unsigned int side, unsigned int path, uint32_t peer_qpn)
{
	struct net_qp *qp = &sim->net.qps[side][path];

	if (qp->dead || qp->state != QP_INIT) {
		return false;
	}
	qp->peer_qpn = peer_qpn;
	qp->state = QP_RTS;
	return true;
}

bool net_is_sound(const struct sim *sim, unsigned int path)
{
	for (unsigned int s = 0; s < SIDE_COUNT; s++) {
		const struct net_wire *wire = &sim->net.wires[s][path];

		if (sim->net.nics[s][path].dead || wire->drops || wire->drops_acks ||
		    wire->drops_large || wire->holds || wire->garbles_ns > sim->now_ns) {
			return false;
		}
	}
	return true;
}

void *net_alloc(struct sim *sim, uint32_t size_bytes)
{
	struct net *net = &sim->net;
	void *mem = net->arena + net->arena_used;

	size_bytes = (size_bytes + 15) & ~15u;
	if (size_bytes > NET_ARENA_BYTES - net->arena_used) {
		sim_fail(sim, "simulator: out of memory for packets");
		return NULL;
	}
	net->arena_used += size_bytes;
	return mem;
}

void net_push_wc(struct sim *sim, unsigned int side, unsigned int path, struct net_wc wc)
{
	struct net_qp *qp = &sim->net.qps[side][path];

	if (qp->dead || qp->state == QP_GONE) {
		return;
	}
	if (qp->cq_tail - qp->cq_head == NET_CQ_WCS) {
		sim_fail(sim, "completion queue of path %u overrun", path);
		return;
	}
	if (wc.visible_ns < qp->last_visible_ns) {
		wc.visible_ns = qp->last_visible_ns;
	}
	qp->last_visible_ns = wc.visible_ns;
	qp->cq[qp->cq_tail++ % NET_CQ_WCS] = wc;
	host_wake(sim, side, wc.visible_ns);
}

static void complete(struct sim *sim, unsigned int side, unsigned int path, struct repair_wc wc)
{
	uint64_t lag = sim->conf.wc_lag_ns;

	if (lag) {
		lag = rng_next(&sim->rng) % lag;
	}
	net_push_wc(sim, side, path, (struct net_wc){sim->now_ns + lag, wc});
}

bool net_has_room(const struct sim *sim, unsigned int side, unsigned int path, uint32_t count)
{
	const struct net_qp *qp = &sim->net.qps[side][path];

	return qp->tail - qp->una + count <= sim->conf.sq_depth_wrs;
}

static void start_timer(struct sim *sim, unsigned int side, unsigned int path)
{
	struct net_qp *qp = &sim->net.qps[side][path];

	if (!qp->timer_on && !sim->quiet) {
		qp->timer_on = true;
		sim_push(sim, (struct ev){.at_ns = qp->progress_ns + sim->conf.rto_ns,
					  .type = EV_TIMER,
					  .side = (uint8_t)side,
					  .path = (uint8_t)path,
					  .arg = qp->qpn});
	}
}

/* Part i of a write: whole chunks in address order, but for clear-to-send entries, whose second
 * half is placed first. */
static void chunk_range(const struct net_wr *wr, uint32_t i, uint32_t *offset, uint32_t *len)
{
	uint32_t unit = (wr->len_bytes / wr->chunk_count + 7) & ~7u;
	uint32_t place = wr->note.tag == NET_CTS ? wr->chunk_count - 1 - i : i;

	*offset = place * unit;
	*len = place + 1 == wr->chunk_count ? wr->len_bytes - *offset : unit;
}

/* Send one WR: read its source now, let its chunks arrive one after the other. */
static void transmit(struct sim *sim, unsigned int side, unsigned int path, struct net_wr *wr)
{
	struct net_qp *qp = &sim->net.qps[side][path];
	const uint8_t *src = wr->src ? wr->src : wr->data;

	if (wr->src && wr->len_bytes && wr->note.tag != NET_PROBE) {
		user_on_read(sim, wr);
	}
	for (uint32_t i = 0; i < wr->chunk_count && !sim->failed; i++) {
		uint64_t at = qp->free_ns > sim->now_ns ? qp->free_ns : sim->now_ns;
		struct net_chunk *chunk;
		uint32_t offset, len;

		chunk_range(wr, i, &offset, &len);
		chunk = net_alloc(sim, (uint32_t)sizeof(*chunk) + len);
		if (!chunk) {
			return;
		}
		*chunk = (struct net_chunk){.note = wr->note,
					    .psn = wr->psn + i,
					    .imm = wr->imm,
					    .src_qpn = qp->qpn,
					    .dst_qpn = qp->peer_qpn,
					    .write_len_bytes = wr->len_bytes,
					    .is_last = i + 1 == wr->chunk_count,
					    .has_imm = wr->has_imm,
					    .dst = wr->dst + offset,
					    .len_bytes = len};
		memcpy(chunk->data, src + offset, len);
		qp->free_ns = at + 50 + (uint64_t)len * sim->conf.ps_per_byte[path] / 1000;
		at = qp->free_ns + sim->conf.latency_ns[path] +
		     rng_next(&sim->rng) % (sim->conf.jitter_ns[path] + 1);
		qp->last_arrive_ns = at > qp->last_arrive_ns ? at : qp->last_arrive_ns + 1;
		sim_push(sim, (struct ev){.at_ns = qp->last_arrive_ns,
					  .type = EV_ARRIVE,
					  .side = (uint8_t)side,
					  .path = (uint8_t)path,
					  .ptr = chunk});
	}
}

static void kick(struct sim *sim, unsigned int side, unsigned int path)
{
	struct net_qp *qp = &sim->net.qps[side][path];

	while (qp->state == QP_RTS && !qp->dead && qp->next != qp->tail &&
	       qp->next - qp->una < sim->conf.tx_window_wrs && !sim->failed) {
		if (qp->next == qp->una) {
			qp->progress_ns = sim->now_ns;
		}
		transmit(sim, side, path, &qp->sq[qp->next % NET_SQ_WRS]);
		qp->next++;
		start_timer(sim, side, path);
	}
}

void net_post(struct sim *sim, unsigned int side, unsigned int path, const struct net_wr *wr)
{
	struct net_qp *qp = &sim->net.qps[side][path];
	struct net_wr *place = &qp->sq[qp->tail % NET_SQ_WRS];
	uint32_t unit = wr->src ? sim->conf.chunk_bytes : 32;

	if (qp->dead || qp->state == QP_GONE) {
		return;
	}
	if (qp->state == QP_ERR) {
		if (qp->flushes) {
			complete(sim, side, path, (struct repair_wc){wr->wr_id, CAUSE_FLUSH, 0, 0});
		}
		return;
	}
	*place = *wr;
	place->chunk_count = (uint16_t)(wr->len_bytes > unit ? wr->len_bytes / unit : 1);
	if (place->chunk_count > 4) {
		place->chunk_count = 4;
	}
	place->psn = qp->psn_tail;
	qp->psn_tail += place->chunk_count;
	qp->tail++;
	kick(sim, side, path);
}

void net_post_recvs(struct sim *sim, unsigned int side, unsigned int path, uint64_t wr_id,
		    uint32_t count)
{
	struct net_qp *qp = &sim->net.qps[side][path];

	qp->recv_wr_id = wr_id;
	if (qp->state == QP_RTS) {
		qp->recvs += count;
		return;
	}
	for (uint32_t i = 0; i < count && qp->flushes; i++) {
		complete(sim, side, path, (struct repair_wc){wr_id, CAUSE_FLUSH, 0, 0});
	}
}

void net_qp_error(struct sim *sim, unsigned int side, unsigned int path, enum cause cause)
{
	struct net_qp *qp = &sim->net.qps[side][path];
	uint64_t visible = sim->now_ns;
	uint32_t recvs = qp->recvs;

	if (qp->state != QP_RTS || qp->dead) {
		return;
	}
	TRACE(sim, "%s QP of path %u to ERR (%s), %u WRs out", side == SIDE_TX ? "tx" : "rx", path,
	      cause_name(cause), qp->tail - qp->una);
	qp->state = QP_ERR;
	if (sim->conf.wc_lag_ns) {
		visible += rng_next(&sim->rng) % sim->conf.wc_lag_ns;
	}
	if (!qp->flushes) { /* some of the receives, and the tail of the send queue, are forgotten
			     */
		recvs = rng_below(&sim->rng, recvs + 1);
		uint32_t sure =
			cause != CAUSE_FLUSH && qp->tail != qp->una; /* an error does show */

		qp->tail -= rng_below(&sim->rng, qp->tail - qp->una + 1 - sure);
	}
	for (; qp->una != qp->tail; qp->una++) {
		uint64_t wr_id = qp->sq[qp->una % NET_SQ_WRS].wr_id;

		net_push_wc(sim, side, path, (struct net_wc){visible, {wr_id, cause, 0, 0}});
		cause = CAUSE_FLUSH;
	}
	for (uint32_t i = 0; i < recvs; i++) {
		net_push_wc(sim, side, path,
			    (struct net_wc){visible, {qp->recv_wr_id, CAUSE_FLUSH, 0, 0}});
	}
	qp->next = qp->una;
	qp->recvs = 0;
}

void net_qp_reset(struct sim *sim, unsigned int side, unsigned int path)
{
	struct net_qp *qp = &sim->net.qps[side][path];

	qp->state = QP_GONE;
	qp->cq_head = qp->cq_tail;
	qp->una = qp->next = qp->tail;
	qp->recvs = 0;
	qp->gen++;
}

void net_nic_die(struct sim *sim, unsigned int side, unsigned int path)
{
	struct net_qp *qp = &sim->net.qps[side][path];

	sim->net.nics[side][path].dead = true;
	qp->dead = true;
	qp->gen++; /* what was accepted and is not placed yet is lost */
	while (qp->cq_tail != qp->cq_head &&
	       qp->cq[(qp->cq_tail - 1) % NET_CQ_WCS].visible_ns > sim->now_ns) {
		qp->cq_tail--;
		SIM_MARK(sim, ACKED_UNSURFACED);
	}
}

bool net_poll(struct sim *sim, unsigned int side, unsigned int path, struct repair_wc *wc)
{
	struct net_qp *qp = &sim->net.qps[side][path];
	const struct net_wc *entry = &qp->cq[qp->cq_head % NET_CQ_WCS];

	if (qp->cq_head == qp->cq_tail || entry->visible_ns > sim->now_ns) {
		return false;
	}
	*wc = entry->wc;
	qp->cq_head++;
	return true;
}

void net_on_timer(struct sim *sim, const struct ev *ev)
{
	struct net_qp *qp = &sim->net.qps[ev->side][ev->path];

	if (ev->arg != qp->qpn) {
		return; /* of a QP before this one */
	}
	qp->timer_on = false;
	if (qp->state != QP_RTS || qp->dead || qp->una == qp->next) {
		return;
	}
	if (sim->now_ns < qp->progress_ns + sim->conf.rto_ns) {
		start_timer(sim, ev->side, ev->path);
		return;
	}
	if (sim->conf.retry_count && qp->resends_left-- == 0) {
		net_qp_error(sim, ev->side, ev->path, CAUSE_RETRY_EXC);
		return;
	}
	TRACE(sim, "%s path %u sends again from psn %u", ev->side == SIDE_TX ? "tx" : "rx",
	      ev->path, qp->sq[qp->una % NET_SQ_WRS].psn);
	qp->next = qp->una;
	kick(sim, ev->side, ev->path);
}

void net_on_ack(struct sim *sim, const struct ev *ev)
{
	struct net_qp *qp = &sim->net.qps[ev->side][ev->path];
	uint32_t psn = (uint32_t)ev->arg;
	bool moved = false;

	if (qp->state != QP_RTS || qp->dead || ev->arg >> 32 != qp->qpn) {
		return;
	}
	while (qp->una != qp->tail) {
		const struct net_wr *wr = &qp->sq[qp->una % NET_SQ_WRS];

		if ((int32_t)(psn - (wr->psn + wr->chunk_count)) < 0) {
			break;
		}
		if (wr->signalled) {
			complete(sim, ev->side, ev->path,
				 (struct repair_wc){wr->wr_id, CAUSE_NONE, 0, 0});
		}
		qp->una++;
		moved = true;
	}
	if ((int32_t)(qp->next - qp->una) < 0) {
		qp->next = qp->una;
	}
	if (moved) {
		qp->progress_ns = sim->now_ns;
		qp->resends_left = sim->conf.retry_count;
		kick(sim, ev->side, ev->path);
	}
}
