/* SPDX-License-Identifier: Apache-2.0 */
#include "test/sim/sim.h"

#include <errno.h>
#include <string.h>

/* The operations that repair/ is given, carried out by the simulated network. */

enum post_luck {
	POST_GOES,
	POST_FAILS,
	POST_FAILS_HALF
};

static enum post_luck draw_luck(struct host *host, unsigned int path)
{
	struct sim *sim = host->sim;

	if (host->post_fail_mask >> path & 1) {
		host->post_fail_mask &= ~(1u << path);
		return rng_chance(&sim->rng, 500) ? POST_FAILS : POST_FAILS_HALF;
	}
	if (sim->net.qps[host->side][path].dead && rng_chance(&sim->rng, 500)) {
		return POST_FAILS;
	}
	return POST_GOES;
}

static int op_post_piece(void *ctx, const struct repair_piece *piece)
{
	struct host *host = ctx;
	struct sim *sim = host->sim;
	struct net_wr data = {.wr_id = piece->whole ? piece->wr_id : piece->part_wr_id,
			      .src = (const uint8_t *)piece->local_addr,
			      .dst = (uint8_t *)piece->remote_addr,
			      .len_bytes = piece->len_bytes,
			      .imm = piece->imm,
			      .has_imm = piece->whole,
			      .signalled = piece->whole,
			      .note = {piece->whole ? NET_WHOLE : NET_DATA,
				       (uint8_t)piece->record.piece, piece->record.seq}};
	bool is_copied = piece->whole && piece->len_bytes <= sim->conf.copy_bytes;
	enum post_luck luck;

	if (is_copied) {
		memcpy(data.data, data.src, data.len_bytes);
		data.src = NULL;
		data.signalled = piece->needs_signal;
	}

	if (!net_has_room(sim, host->side, piece->path, piece->whole ? 1 : 2)) {
		SIM_MARK(sim, POST_EAGAIN);
		return -EAGAIN;
	}
	user_on_post(sim, piece);
	luck = draw_luck(host, piece->path);
	if (luck == POST_FAILS || (luck == POST_FAILS_HALF && piece->whole)) {
		SIM_MARK(sim, POST_FAIL_NONE);
		return -EIO;
	}
	net_post(sim, host->side, piece->path, &data);
	if (luck == POST_FAILS_HALF) {
		SIM_MARK(sim, POST_FAIL_HALF);
		return -ENOMEM;
	}
	if (!piece->whole) {
		struct net_wr record = {.wr_id = piece->wr_id,
					.dst = (uint8_t *)&sim->records[piece->record_idx],
					.len_bytes = WIRE_RECORD_BYTES,
					.imm = piece->imm,
					.has_imm = true,
					.signalled = true,
					.note = {NET_RECORD, data.note.piece, data.note.seq}};

		memcpy(record.data, &piece->record, WIRE_RECORD_BYTES);
		net_post(sim, host->side, piece->path, &record);
	}
	return is_copied ? REPAIR_COPIED : 0;
}

static int post_inline(struct host *host, unsigned int path, const struct net_wr *wr)
{
	if (!net_has_room(host->sim, host->side, path, 1)) {
		SIM_MARK(host->sim, POST_EAGAIN);
		return -EAGAIN;
	}
	if (draw_luck(host, path) != POST_GOES) {
		SIM_MARK(host->sim, POST_FAIL_NONE);
		return -EIO;
	}
	net_post(host->sim, host->side, path, wr);
	return 0;
}

