/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/end.h"

#include "include/log.h"
#include "repair/fence.h"
#include "repair/hold.h"
#include "repair/notice.h"
#include "repair/pace.h"
#include "repair/rejoin.h"
#include "repair/stall.h"
#include "repair/wake.h"

#include <errno.h>
#include <string.h>

void repair_end_init(struct repair_end *end, const struct repair_role *role,
		     const struct repair_ops *ops, void *ctx, const struct repair_limits *limits)
{
	memset(end, 0, sizeof(*end));
	end->role = role;
	end->ops = ops;
	end->ctx = ctx;
	end->limits = *limits;
	end->failed = CAUSE_NONE;
	end->piece_bytes = limits->piece_min_bytes;
}

void repair_end_weigh(struct repair_end *end, unsigned int p, uint32_t weight)
{
	end->paths[p].weight = weight;
	end->weight_max = 0;
	for (unsigned int i = 0; i < end->path_count; i++) {
		if (end->paths[i].weight > end->weight_max) {
			end->weight_max = end->paths[i].weight;
		}
	}
}

void repair_end_ready(struct repair_end *end, unsigned int p, uint32_t weight, uint64_t now_ns)
{
	struct repair_path *path = &end->paths[p];

	ASSERT(p < end->path_count);
	ASSERT(weight > 0);
	repair_end_at(end, now_ns);
	repair_end_weigh(end, p, weight);
	path->speed = PACE_FULL;
	path->epoch = 1;
	fence_event(end, p, PATH_EV_READY, NULL);
	end->role->pump(end);
}

void repair_end_absent(struct repair_end *end, unsigned int p, uint32_t weight, uint64_t now_ns)
{
	struct repair_path *path = &end->paths[p];

	ASSERT(p < end->path_count && path->state == PATH_PARKED);
	ASSERT(weight > 0);
	repair_end_at(end, now_ns);
	repair_end_weigh(end, p, weight);
	path->speed = PACE_FULL;
	path->epoch = 1;
	path->down_ns = now_ns;
	path->down_cause = CAUSE_NOT_CONNECTED;
	fence_event(end, p, PATH_EV_FAULT, NULL);
	rejoin_begin(end, p);
}

static void retire_to(struct repair_end *end, unsigned int p, uint32_t idx)
{
	struct repair_path *path = &end->paths[p];
	bool last = false;

	while (!last) {
		struct wrq_item item;

		last = path->sq.done == idx;
		item = wrq_pop(&path->sq);
		share_retire(path, item.len_bytes, end->limits.large_bytes);
		end->role->retire(end, p, item);
	}
	stall_note_progress(path);
}

static void take_completion(struct repair_end *end, struct wr_id id, const struct repair_wc *wc)
{
	struct repair_path *path = &end->paths[id.path];

	/* First, so that what did not succeed is retired in FENCING, never in UP. */
	if (wc->cause != CAUSE_NONE) {
		repair_end_fault(end, id.path, wc->cause, end->now_ns);
	}
	switch (id.kind) {
	case WR_KIND_RECV:
		if (path->recvs_out == 0) {
			repair_end_fail(end, CAUSE_PROTOCOL, id.path, "receive completed twice");
			break;
		}
		path->recvs_out--;
		if (wc->cause == CAUSE_NONE) {
			stall_note_progress(path);
			end->role->arrived(end, id.path, wc->imm, wc->len_bytes);
		}
		break;
	case WR_KIND_ITEM:
		if (!wrq_knows(&path->sq, id.idx)) {
			repair_end_fail(end, CAUSE_PROTOCOL, id.path, "send completed twice");
			break;
		}
		retire_to(end, id.path, id.idx);
		if (wc->cause == CAUSE_NONE && path->state == PATH_PROBING) {
			rejoin_probe_placed(end, id.path);
		}
		break;
	case WR_KIND_PART:
		break;
	case WR_KIND_NONE:
	case WR_KIND_FLUSH:
	case WR_KIND_COUNT:
		repair_end_fail(end, CAUSE_PROTOCOL, id.path, "unknown completion");
		break;
	}
}

/*
 * A completion that outlived its QP, or its path's fence: a dead device or a reset QP may leave
 * some in the queue. What it says is too late: the own book has been read out without it, so the
 * peer counts the piece as missing and it will arrive again.
 */
static bool is_awaited(const struct repair_path *path, struct wr_id id)
{
	return id.epoch_low == (uint16_t)path->epoch && path->state != PATH_FENCED &&
	       path->state != PATH_DOWN;
}

void repair_end_completed(struct repair_end *end, const struct repair_wc *wc, uint64_t now_ns)
{
	struct wr_id id = wr_id_unpack(wc->wr_id);

	repair_end_at(end, now_ns);
	if (id.path >= end->path_count) {
		repair_end_fail(end, CAUSE_PROTOCOL, PATHS_MAX, "completion of no path");
		return;
	}
	if (end->failed || !is_awaited(&end->paths[id.path], id)) {
		return;
	}
	take_completion(end, id, wc);
	if (!end->failed && end->paths[id.path].state != PATH_UP) {
		fence_check_reaped(end, id.path);
	}
}

/* A later, better cause replaces an echo or the peer's bare notice. */
static void note_cause(struct repair_path *path, enum cause cause, bool is_peer)
{
	bool vague = path->cause == CAUSE_NONE || path->cause == CAUSE_PEER_NOTICE ||
		     cause_class(path->cause) == CAUSE_CLASS_ECHO;

	if (vague && cause != CAUSE_NONE) {
		path->cause = cause;
		path->cause_is_peer = is_peer;
	}
}

