/* SPDX-License-Identifier: Apache-2.0 */
#include "test/sim/sim.h"

#include <errno.h>
#include <string.h>

void host_init(struct sim *sim, unsigned int side)
{
	struct host *host = &sim->hosts[side];

	*host = (struct host){.sim = sim, .side = side, .poll_ns = UINT64_MAX};
	host->end = side == SIDE_TX ? &sim->tx.end : &sim->rx.end;
	memset(sim->probes_in[side], 0, sizeof(sim->probes_in[side]));
	sim_push(sim, (struct ev){.at_ns = 1, .type = EV_TICK, .side = (uint8_t)side});
}

void host_wake(struct sim *sim, unsigned int side, uint64_t at_ns)
{
	struct host *host = &sim->hosts[side];

	at_ns = (at_ns > sim->now_ns ? at_ns : sim->now_ns) + sim->conf.poll_delay_ns;
	if (at_ns < host->poll_ns && !sim->quiet) {
		host->poll_ns = at_ns;
		sim_push(sim, (struct ev){.at_ns = at_ns, .type = EV_POLL, .side = (uint8_t)side});
	}
}

static void mark_completion(struct host *host, const struct repair_wc *wc)
{
	struct sim *sim = host->sim;
	struct wr_id id = wr_id_unpack(wc->wr_id);
	const struct repair_path *path = &host->end->paths[id.path];
	const struct wrq_item *item = &path->sq.items[id.idx % WRQ_ITEMS];

	if (path->state == PATH_FENCED || path->state == PATH_DOWN) {
		SIM_MARK(sim, LATE_WC);
		return;
	}
	if (id.kind == WR_KIND_RECV && wc->cause == CAUSE_NONE) {
		user_on_arrived(sim, id.path, wc->imm);
	}
	if (host->side == SIDE_TX && id.kind == WR_KIND_ITEM && wrq_knows(&path->sq, id.idx) &&
	    item->kind == WRQ_PIECE) {
		const struct repair_tx_msg *msg = &sim->tx.msgs[item->slot];
		const struct book_msg *there = &sim->rx.book.msgs[item->slot];

		if (wc->cause == CAUSE_NONE) {
			sim->user.completed[item->slot] |= 1u << item->piece;
		} else if (there->seq == msg->seq && there->arrived >> item->piece & 1) {
			SIM_MARK(sim, BOOK_COVERS);
		}
	}
}

static void take_completion(struct host *host, const struct repair_wc *wc)
{
	TRACE(host->sim, "%s completion: path %u %s idx %u, %s",
	      host->side == SIDE_TX ? "tx" : "rx", (unsigned int)(wc->wr_id >> 48 & 0xff),
	      wc->wr_id >> 56 == WR_KIND_RECV ? "recv" : "send", (unsigned int)wc->wr_id,
	      cause_name(wc->cause));
	mark_completion(host, wc);
	repair_end_completed(host->end, wc, host->sim->now_ns);
}

/* Words and entries; which of them said it. */
static void poll_acks(struct sim *sim)
{
	uint64_t word = sim->tx.acked_seq;

	for (unsigned int p = 0; p < sim->conf.path_count; p++) {
		word = sim->acks[p].next_seq > word ? sim->acks[p].next_seq : word;
	}
	repair_tx_poll_acks(&sim->tx);
	if (sim->tx.acked_seq > word) {
		SIM_MARK(sim, ENTRY_ACKS);
	}
}

static void poll(struct host *host)
{
	struct sim *sim = host->sim;
	struct repair_wc wc;

	for (unsigned int p = 0; p < sim->conf.path_count; p++) {
		uint32_t left = sim->conf.wcs_per_poll;

		while (left > 0 && net_poll(sim, host->side, p, &wc)) {
			/* A flush of hundreds of receives is one batch. */
			left -= wc.cause == CAUSE_NONE;
			take_completion(host, &wc);
		}
		if (left == 0) {
			host_wake(sim, host->side, sim->now_ns);
		}
	}
	if (host->side == SIDE_TX) {
		poll_acks(sim);
	}
	repair_end_pump(host->end, sim->now_ns);
	if (sim->now_ns >= host->nap_ns && !host->end->failed) {
		user_step(sim, host->side);
	}
}