static int op_post_cts(void *ctx, unsigned int path, unsigned int slot, uint64_t wr_id,
		       bool signalled)
{
	struct host *host = ctx;
	struct sim *sim = host->sim;
	uint64_t seq = sim->cts_source[slot].l0.seq;
	struct net_wr wr = {.wr_id = wr_id,
			    .dst = (uint8_t *)&sim->cts[slot],
			    .len_bytes = sim->conf.path_count > 8 ? 128 : 64,
			    .signalled = signalled,
			    .note = {NET_CTS, 0, seq}};

	TRACE(sim, "rx posts clear-to-send of seq %llu on path %u%s", (unsigned long long)seq, path,
	      sim->user.cts_posted[slot] == seq ? " again" : "");
	memcpy(wr.data, &sim->cts_source[slot], wr.len_bytes);
	if (sim->user.cts_posted[slot] == seq) {
		SIM_MARK(sim, CTS_AGAIN);
		if (wire_cts_acks(&sim->cts_source[slot].l0) > sim->tx.acked_seq) {
			SIM_MARK(sim, ACK_AND_CTS_LOST);
		}
	}
	sim->user.cts_posted[slot] = seq;
	return post_inline(host, path, &wr);
}

static int op_post_ack(void *ctx, unsigned int path, uint64_t next_seq, uint64_t wr_id,
		       bool signalled)
{
	struct host *host = ctx;
	struct sim *sim = host->sim;
	struct net_wr wr = {.wr_id = wr_id,
			    .dst = (uint8_t *)&sim->acks[path],
			    .len_bytes = sizeof(next_seq),
			    .signalled = signalled,
			    .note = {NET_ACK, 0, next_seq}};

	TRACE(sim, "rx acknowledges below seq %llu on path %u", (unsigned long long)next_seq, path);
	if (next_seq == sim->rx.acked_seq && next_seq > sim->conf.first_seq) {
		SIM_MARK(sim, ACK_AGAIN);
	}
	memcpy(wr.data, &next_seq, sizeof(next_seq));
	return post_inline(host, path, &wr);
}

/* Nobody may call. A round may be due at any time, also right now. */
static bool op_ack_later(void *ctx)
{
	struct host *host = ctx;
	struct sim *sim = host->sim;

	if (host->has_rounds) {
		sim_fail(sim, "asked for rounds again");
	}
	if (rng_chance(&sim->rng, sim->conf.no_rounds_permille)) {
		return false;
	}
	host->has_rounds = true;
	SIM_MARK(sim, ACK_WAITS);
	sim_push(sim, (struct ev){.at_ns = sim->now_ns + rng_next(&sim->rng) % ROUND_NS,
				  .type = EV_ACK_ROUND,
				  .side = (uint8_t)host->side});
	return true;
}

static int op_post_marker(void *ctx, unsigned int path, uint64_t wr_id)
{
	struct host *host = ctx;
	struct sim *sim = host->sim;
	const struct net_qp *qp = &sim->net.qps[host->side][path];
	struct net_wr wr = {.wr_id = wr_id, .signalled = true, .note = {NET_PROBE, 0, 0}};

	if (qp->state != QP_RTS && !qp->flushes && rng_chance(&sim->rng, 500)) {
		SIM_MARK(sim, MARKER_FAILED);
		return -ENOMEM;
	}
	if (qp->state == QP_RTS) {
		TRACE(sim, "tx probes path %u", path);
		SIM_MARK(sim, PROBED);
	}
	return post_inline(host, path, &wr);
}

static int op_post_recvs(void *ctx, unsigned int path, uint64_t wr_id, unsigned int count,
			 unsigned int *posted)
{
	struct host *host = ctx;
	enum post_luck luck = draw_luck(host, path);

	*posted = count;
	if (luck != POST_GOES) {
		*posted = luck == POST_FAILS ? 0 : count / 2;
	}
	net_post_recvs(host->sim, host->side, path, wr_id, *posted);
	return luck == POST_GOES ? 0 : -EIO;
}

static int op_post_probe(void *ctx, unsigned int path, uint64_t wr_id)
{
	struct host *host = ctx;
	struct sim *sim = host->sim;
	size_t offset = (size_t)path * WIRE_PROBE_BYTES;
	struct net_wr wr = {.wr_id = wr_id,
			    .src = sim->probes_out[host->side] + offset,
			    .dst = sim->probes_in[!host->side] + offset,
			    .len_bytes = WIRE_PROBE_BYTES,
			    .signalled = true,
			    .note = {NET_PROBE, 0, 0}};

	return post_inline(host, path, &wr);
}

