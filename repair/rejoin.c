/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/rejoin.h"

#include "include/clock.h"
#include "include/log.h"
#include "repair/fence.h"
#include "repair/notice.h"

#include <errno.h>
#include <string.h>

enum {
	QUIET_MS = 60000, /* a path that held this long has a clean record */
	LEVEL_MAX = 16,
};

static uint32_t mix(uint32_t value)
{
	value ^= value >> 16;
	value *= 0x7feb352du;
	value ^= value >> 15;
	value *= 0x846ca68bu;
	return value ^ value >> 16;
}

void rejoin_pattern(unsigned int path, uint32_t epoch, uint8_t out[WIRE_PROBE_BYTES])
{
	for (uint32_t i = 0; i < WIRE_PROBE_BYTES; i += sizeof(uint32_t)) {
		uint32_t word = mix(epoch * 0x9e3779b9u + path * 0x85ebca6bu + i + 1);

		memcpy(out + i, &word, sizeof(word));
	}
}

/* Delay of the present level, spread so that the comms of a rail do not all come at once. */
static uint64_t delay_ns(const struct repair_end *end, unsigned int p)
{
	const struct rejoin_state *rejoin = &end->paths[p].rejoin;
	uint64_t delay_ms = (uint64_t)end->limits.rejoin_min_ms << rejoin->level;
	uint32_t spread = mix(end->limits.salt + end->paths[p].epoch * 31 + p) % 256;

	if (delay_ms > end->limits.rejoin_max_ms) {
		delay_ms = end->limits.rejoin_max_ms;
	}
	return (delay_ms + delay_ms * spread / 1024) * NS_PER_MS;
}

static void schedule(struct repair_end *end, unsigned int p)
{
	end->paths[p].rejoin.try_ns = end->now_ns + delay_ns(end, p);
}

void rejoin_begin(struct repair_end *end, unsigned int p)
{
	schedule(end, p);
}

static void step_back(struct repair_end *end, unsigned int p)
{
	struct rejoin_state *rejoin = &end->paths[p].rejoin;

	rejoin->is_offered = false;
	rejoin->level += rejoin->level < LEVEL_MAX;
	schedule(end, p);
}

void rejoin_went_down(struct repair_end *end, unsigned int p)
{
	struct rejoin_state *rejoin = &end->paths[p].rejoin;

	rejoin->is_offered = false;
	rejoin->is_probed = false;
	if (rejoin->was_up) {
		bool held = end->now_ns - rejoin->up_ns >= QUIET_MS * NS_PER_MS;

		rejoin->flap_count = held ? 0 : rejoin->flap_count + 1;
		/* The first failure of a path is no flap. */
		rejoin->level = rejoin->flap_count > 1 ? rejoin->flap_count - 1 : 0;
		rejoin->level = rejoin->level > LEVEL_MAX ? LEVEL_MAX : rejoin->level;
		schedule(end, p);
	} else {
		step_back(end, p);
	}
	rejoin->was_up = false;
}

/* A rail that was down when it was looked at first has no speed to speak of until it is up. */
static void take_speed(struct repair_end *end, unsigned int p)
{
	const struct repair_path *path = &end->paths[p];
	uint32_t own_mbps = path->rejoin.own.rail.speed_mbps;
	uint32_t peer_mbps = path->rejoin.peer.rail.speed_mbps;

	if (own_mbps && peer_mbps) {
		repair_end_weigh(end, p, own_mbps < peer_mbps ? own_mbps : peer_mbps);
	}
}

void rejoin_went_up(struct repair_end *end, unsigned int p)
{
	struct rejoin_state *rejoin = &end->paths[p].rejoin;

	rejoin->was_up = true;
	rejoin->up_ns = end->now_ns;
	rejoin->is_offered = false;
	take_speed(end, p);
}

/* Receiver. */
static void answer(struct repair_end *end, unsigned int p, int err)
{
	struct rejoin_state *rejoin = &end->paths[p].rejoin;

	rejoin->answer_epoch = end->paths[p].epoch;
	rejoin->answer_err = err;
	notice_send(end, p, NOTICE_REJOINED);
}

static bool is_alive(const struct repair_end *end)
{
	return !end->failed && !end->closing && !end->peer_closed;
}

