/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/wake.h"

#include "include/clock.h"

enum {
	SLEPT_MIN_MS = 500 /* two slow ticks */
};

/* Never beyond now: what began after waking has not slept. */
static uint64_t move_on(uint64_t at_ns, uint64_t slept_ns, uint64_t now_ns)
{
	return now_ns - at_ns < slept_ns ? now_ns : at_ns + slept_ns;
}

static void wake_path(struct repair_path *path, uint64_t now_ns, uint64_t slept_ns)
{
	path->posted_ns = now_ns;
	path->progress_ns = now_ns;
	path->asked_ns = 0;
	path->stalled_ns = 0;
	path->fence_ns = move_on(path->fence_ns, slept_ns, now_ns);
	path->errored_ns = move_on(path->errored_ns, slept_ns, now_ns);
	path->rejoin.probing_ns = move_on(path->rejoin.probing_ns, slept_ns, now_ns);
}

uint64_t wake_bound_ns(const struct repair_end *end)
{
	uint64_t half_ms = end->limits.stall_ms / 2;

	return (half_ms > SLEPT_MIN_MS ? half_ms : SLEPT_MIN_MS) * NS_PER_MS;
}

void wake_check(struct repair_end *end)
{
	uint64_t slept_ns = end->now_ns - end->tick_ns;

	if (end->tick_ns == 0 || slept_ns < wake_bound_ns(end)) {
		return;
	}
	for (unsigned int p = 0; p < end->path_count; p++) {
		wake_path(&end->paths[p], end->now_ns, slept_ns);
	}
	if (end->hold.since_ns) {
		end->hold.since_ns = move_on(end->hold.since_ns, slept_ns, end->now_ns);
		end->hold.asked_ns = 0; /* whatever is answered now, is not about the time since */
	}
	end->tick_ns = end->now_ns;
}

void wake_note_tick(struct repair_end *end)
{
	end->tick_ns = end->now_ns;
}