void repair_end_fault(struct repair_end *end, unsigned int p, enum cause cause, uint64_t now_ns)
{
	ASSERT(p < end->path_count);
	repair_end_at(end, now_ns);
	if (end->failed || end->closing) {
		return;
	}
	/* A peer that has closed takes its QPs and keys away: errors are expected and fail nothing,
	 * but the work they leave behind has to come back. */
	if (cause_class(cause) == CAUSE_CLASS_SOFT && end->paths[p].state == PATH_PROBING) {
		cause = CAUSE_PROBE; /* nothing but the probe was there to be wrong */
	}
	if (cause_class(cause) == CAUSE_CLASS_SOFT && !end->peer_closed) {
		repair_end_fail(end, cause, p, NULL);
		return;
	}
	if (end->paths[p].state != PATH_DOWN && end->paths[p].state != PATH_PARKED) {
		note_cause(&end->paths[p], cause, false);
	}
	fence_event(end, p, PATH_EV_FAULT, NULL);
}

/* False: not for us. Stale epochs are dropped, epochs that can't be fail the comm. */
static bool accept_frame(struct repair_end *end, unsigned int p, uint32_t epoch)
{
	if (end->failed || end->closing) {
		return false;
	}
	if (p >= end->path_count || end->paths[p].state == PATH_PARKED ||
	    epoch > end->paths[p].epoch) {
		repair_end_fail(end, CAUSE_PROTOCOL, PATHS_MAX,
				"fence of a path that is not there");
		return false;
	}
	return epoch == end->paths[p].epoch;
}

static enum cause peer_cause(uint8_t raw)
{
	enum cause cause = (enum cause)raw;

	return raw < CAUSE_COUNT && cause_class(cause) == CAUSE_CLASS_PATH ? cause
									   : CAUSE_PEER_NOTICE;
}

void repair_end_on_fence(struct repair_end *end, const struct frame_fence *frame, uint64_t now_ns)
{
	repair_end_at(end, now_ns);
	if (accept_frame(end, frame->path, frame->epoch)) {
		note_cause(&end->paths[frame->path], peer_cause(frame->cause), true);
		fence_event(end, frame->path, PATH_EV_PEER_FENCE, NULL);
	}
}

void repair_end_on_fenced(struct repair_end *end, const struct frame_fenced *frame, uint64_t now_ns)
{
	repair_end_at(end, now_ns);
	if (accept_frame(end, frame->path, frame->epoch)) {
		note_cause(&end->paths[frame->path], peer_cause(frame->cause), true);
		fence_event(end, frame->path, PATH_EV_PEER_FENCED, frame);
	}
}

void repair_end_tick(struct repair_end *end, uint64_t now_ns)
{
	repair_end_at(end, now_ns);
	if (end->failed) {
		repair_end_forget(end); /* no completion is taken any more */
	}
	if (end->failed || end->closing) {
		return;
	}
	wake_check(end);
	wake_note_tick(end);
	for (unsigned int p = 0; p < end->path_count && !end->failed; p++) {
		notice_tick(end, p);
		fence_tick(end, p);
		stall_tick(end, p);
		rejoin_tick(end, p);
	}
	if (!end->failed && !end->peer_closed) {
		hold_tick(end);
	}
}

void repair_end_pump(struct repair_end *end, uint64_t now_ns)
{
	repair_end_at(end, now_ns);
	if (!end->failed) {
		end->role->pump(end);
	}
}

void repair_end_fail(struct repair_end *end, enum cause cause, unsigned int p, const char *detail)
{
	if (end->failed) {
		return;
	}
	end->failed = cause;
	end->ops->report(end->ctx, &(struct repair_report){.kind = REPAIR_REPORT_FAILED,
							   .path = p,
							   .cause = cause,
							   .detail = detail,
							   .up_count = repair_end_up_count(end)});
}

void repair_end_answered(struct repair_end *end, uint64_t now_ns)
{
	repair_end_at(end, now_ns);
	if (end->failed || end->closing) {
		return;
	}
	wake_check(end);
	stall_answered(end);
	if (!end->failed && !end->peer_closed) {
		hold_answered(end);
	}
}

void repair_end_forget(struct repair_end *end)
{
	for (unsigned int p = 0; p < end->path_count; p++) {
		struct repair_path *path = &end->paths[p];

		pace_forget(path);
		if (path->share) {
			atomic_fetch_sub_explicit(&path->share->load_bytes, path->shared_bytes,
						  memory_order_relaxed);
			path->shared_bytes = 0;
			path->share = NULL;
		}
	}
}

uint32_t repair_end_up_mask(const struct repair_end *end)
{
	uint32_t mask = 0;

	for (unsigned int p = 0; p < end->path_count; p++) {
		if (end->paths[p].state == PATH_UP) {
			mask |= 1u << p;
		}
	}
	return mask;
}

unsigned int repair_end_up_count(const struct repair_end *end)
{
	return (unsigned int)__builtin_popcount(repair_end_up_mask(end));
}

bool repair_end_is_repairing(const struct repair_end *end)
{
	for (unsigned int p = 0; p < end->path_count; p++) {
		enum path_state state = end->paths[p].state;

		if (state == PATH_FENCING || state == PATH_FENCING_HEARD || state == PATH_FENCED ||
		    state == PATH_PROBING || end->paths[p].owed) {
			return true;
		}
	}
	return false;
}