/* A job's answer counts only if its path still waits for it. */
static bool take_answer(struct repair_end *end, unsigned int p, uint32_t epoch, uint64_t now_ns)
{
	struct repair_path *path = &end->paths[p];

	ASSERT(p < end->path_count);
	repair_end_at(end, now_ns);
	path->rejoin.is_busy = false;
	return is_alive(end) && path->state == PATH_DOWN && path->epoch == epoch;
}

void repair_rejoin_built(struct repair_end *end, unsigned int p, uint32_t epoch, int err,
			 const struct path_side *side, uint64_t now_ns)
{
	struct rejoin_state *rejoin = &end->paths[p].rejoin;

	if (!take_answer(end, p, epoch, now_ns)) {
		return;
	}
	if (err) {
		if (!end->role->offers) {
			answer(end, p, err);
		}
		step_back(end, p);
		return;
	}
	rejoin->own = *side;
	if (end->role->offers) {
		rejoin->is_offered = true;
		notice_send(end, p, NOTICE_REJOIN);
		return;
	}
	rejoin->is_busy = true;
	end->ops->join(end->ctx, p, epoch, &rejoin->peer);
}

void repair_rejoin_joined(struct repair_end *end, unsigned int p, uint32_t epoch, int err,
			  uint64_t now_ns)
{
	if (!take_answer(end, p, epoch, now_ns)) {
		return;
	}
	if (err) {
		if (!end->role->offers) {
			answer(end, p, err);
		}
		/* A receiver that is probing already finds out by the bound on probing. */
		step_back(end, p);
		return;
	}
	fence_event(end, p, PATH_EV_JOINED, NULL);
	if (!end->role->offers && end->paths[p].state == PATH_PROBING) {
		answer(end, p, 0);
	}
}

static void on_offer(struct repair_end *end, unsigned int p, const struct frame_rejoin *frame)
{
	struct rejoin_state *rejoin = &end->paths[p].rejoin;

	if (end->role->offers) {
		repair_end_fail(end, CAUSE_PROTOCOL, p, "a receiver offered to rejoin");
		return;
	}
	/* both: an HCA that was opened again may number its QPs as before */
	if (rejoin->peer.qp.qpn == frame->side.qp.qpn &&
	    rejoin->peer.qp.psn == frame->side.qp.psn && rejoin->offer_epoch == frame->epoch) {
		return; /* the same offer once more */
	}
	if (end->paths[p].state != PATH_DOWN || rejoin->is_busy) {
		rejoin->peer.rail = frame->side.rail;
		answer(end, p, -EBUSY);
		return;
	}
	rejoin->peer = frame->side;
	rejoin->offer_epoch = frame->epoch;
	rejoin->is_busy = true;
	end->ops->rebuild(end->ctx, p, frame->epoch);
}

static void on_answer(struct repair_end *end, unsigned int p, const struct frame_rejoin *frame)
{
	struct rejoin_state *rejoin = &end->paths[p].rejoin;

	if (!rejoin->is_offered || end->paths[p].state != PATH_DOWN) {
		return;
	}
	if (frame->err) {
		step_back(end, p);
		return;
	}
	if (frame->key_count > WINDOW_MSGS) {
		repair_end_fail(end, CAUSE_PROTOCOL, p, "more keys than receives can be open");
		return;
	}
	rejoin->is_offered = false;
	rejoin->is_busy = true;
	rejoin->peer = frame->side;
	end->role->take_keys(end, p, frame);
	end->ops->join(end->ctx, p, frame->epoch, &rejoin->peer);
}

/*
 * Own probe placed, the peer's too and it is what it should be: the path is back. The peer's HCA
 * was told so by ours, which may acknowledge before the bytes are in memory: looked at again each
 * tick.
 */
static void try_up(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];
	uint8_t want[WIRE_PROBE_BYTES];

	if (path->state != PATH_PROBING || !path->rejoin.is_probed ||
	    path->rejoin.peer_probed_epoch != path->epoch) {
		return;
	}
	rejoin_pattern(p, path->epoch, want);
	if (memcmp(end->probes_in + (size_t)p * WIRE_PROBE_BYTES, want, sizeof(want)) == 0) {
		fence_event(end, p, PATH_EV_READY, NULL);
	}
}