static void push_work(struct host *host, unsigned int path, enum ev_type type, uint64_t arg)
{
	struct sim *sim = host->sim;

	sim_push(sim,
		 (struct ev){.at_ns = sim->now_ns + rng_next(&sim->rng) % sim->conf.fence_delay_ns,
			     .type = (uint8_t)type,
			     .side = (uint8_t)host->side,
			     .path = (uint8_t)path,
			     .arg = arg});
}

static void op_rebuild(void *ctx, unsigned int path, uint32_t epoch)
{
	push_work(ctx, path, EV_BUILT, epoch);
}

static bool op_key(void *ctx, unsigned int path, void *cookie, uint32_t *rkey)
{
	const struct host *host = ctx;
	const struct user_buf *buf = cookie;

	return user_key(host->sim, host->side, buf->seq, path, rkey);
}

static void op_join(void *ctx, unsigned int path, uint32_t epoch, const struct path_side *peer)
{
	struct host *host = ctx;

	fault_hook(host->sim, WHEN_JOIN);
	push_work(host, path, EV_JOINED, (uint64_t)epoch << 32 | peer->qp.qpn);
}

static void op_fence(void *ctx, unsigned int path)
{
	struct host *host = ctx;

	sim_push(host->sim,
		 (struct ev){.at_ns = host->sim->now_ns +
				      rng_next(&host->sim->rng) % host->sim->conf.fence_delay_ns,
			     .type = EV_FENCE_ERR,
			     .side = (uint8_t)host->side,
			     .path = (uint8_t)path});
}

static void op_cut(void *ctx, unsigned int path)
{
	struct host *host = ctx;
	struct sim *sim = host->sim;
	uint64_t at = sim->now_ns + rng_next(&sim->rng) % sim->conf.fence_delay_ns;
	uint64_t placed = sim->net.qps[host->side][path].last_place_ns;

	SIM_MARK(sim, CUT);
	sim_push(sim, (struct ev){.at_ns = at > placed ? at : placed,
				  .type = EV_CUT_DONE,
				  .side = (uint8_t)host->side,
				  .path = (uint8_t)path});
}

void link_send(struct sim *sim, unsigned int side, const struct link_frame *frame)
{
	struct host *host = &sim->hosts[side];
	struct link_frame *copy = net_alloc(sim, 2 * (uint32_t)sizeof(*copy));
	uint64_t at = sim->now_ns + sim->conf.link_delay_ns / 2 +
		      rng_next(&sim->rng) % sim->conf.link_delay_ns;
	struct ev ev = {.type = EV_FRAME, .side = (uint8_t)!side, .ptr = copy};

	if (!copy) {
		return;
	}
	if (rng_chance(&sim->rng, sim->conf.link_slow_permille)) {
		at += rng_next(&sim->rng) % 200000000;
	}
	ev.at_ns = at > host->link_last_ns ? at : host->link_last_ns + 1;
	host->link_last_ns = ev.at_ns;
	copy[0] = *frame;
	sim_push(sim, ev);
	/* The link delivers once and in order; the fence has to stand repeats all the same. */
	if ((frame->type == FRAME_FENCE || frame->type == FRAME_FENCED) &&
	    rng_chance(&sim->rng, sim->conf.link_dup_permille)) {
		copy[1] = *frame;
		copy[1].is_copy = true;
		ev.ptr = &copy[1];
		ev.at_ns += rng_spread(&sim->rng, 1000, 400000000);
		sim_push(sim, ev);
	}
}

