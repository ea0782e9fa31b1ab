/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/wake.h"

#include "include/clock.h"

enum {
	SLEPT_MS = 1000 /* four slow ticks */
};

static void wake_path(struct repair_path *path, uint64_t now_ns, uint64_t slept_ns)
{
	path->posted_ns = now_ns;
	path->progress_ns = now_ns;
	path->asked_ns = 0;
	path->stalled_ns = 0;
	path->fence_ns += slept_ns;
	path->errored_ns += slept_ns;
	path->rejoin.probing_ns += slept_ns;
}

void wake_check(struct repair_end *end)
{
	uint64_t slept_ns = end->now_ns - end->tick_ns;

	if (end->tick_ns == 0 || slept_ns < SLEPT_MS * NS_PER_MS) {
		return;
	}
	for (unsigned int p = 0; p < end->path_count; p++) {
		wake_path(&end->paths[p], end->now_ns, slept_ns);
	}
	if (end->hold.since_ns) {
		end->hold.since_ns += slept_ns;
		end->hold.asked_ns = 0; /* whatever is answered now, is not about the time since */
	}
	end->tick_ns = end->now_ns;
}

void wake_note_tick(struct repair_end *end)
{
	end->tick_ns = end->now_ns;
}