static void mark_entries(struct host *host, const struct frame_fenced *frame)
{
	const struct repair_rx *rx = &host->sim->rx;

	for (unsigned int i = 0; host->side == SIDE_RX && i < WINDOW_MSGS; i++) {
		const struct repair_rx_slot *slot = &rx->slots[wire_slot(frame->next_seq + i)];

		if (frame->pieces[i] && slot->cts_path == frame->path) {
			SIM_MARK(host->sim, CTS_THERE);
		}
	}
}

static void on_rejoin_frame(struct host *host, const struct link_frame *small)
{
	static const char *const names[] = {[FRAME_REJOIN] = "REJOIN",
					    [FRAME_REJOINED] = "REJOINED",
					    [FRAME_REJOIN_HINT] = "REJOIN_HINT",
					    [FRAME_PROBED] = "PROBED"};
	struct frame frame = {.type = small->type};
	bool offers = frame.type == FRAME_REJOIN || frame.type == FRAME_REJOINED;

	if (offers) {
		frame.rejoin = small->rejoin;
	} else {
		frame.probed = small->probed;
	}
	TRACE(host->sim, "%s gets %s path %u epoch %u err %d%s",
	      host->side == SIDE_TX ? "tx" : "rx", names[frame.type],
	      offers ? frame.rejoin.path : frame.probed.path,
	      offers ? frame.rejoin.epoch : frame.probed.epoch, offers ? frame.rejoin.err : 0,
	      small->is_copy ? " again" : "");
	repair_rejoin_on_frame(host->end, &frame, host->sim->now_ns);
}

static void on_frame(struct host *host, const struct link_frame *frame)
{
	struct sim *sim = host->sim;

	switch ((int)frame->type) {
	case FRAME_FENCE:
		TRACE(sim, "%s gets FENCE path %u epoch %u (%s)%s",
		      host->side == SIDE_TX ? "tx" : "rx", frame->fence.path, frame->fence.epoch,
		      cause_name((enum cause)frame->fence.cause), frame->is_copy ? " again" : "");
		if (frame->is_copy) {
			SIM_MARK(sim, DUP_FENCE);
		} else if (host->end->paths[frame->fence.path].state == PATH_DOWN) {
			SIM_MARK(sim, FENCE_WHILE_DOWN);
		}
		host->seen_fence_mask |= 1u << frame->fence.path;
		repair_end_on_fence(host->end, &frame->fence, sim->now_ns);
		break;
	case FRAME_FENCED:
		TRACE(sim, "%s gets FENCED path %u epoch %u next_seq %llu%s",
		      host->side == SIDE_TX ? "tx" : "rx", frame->fenced.path, frame->fenced.epoch,
		      (unsigned long long)frame->fenced.next_seq, frame->is_copy ? " again" : "");
		if (frame->is_copy) {
			SIM_MARK(sim, DUP_FENCED);
		} else if (host->end->paths[frame->fenced.path].state == PATH_DOWN &&
			   host->end->paths[frame->fenced.path].epoch == frame->fenced.epoch) {
			SIM_MARK(sim, FENCED_WHILE_DOWN);
		}
		mark_entries(host, &frame->fenced);
		if (host->side == SIDE_TX && frame->fenced.next_seq > sim->tx.acked_seq) {
			SIM_MARK(sim, FENCED_ACKS);
		}
		repair_end_on_fenced(host->end, &frame->fenced, sim->now_ns);
		if (host->end->paths[frame->fenced.path].state == PATH_FENCING_HEARD) {
			SIM_MARK(sim, FENCING_HEARD);
		}
		break;
	case FRAME_PING:
		if (!link_is_full(host)) { /* else it is lost, as in oob/link_io.c */
			link_send(sim, host->side, &(struct link_frame){.type = FRAME_PONG});
		}
		break;
	case FRAME_PONG:
		poll(host);
		repair_end_answered(host->end, sim->now_ns);
		break;
	case FRAME_REJOIN:
	case FRAME_REJOINED:
	case FRAME_REJOIN_HINT:
	case FRAME_PROBED:
		on_rejoin_frame(host, frame);
		break;
	case FRAME_CLOSE:
		TRACE(sim, "%s gets CLOSE next_seq %llu", host->side == SIDE_TX ? "tx" : "rx",
		      (unsigned long long)frame->close.next_seq);
		if (host->side == SIDE_RX) {
			host->end->peer_closed = true;
			host->told_closed = true;
			break;
		}
		if (frame->close.next_seq > sim->tx.acked_seq) {
			SIM_MARK(sim, CLOSE_COVERS);
		}
		repair_tx_on_close(&sim->tx, frame->close.next_seq, sim->now_ns);
		break;
	}
	host_wake(sim, host->side, sim->now_ns);
}

