/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/stall.h"

#include "include/clock.h"
#include "include/log.h"

enum {
	SLOWEST_BYTES_PER_MS = 10000 /* 10 MB/s: slower than this counts as not moving */
};

void stall_note_post(struct repair_path *path, bool signalled, uint64_t now_ns)
{
	path->posted_ns = now_ns;
	if (signalled && path->sq.signalled_out == 0) {
		stall_note_progress(path, now_ns);
	}
}

void stall_note_progress(struct repair_path *path, uint64_t now_ns)
{
	path->progress_ns = now_ns;
	path->asked_ns = 0;
	path->stalled_ns = 0;
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

void stall_tick(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];

	if (end->limits.stall_ms == 0 || path->state != PATH_UP) {
		return;
	}
	if (path->sq.signalled_out == 0) {
		if ((wrq_out(&path->sq) > 0 || end->role->waits(end)) &&
		    end->now_ns - last_sign_ns(path) >= end->limits.stall_ms * NS_PER_MS) {
			end->role->probe(end, p);
		}
		return;
	}
	if (path->asked_ns == 0 && end->now_ns - path->progress_ns >= bound_ns(end, path)) {
		path->asked_ns = end->now_ns;
		path->stalled_ns = path->stalled_ns ? path->stalled_ns : end->now_ns;
		end->ops->ask(end->ctx);
	}
}

/* Nothing else is left to wait for: the peer is alive and the comm has stood still that long. */
static bool is_hopeless(const struct repair_end *end, const struct repair_path *path)
{
	return end->now_ns - path->stalled_ns >= end->limits.no_path_ms * NS_PER_MS;
}

static bool another_moves(const struct repair_end *end, unsigned int p)
{
	for (unsigned int i = 0; i < end->path_count; i++) {
		if (i != p && end->paths[i].state == PATH_UP && end->paths[i].asked_ns == 0) {
			return true;
		}
	}
	return false;
}

void repair_end_answered(struct repair_end *end, uint64_t now_ns)
{
	end->now_ns = now_ns;
	for (unsigned int p = 0; p < end->path_count && !end->failed; p++) {
		struct repair_path *path = &end->paths[p];

		if (path->state != PATH_UP || path->asked_ns == 0) {
			continue;
		}
		if (another_moves(end, p) || is_hopeless(end, path)) {
			repair_end_fault(end, p, CAUSE_STALL, now_ns);
		} else {
			/* Everything stands still: no reason to blame this path. Ask again. */
			path->asked_ns = 0;
			path->progress_ns = now_ns;
		}
	}
}
