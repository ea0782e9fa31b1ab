/* SPDX-License-Identifier: Apache-2.0 */
#include "test/sim/net.h"
#include "test/sim/sim.h"

#include <string.h>

/* True: the packet is lost or comes later. */
static bool wire_takes(struct sim *sim, unsigned int from, const struct ev *ev)
{
	const struct net_wire *wire = &sim->net.wires[from][ev->path];
	bool is_ack = ev->type == EV_ACK;

	if (wire->drops || (is_ack && wire->drops_acks)) {
		return true;
	}
	if (wire->drops_large && !is_ack &&
	    ((const struct net_chunk *)ev->ptr)->len_bytes > NET_LARGE_BYTES) {
		SIM_MARK(sim, LARGE_LOST);
		return true;
	}
	if (wire->holds) {
		struct ev later = *ev;

		later.at_ns = wire->release_ns;
		if (!is_ack) {
			((struct net_chunk *)ev->ptr)->was_held = true;
		}
		sim_push(sim, later);
		return true;
	}
	return false;
}

/* The acknowledgement of everything before psn goes back over the other direction. */
static void acknowledge(struct sim *sim, const struct ev *ev, uint32_t psn)
{
	const struct net_chunk *chunk = ev->ptr;
	uint64_t delay = sim->conf.latency_ns[ev->path] +
			 rng_next(&sim->rng) % (sim->conf.jitter_ns[ev->path] + 1);
	struct ev ack = {.at_ns = sim->now_ns + delay,
			 .type = EV_ACK,
			 .side = ev->side, /* the requester it is for */
			 .path = ev->path,
			 .arg = (uint64_t)chunk->src_qpn << 32 | psn};

	if (!wire_takes(sim, !ev->side, &ack)) {
		sim_push(sim, ack);
	}
}

static void mark_dropped(struct sim *sim, const struct net_chunk *chunk)
{
	if (chunk->was_held) {
		SIM_MARK(sim, ZOMBIE_DROPPED);
	}
}

void net_on_arrive(struct sim *sim, const struct ev *ev)
{
	unsigned int side = !ev->side; /* the responder's */
	struct net_qp *qp = &sim->net.qps[side][ev->path];
	struct net_chunk *chunk = ev->ptr;
	struct ev place = *ev;
	uint64_t lag = sim->conf.place_lag_ns;

	if (wire_takes(sim, ev->side, ev)) {
		return;
	}
	if (qp->dead || qp->state != QP_RTS || chunk->dst_qpn != qp->qpn) {
		mark_dropped(sim, chunk);
		if (qp->state == QP_RTS && !qp->dead) {
			SIM_MARK(sim, OLD_QP_DROPPED);
		}
		return;
	}
	if (chunk->src_qpn != qp->peer_qpn) {
		sim_fail(sim, "path %u: packet of QP %u for one that is connected to %u", ev->path,
			 chunk->src_qpn, qp->peer_qpn);
		return;
	}
	if (chunk->psn != qp->psn_expected) {
		if ((int32_t)(chunk->psn - qp->psn_expected) < 0) {
			SIM_MARK(sim, RESENT);
			acknowledge(sim, ev, qp->psn_expected);
		}
		return;
	}
	if (chunk->was_held) {
		SIM_MARK(sim, ZOMBIE_LANDED);
	}
	qp->psn_expected++;
	if (chunk->has_imm && chunk->is_last) {
		if (qp->recvs == 0) {
			sim_fail(sim, "path %u has no receive for an immediate", ev->path);
			return;
		}
		qp->recvs--;
	}
	if (chunk->is_last) {
		acknowledge(sim, ev, qp->psn_expected);
	}
	chunk->gen = qp->gen;
	place.at_ns = sim->now_ns + (lag ? rng_next(&sim->rng) % lag : 0);
	place.at_ns = place.at_ns > qp->last_place_ns ? place.at_ns : qp->last_place_ns;
	place.type = EV_PLACE;
	qp->last_place_ns = place.at_ns;
	if (place.at_ns == sim->now_ns) {
		net_on_place(sim, &place);
	} else {
		sim_push(sim, place);
	}
}

static void check_cts(struct sim *sim, const struct net_chunk *chunk)
{
	unsigned int slot = wire_slot(chunk->note.seq);
	uint64_t have = sim->cts[slot].l0.seq;

	if (chunk->note.seq < have) {
		sim_fail(sim, "clear-to-send slot %u falls back from seq %llu to %llu", slot,
			 (unsigned long long)have, (unsigned long long)chunk->note.seq);
	}
}

static void check_ack(struct sim *sim, const struct net_chunk *chunk)
{
	uint64_t have = ((struct wire_ack *)(void *)chunk->dst)->next_seq, next;

	memcpy(&next, chunk->data, sizeof(next));
	if (next < have) {
		sim_fail(sim, "acknowledgement word falls back from %llu to %llu",
			 (unsigned long long)have, (unsigned long long)next);
	}
}

static void check_place(struct sim *sim, const struct net_chunk *chunk, unsigned int path)
{
	switch ((enum net_tag)chunk->note.tag) {
	case NET_DATA:
	case NET_WHOLE:
		user_on_place(sim, chunk, path);
		break;
	case NET_CTS:
		check_cts(sim, chunk);
		break;
	case NET_ACK:
		check_ack(sim, chunk);
		break;
	case NET_RECORD:
	case NET_PROBE:
		break;
	}
}

void net_on_place(struct sim *sim, const struct ev *ev)
{
	unsigned int side = !ev->side;
	struct net_qp *qp = &sim->net.qps[side][ev->path];
	const struct net_chunk *chunk = ev->ptr;

	if (chunk->gen != qp->gen) {
		SIM_MARK(sim, ACKED_UNPLACED);
		return;
	}
	check_place(sim, chunk, ev->path);
	if (chunk->len_bytes > 0) {
		memcpy(chunk->dst, chunk->data, chunk->len_bytes);
	}
	if (chunk->note.tag == NET_PROBE && chunk->len_bytes > 0 &&
	    sim->now_ns < sim->net.wires[ev->side][ev->path].garbles_ns) {
		chunk->dst[chunk->psn * 7 % chunk->len_bytes] ^= 0x10;
		SIM_MARK(sim, GARBLED);
	}
	if (chunk->has_imm && chunk->is_last) {
		uint64_t lag = sim->conf.wc_lag_ns ? rng_next(&sim->rng) % sim->conf.wc_lag_ns : 0;
		struct repair_wc wc = {qp->recv_wr_id, CAUSE_NONE, chunk->imm,
				       chunk->write_len_bytes};

		net_push_wc(sim, side, ev->path, (struct net_wc){sim->now_ns + lag, wc});
	} else if (chunk->note.tag == NET_CTS || chunk->note.tag == NET_ACK) {
		host_wake(sim, side, sim->now_ns);
	}
}
