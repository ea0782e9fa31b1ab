/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/stall.h"

#include "include/clock.h"
#include "include/log.h"
#include "repair/end.h"
#include "repair/wake.h"

enum {
	SLOWEST_BYTES_PER_MS = 10000, /* 10 MB/s: slower than this counts as not moving */
	/* in stall_ms: an answer that stays out so long may have been dropped by a full link */
	ASK_AGAIN = 10,
	PROBE_PART = 4, /* of stall_ms: what makes no completion is seen to so much later */
};

/* What happened since the last look happened now. */
static void settle(struct repair_path *path, uint64_t now_ns)
{
	if (path->has_posted) {
		path->posted_ns = now_ns;
	}
	if (path->has_moved) {
		path->moved_ns = now_ns;
	}
	if (path->has_moved || path->has_begun) {
		path->progress_ns = now_ns;
		path->asked_ns = 0;
		path->stalled_ns = 0;
	}
	path->has_posted = false;
	path->has_moved = false;
	path->has_begun = false;
}

static uint64_t bound_ns(const struct repair_end *end, const struct repair_path *path)
{
	uint64_t oldest_bytes = path->sq.items[path->sq.done % WRQ_ITEMS].len_bytes;

	return (end->limits.stall_ms + oldest_bytes / SLOWEST_BYTES_PER_MS) * NS_PER_MS;
}

static uint64_t last_sign_ns(const struct repair_path *path)
{
	return path->posted_ns > path->progress_ns ? path->posted_ns : path->progress_ns;
}

static bool is_to_be_asked(const struct repair_end *end, const struct repair_path *path)
{
	if (path->asked_ns) {
		return end->now_ns - path->again_ns >=
		       (uint64_t)ASK_AGAIN * end->limits.stall_ms * NS_PER_MS;
	}
	return end->now_ns - path->progress_ns >= bound_ns(end, path);
}

/* Nothing signalled is out. What is leaves no trace, so something that does is sent after it. */
static bool is_to_be_probed(const struct repair_end *end, const struct repair_path *path)
{
	uint64_t quiet_ns = end->now_ns - last_sign_ns(path);
	uint64_t bound_ns = end->limits.stall_ms * NS_PER_MS;

	return (wrq_out(&path->sq) > 0 && quiet_ns >= bound_ns / PROBE_PART) ||
	       (end->role->waits(end) && quiet_ns >= bound_ns);
}

void stall_tick(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];

	settle(path, end->now_ns);
	if (end->limits.stall_ms == 0 || path->state != PATH_UP) {
		return;
	}
	if (path->sq.signalled_out == 0) {
		if (is_to_be_probed(end, path)) {
			end->role->probe(end, p);
			settle(path, end->now_ns);
		}
		return;
	}
	if (is_to_be_asked(end, path) && end->ops->ask(end->ctx) == 0) {
		path->asked_ns = path->asked_ns ? path->asked_ns : end->now_ns;
		path->again_ns = end->now_ns;
		path->stalled_ns = path->stalled_ns ? path->stalled_ns : end->now_ns;
	}
}

/* Nothing else is left to wait for: the peer is alive and the comm has stood still that long. */
static bool is_hopeless(const struct repair_end *end, const struct repair_path *path)
{
	return end->now_ns - path->stalled_ns >= end->limits.no_path_ms * NS_PER_MS;
}

/* Else the peer was away, or the link, and what it did meanwhile may be on its way: asked anew. */
static bool is_prompt(const struct repair_end *end, const struct repair_path *path)
{
	return end->now_ns - path->asked_ns < wake_bound_ns(end);
}

/* Not under suspicion, or it has moved since this one was: several may be asked about together. */
static bool another_moves(const struct repair_end *end, unsigned int p)
{
	for (unsigned int i = 0; i < end->path_count; i++) {
		const struct repair_path *other = &end->paths[i];

		if (i != p && other->state == PATH_UP &&
		    (other->asked_ns == 0 || other->moved_ns > end->paths[p].stalled_ns)) {
			return true;
		}
	}
	return false;
}

/* Judged before any is acted upon: what becomes of one must not count against the next. */
static uint32_t find_guilty(const struct repair_end *end)
{
	uint32_t mask = 0;

	for (unsigned int p = 0; p < end->path_count; p++) {
		const struct repair_path *path = &end->paths[p];

		if (path->state == PATH_UP && path->asked_ns &&
		    ((is_prompt(end, path) && another_moves(end, p)) || is_hopeless(end, path))) {
			mask |= 1u << p;
		}
	}
	return mask;
}

void stall_answered(struct repair_end *end)
{
	uint32_t guilty;

	for (unsigned int p = 0; p < end->path_count; p++) {
		settle(&end->paths[p], end->now_ns);
	}
	guilty = find_guilty(end);
	for (unsigned int p = 0; p < end->path_count && !end->failed; p++) {
		struct repair_path *path = &end->paths[p];

		if (path->state != PATH_UP || path->asked_ns == 0) {
			continue;
		}
		if (guilty >> p & 1) {
			repair_end_fault(end, p, CAUSE_STALL, end->now_ns);
		} else {
			/* Everything stands still, or stood: no reason to blame it. Ask again. */
			path->asked_ns = 0;
			path->progress_ns = end->now_ns;
		}
	}
}