static bool is_odd(const struct host *host, unsigned int path, bool is_cut)
{
	const struct sim_conf *conf = &host->sim->conf;

	return conf->goal == GOAL_UNFENCED && conf->odd_side == host->side &&
	       conf->odd_path == path && conf->odd_is_cut == is_cut;
}

static void fence_err(struct host *host, unsigned int path)
{
	struct sim *sim = host->sim;
	struct net_qp *qp = &sim->net.qps[host->side][path];
	enum fence_outcome outcome = FENCE_ERRORED;
	uint64_t at = sim->now_ns + rng_next(&sim->rng) % sim->conf.fence_delay_ns;

	if (qp->dead) {
		outcome = FENCE_DEAD;
		SIM_MARK(sim, DEAD);
	} else if (is_odd(host, path, false)) {
		outcome = FENCE_REFUSED;
		SIM_MARK(sim, REFUSED);
	} else {
		net_qp_error(sim, host->side, path, CAUSE_FLUSH);
		/* The call returns when nothing accepted before is still on its way to memory. */
		at = at > qp->last_place_ns ? at : qp->last_place_ns + 1;
	}
	sim_push(sim, (struct ev){.at_ns = at,
				  .type = EV_FENCE_DONE,
				  .side = (uint8_t)host->side,
				  .path = (uint8_t)path,
				  .arg = outcome});
}

static void cut_done(struct host *host, unsigned int path)
{
	struct sim *sim = host->sim;
	struct repair_wc wc;
	int err = 0;

	while (net_poll(sim, host->side, path, &wc)) {
		take_completion(host, &wc);
	}
	if (is_odd(host, path, true)) {
		err = -EIO;
		SIM_MARK(sim, CUT_FAILED);
	} else {
		net_qp_reset(sim, host->side, path);
	}
	TRACE(sim, "%s QP of path %u reset: %d", host->side == SIDE_TX ? "tx" : "rx", path, err);
	repair_fence_cut(host->end, path, err, sim->now_ns);
}

static void built(struct host *host, unsigned int path, uint32_t epoch)
{
	struct sim *sim = host->sim;
	struct path_side side = {.ring_rkey = 0};
	int err = 0;

	if (conf_is_replaced(&sim->conf, host->side, path, epoch)) {
		TRACE(sim, "%s opens the HCA of path %u again", host->side == SIDE_TX ? "tx" : "rx",
		      path);
		SIM_MARK(sim, REPLACED);
		sim->net.nics[host->side][path].gen++;
	}
	if (!net_qp_make(sim, host->side, path)) {
		err = -EIO;
		SIM_MARK(sim, BUILD_FAILED);
	}
	side.qp.qpn = sim->net.qps[host->side][path].qpn;
	TRACE(sim, "%s made QP %u for path %u: %d", host->side == SIDE_TX ? "tx" : "rx",
	      side.qp.qpn, path, err);
	repair_rejoin_built(host->end, path, epoch, err, &side, sim->now_ns);
}

static void joined(struct host *host, unsigned int path, uint64_t arg)
{
	struct sim *sim = host->sim;
	int err = net_qp_connect(sim, host->side, path, (uint32_t)arg) ? 0 : -EIO;

	TRACE(sim, "%s connected path %u: %d", host->side == SIDE_TX ? "tx" : "rx", path, err);
	repair_rejoin_joined(host->end, path, (uint32_t)(arg >> 32), err, sim->now_ns);
}

/* No software of this end runs any more, and its QPs are gone. */
static void leave(struct host *host)
{
	struct sim *sim = host->sim;

	host->end->closing = true;
	for (unsigned int p = 0; p < sim->conf.path_count; p++) {
		net_qp_reset(sim, host->side, p);
	}
	host->closed = true;
	user_leave(sim, host->side);
	sim_disturb(sim, sim->now_ns);
}