/* A full link has room again now and then, for one frame. */
bool link_is_full(struct host *host)
{
	if (host->sim->now_ns >= host->full_ns || rng_chance(&host->sim->rng, 200)) {
		return false;
	}
	SIM_MARK(host->sim, LINK_FULL);
	return true;
}

static int op_send(void *ctx, const struct frame *frame)
{
	struct host *host = ctx;
	struct link_frame small = {.type = frame->type};

	if (link_is_full(host)) {
		host->refused_mask |= 1u << frame->type;
		return rng_chance(&host->sim->rng, 500) ? -ENOBUFS : -ENOMEM;
	}
	if (host->refused_mask >> frame->type & 1) {
		SIM_MARK(host->sim, TOLD_LATE);
	}
	if (frame->type == FRAME_FENCE) {
		small.fence = frame->fence;
	} else if (frame->type == FRAME_REJOIN || frame->type == FRAME_REJOINED) {
		small.rejoin = frame->rejoin;
	} else if (frame->type != FRAME_FENCED) {
		small.probed = frame->probed;
	} else {
		small.fenced = frame->fenced;
		if (host->end->paths[frame->fenced.path].state == PATH_FENCED) {
			SIM_MARK(host->sim, FENCED_WAITS);
		}
		fault_hook(host->sim, WHEN_ANNOUNCE);
	}
	link_send(host->sim, host->side, &small);
	return 0;
}

/* There and back over the link; a stopped peer answers when it runs again. */
static int op_ask(void *ctx)
{
	struct host *host = ctx;
	struct link_frame ping = {.type = FRAME_PING};

	if (link_is_full(host)) {
		return -ENOBUFS;
	}
	TRACE(host->sim, "%s asks for a sign of life", host->side == SIDE_TX ? "tx" : "rx");
	SIM_MARK(host->sim, ASKED);
	link_send(host->sim, host->side, &ping);
	return 0;
}

/* As plugin/sibling.c: packets between these two rails do not get through. */
static void tell_sibling(const struct host *host, const struct repair_report *report)
{
	struct sim *sim = host->sim;

	if (!sim->sibling || sim->sibling->quiet ||
	    (report->cause != CAUSE_RETRY_EXC && report->cause != CAUSE_RESP_TIMEOUT &&
	     report->cause != CAUSE_STALL)) {
		return;
	}
	SIM_MARK(sim, SIBLING_TOLD);
	sim_push(sim->sibling,
		 (struct ev){.at_ns = sim->now_ns + rng_spread(&sim->rng, 1000, 1000000),
			     .type = EV_NOTICE,
			     .side = (uint8_t)host->side,
			     .path = (uint8_t)report->path,
			     .arg = CAUSE_PAIR});
}

static void mark_fault(struct host *host, const struct repair_report *report)
{
	struct sim *sim = host->sim;
	const struct host *other = &sim->hosts[!host->side];
	unsigned int p = report->path, busy = 0;
	enum path_state there = other->end->paths[p].state;

	if ((there == PATH_FENCING || there == PATH_FENCED) && !(host->seen_fence_mask >> p & 1)) {
		SIM_MARK(sim, CROSSED_FENCES);
	}
	for (unsigned int i = 0; i < sim->conf.path_count; i++) {
		enum path_state state = host->end->paths[i].state;

		busy += state != PATH_UP && state != PATH_DOWN;
	}
	if (busy > 1) {
		SIM_MARK(sim, TWO_AT_ONCE);
	}
	if (report->cause == CAUSE_STALL && !report->cause_is_peer && !sim->conf.told) {
		SIM_MARK(sim, STALL_FOUND);
	}
	tell_sibling(host, report);
	fault_hook(sim, WHEN_BEGIN);
}

static void went_down(struct host *host, unsigned int path)
{
	host->seen_fence_mask &= ~(1u << path);
	fault_hook(host->sim, WHEN_DOWN);
}