/* The epoch is not known here yet when frames overtake the raise at this end: kept for later. */
static bool is_current(struct repair_end *end, unsigned int p, uint32_t epoch)
{
	if (p >= end->path_count || end->paths[p].state == PATH_PARKED) {
		repair_end_fail(end, CAUSE_PROTOCOL, PATHS_MAX,
				"rejoin of a path that is not there");
		return false;
	}
	return epoch == end->paths[p].epoch;
}

static void on_probed(struct repair_end *end, unsigned int p);

void repair_rejoin_on_frame(struct repair_end *end, const struct frame *frame, uint64_t now_ns)
{
	bool is_offer = frame->type == FRAME_REJOIN || frame->type == FRAME_REJOINED;
	unsigned int p = is_offer ? frame->rejoin.path : frame->probed.path;
	uint32_t epoch = is_offer ? frame->rejoin.epoch : frame->probed.epoch;

	repair_end_at(end, now_ns);
	if (!is_alive(end) || !is_current(end, p, epoch)) {
		return;
	}
	if (frame->type == FRAME_REJOIN) {
		on_offer(end, p, &frame->rejoin);
	} else if (frame->type == FRAME_REJOINED) {
		on_answer(end, p, &frame->rejoin);
	} else if (frame->type == FRAME_PROBED) {
		on_probed(end, p);
	} else {
		repair_rejoin_hint(end, p, now_ns);
	}
}

void repair_rejoin_hint(struct repair_end *end, unsigned int p, uint64_t now_ns)
{
	struct repair_path *path = &end->paths[p];

	repair_end_at(end, now_ns);
	if (end->limits.rejoin_min_ms == 0 || !is_alive(end) || path->state != PATH_DOWN) {
		return;
	}
	if (!end->role->offers) {
		notice_send(end, p, NOTICE_HINT);
	} else if (path->rejoin.flap_count <= 1) {
		path->rejoin.level = 0;
		path->rejoin.try_ns = now_ns;
	}
}

static void post_probe(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];
	struct wrq_item item = {.kind = WRQ_PROBE, .signalled = true};
	int rc;

	path->rejoin.is_probe_posted = true;
	rejoin_pattern(p, path->epoch, end->probes_out + (size_t)p * WIRE_PROBE_BYTES);
	rc = end->ops->post_probe(end->ctx, p, repair_end_wr_id(end, p, WR_KIND_ITEM));
	if (rc == -EAGAIN) {
		rc = -ENOBUFS; /* the queue is new and empty */
	}
	repair_end_posted(end, p, item, rc);
}

void rejoin_begin_probe(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];

	path->rejoin.probing_ns = end->now_ns;
	path->rejoin.is_probed = false;
	path->rejoin.is_probe_posted = false;
	end->role->pump(end); /* the receiver's receives */
	if (path->state == PATH_PROBING && end->role->offers) {
		post_probe(end, p);
	}
}

static void on_probed(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];

	path->rejoin.peer_probed_epoch = path->epoch;
	if (path->state == PATH_PROBING && !path->rejoin.is_probe_posted) {
		post_probe(end, p);
	}
	try_up(end, p);
}

void rejoin_probe_placed(struct repair_end *end, unsigned int p)
{
	if (end->paths[p].state != PATH_PROBING) {
		return;
	}
	end->paths[p].rejoin.is_probed = true;
	notice_send(end, p, NOTICE_PROBED);
	try_up(end, p);
}

void rejoin_tick(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];
	struct rejoin_state *rejoin = &path->rejoin;

	if (!is_alive(end)) {
		return;
	}
	if (path->state == PATH_PROBING) {
		try_up(end, p);
		if (path->state == PATH_PROBING &&
		    end->now_ns - rejoin->probing_ns >= PROBE_BOUND_MS * NS_PER_MS) {
			repair_end_fault(end, p, CAUSE_PROBE, end->now_ns);
		}
		return;
	}
	if (end->limits.rejoin_min_ms > 0 && path->state == PATH_DOWN && end->role->offers &&
	    !rejoin->is_busy && !rejoin->is_offered && end->now_ns >= rejoin->try_ns) {
		rejoin->is_busy = true;
		end->ops->rebuild(end->ctx, p, path->epoch);
	}
}