static void close_end(struct host *host)
{
	struct sim *sim = host->sim;
	struct link_frame frame = {.type = FRAME_CLOSE};

	TRACE(sim, "%s closes", host->side == SIDE_TX ? "tx" : "rx");
	if (host->side == SIDE_RX) {
		frame.close.next_seq = sim->rx.book.next_seq;
	}
	leave(host);
	link_send(sim, host->side, &frame);
}

/* The kernel closes its sockets, and the peer finds nobody at its port: within 2 s (P7). */
static void die(struct host *host)
{
	struct sim *sim = host->sim;
	uint64_t at = sim->now_ns + rng_spread(&sim->rng, 100000, 2000000000);

	TRACE(sim, "%s is killed", host->side == SIDE_TX ? "tx" : "rx");
	SIM_MARK(sim, KILLED);
	leave(host);
	host->killed = true;
	at = at > sim->link_ns ? at : sim->link_ns;
	sim_push(sim, (struct ev){.at_ns = at, .type = EV_GONE, .side = !host->side});
	sim_disturb(sim, at);
}

static void tick(struct host *host)
{
	struct sim *sim = host->sim;

	poll(host); /* first: a host that was stopped must not blame the paths */
	repair_end_tick(host->end, sim->now_ns);
	sim_push(sim,
		 (struct ev){.at_ns = sim->now_ns +
				      (repair_end_is_repairing(host->end) ? 1000000 : 10000000),
			     .type = EV_TICK,
			     .side = (uint8_t)host->side});
}

static void ack_round(struct host *host)
{
	struct sim *sim = host->sim;
	uint64_t before = sim->rx.acked_seq;

	host->has_rounds = repair_rx_ack_round(&sim->rx, rng_chance(&sim->rng, 200), sim->now_ns);
	if (host->has_rounds) {
		sim_push(sim, (struct ev){.at_ns = sim->now_ns + ROUND_NS,
					  .type = EV_ACK_ROUND,
					  .side = (uint8_t)host->side});
	}
	if (sim->rx.acked_seq > before) {
		SIM_MARK(sim, ACK_LATE);
	}
}

void host_event(struct sim *sim, const struct ev *ev)
{
	struct host *host = &sim->hosts[ev->side];

	if (host->closed) {
		return;
	}
	switch ((int)ev->type) {
	case EV_POLL:
		if (host->poll_ns > sim->now_ns) {
			return; /* an earlier one was due and did the work */
		}
		host->poll_ns = UINT64_MAX;
		poll(host);
		break;
	case EV_TICK:
		tick(host);
		break;
	case EV_FRAME:
		on_frame(host, ev->ptr);
		break;
	case EV_FENCE_ERR:
		fence_err(host, ev->path);
		break;
	case EV_FENCE_DONE:
		repair_fence_errored(host->end, ev->path, (enum fence_outcome)ev->arg, sim->now_ns);
		host_wake(sim, ev->side, sim->now_ns);
		break;
	case EV_CUT_DONE:
		cut_done(host, ev->path);
		host_wake(sim, ev->side, sim->now_ns);
		break;
	case EV_BUILT:
		built(host, ev->path, (uint32_t)ev->arg);
		break;
	case EV_JOINED:
		joined(host, ev->path, ev->arg);
		host_wake(sim, ev->side, sim->now_ns);
		break;
	case EV_HINT:
		SIM_MARK(sim, HINTED);
		repair_rejoin_hint(host->end, ev->path, sim->now_ns);
		break;
	case EV_NOTICE:
		TRACE(sim, "%s is told: path %u, %s", ev->side == SIDE_TX ? "tx" : "rx", ev->path,
		      cause_name((enum cause)ev->arg));
		repair_end_fault(host->end, ev->path, (enum cause)ev->arg, sim->now_ns);
		host_wake(sim, ev->side, sim->now_ns);
		break;
	case EV_ACK_ROUND:
		ack_round(host);
		break;
	case EV_CLOSE:
		close_end(host);
		break;
	case EV_KILL:
		die(host);
		break;
	case EV_GONE:
		repair_end_fail(host->end, CAUSE_PEER_GONE, PATHS_MAX, NULL);
		break;
	}
}