/* Where paths can come back, one end may give up just when the other has one: its user closes. */
static void went_wrong(struct host *host, const struct repair_report *report)
{
	host->failed = report->cause;
	host->failed_detail = report->detail;
	if (host->sim->conf.heals && report->cause == CAUSE_NO_PATH) {
		struct link_frame frame = {.type = FRAME_CLOSE};

		if (host->side == SIDE_RX) {
			frame.close.next_seq = host->sim->rx.book.next_seq;
		}
		link_send(host->sim, host->side, &frame);
	}
}

/* Before a path carries traffic again, what the peer wrote over it has arrived as it was sent. */
static void check_probe(struct host *host, const struct repair_report *report)
{
	struct sim *sim = host->sim;
	uint8_t want[WIRE_PROBE_BYTES];

	rejoin_pattern(report->path, report->epoch, want);
	if (memcmp(sim->probes_in[host->side] + (size_t)report->path * WIRE_PROBE_BYTES, want,
		   sizeof(want))) {
		sim_fail(sim, "path %u comes back at %s though its probe is not what was sent",
			 report->path, host->side == SIDE_TX ? "tx" : "rx");
	}
}

static void op_report(void *ctx, const struct repair_report *report)
{
	struct host *host = ctx;
	struct sim *sim = host->sim;
	static const char *const kinds[] = {
		[REPAIR_REPORT_FAULT] = "fault",     [REPAIR_REPORT_DOWN] = "down",
		[REPAIR_REPORT_BACK] = "back",       [REPAIR_REPORT_STILL_DOWN] = "still down",
		[REPAIR_REPORT_SLOW] = "slow",       [REPAIR_REPORT_SOUND] = "sound",
		[REPAIR_REPORT_NO_PATH] = "no path", [REPAIR_REPORT_FAILED] = "FAILED"};

	TRACE(sim, "%s reports %s: path %u epoch %u, %s%s, replays %u pieces, %u entries again %s",
	      host->side == SIDE_TX ? "tx" : "rx", kinds[report->kind], report->path, report->epoch,
	      cause_name(report->cause), report->cause_is_peer ? " (peer)" : "",
	      report->replay_pieces, report->again_count, report->detail ? report->detail : "");
	switch (report->kind) {
	case REPAIR_REPORT_FAULT:
		mark_fault(host, report);
		break;
	case REPAIR_REPORT_DOWN:
		if (sim->conf.path_count - report->up_count >= 3) {
			SIM_MARK(sim, THREE_LOST);
		}
		if (report->epoch > 1 && report->replay_pieces) {
			SIM_MARK(sim, LOST_AGAIN);
		}
		went_down(host, report->path);
		break;
	case REPAIR_REPORT_STILL_DOWN:
		SIM_MARK(sim, STILL_DOWN);
		went_down(host, report->path);
		break;
	case REPAIR_REPORT_BACK:
		SIM_MARK(sim, BACK);
		check_probe(host, report);
		if (host->back_mask >> report->path & 1) {
			SIM_MARK(sim, BACK_TWICE);
		}
		host->back_mask |= 1u << report->path;
		fault_hook(sim, WHEN_BACK);
		break;
	case REPAIR_REPORT_SLOW:
		SIM_MARK(sim, PATH_SLOW);
		break;
	case REPAIR_REPORT_SOUND:
	case REPAIR_REPORT_NO_PATH:
		break;
	case REPAIR_REPORT_FAILED:
		went_wrong(host, report);
		break;
	}
}

const struct repair_ops sim_ops = {
	.post_piece = op_post_piece,
	.post_cts = op_post_cts,
	.post_ack = op_post_ack,
	.ack_later = op_ack_later,
	.post_marker = op_post_marker,
	.post_recvs = op_post_recvs,
	.post_probe = op_post_probe,
	.rebuild = op_rebuild,
	.join = op_join,
	.key = op_key,
	.fence = op_fence,
	.cut = op_cut,
	.send = op_send,
	.ask = op_ask,
	.report = op_report,
};
