/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/reopen.h"

#include "ib/reopen.h"
#include "include/clock.h"
#include "include/log.h"
#include "plugin/comm.h"
#include "plugin/rejoin_ops.h"
#include "plugin/runtime.h"

#include <errno.h>
#include <stdlib.h>

/* The device that is left, and how many paths on it are not at rest. */
struct leaving {
	const struct ib_device *device;
	enum cause cause;
	unsigned int busy_count;
};

/* Nothing is posted on it any more, and what was is back or can't move. */
static bool is_at_rest(enum path_state state)
{
	return state == PATH_PARKED || state == PATH_FENCED || state == PATH_DOWN;
}

static void leave_paths(struct comm *comm, void *arg)
{
	struct leaving *leaving = arg;
	uint64_t now_ns;

	lock_take(&comm->lock);
	now_ns = clock_mono_ns();
	for (unsigned int p = 0; comm->state == COMM_READY && p < comm->path_count; p++) {
		const struct repair_path *path = &comm->end.paths[p];

		if (comm->end.failed || comm->is_quiet ||
		    comm->paths[p].qp.device != leaving->device || is_at_rest(path->state)) {
			continue;
		}
		repair_end_fault(&comm->end, p, leaving->cause, now_ns);
		leaving->busy_count += !is_at_rest(path->state);
	}
	comm_unlock(comm);
}

static bool is_on_card(const struct comm_path *path, const void *arg)
{
	const struct ib_rail *rail = arg;

	return path->rail->first == rail->first;
}

/* What was watched may be the last that holds the old device: closing it is not for the loop. */
struct unwatched {
	struct worker_job job;
	struct ib_device *device;
};

static void put_job(void *arg)
{
	struct unwatched *old = arg;

	ib_device_put(old->device);
	free(old);
}

/* Loop thread. */
static void watch_anew(void *arg)
{
	struct device_watch *watch = arg;
	struct runtime *rt = runtime_instance();
	struct unwatched *old = calloc(1, sizeof(*old));

	if (old && watch->device) {
		old->device = ib_device_hold(watch->device);
		old->job = (struct worker_job){.fn = put_job, .arg = old};
		worker_post(rt->setup, &old->job);
	} else {
		free(old);
	}
	runtime_unwatch(rt, watch);
	runtime_watch(rt, watch->rail->first);
}

static int reopen(struct ib_rail *rail)
{
	struct runtime *rt = runtime_instance();
	struct ib_reopen again;
	struct leaving leaving;
	int rc = ib_reopen_begin(rail, &again);

	if (rc) {
		return rc;
	}
	leaving = (struct leaving){.device = again.before,
				   .cause = ib_rail_is_fatal(rail) ? CAUSE_DEVICE_FATAL
								   : CAUSE_PORT_DOWN};
	comm_for_each(leave_paths, &leaving);
	if (leaving.busy_count) {
		LOG_WARN_LIMITED("rail %s: its device is there again, but %u paths on the old one "
				 "are not fenced yet",
				 rail->label, leaving.busy_count);
		ib_reopen_cancel(&again);
		return -EBUSY;
	}
	rc = ib_reopen_finish(&again, &rt->cfg, rt->mrs);
	if (rc) {
		return rc;
	}
	if (oob_loop_post(rt->loop, watch_anew, &rt->watches[rail->first])) {
		LOG_WARN("%s: out of memory, its events are not watched any more", rail->label);
	}
	rejoin_hint_all(is_on_card, rail);
	return 0;
}

int reopen_refresh(struct ib_rail *rail)
{
	const struct braid_config *cfg = &runtime_instance()->cfg;
	bool moved;
	int rc = ib_rail_refresh(rail, cfg, &moved);

	return rc && reopen(rail) == 0 ? ib_rail_refresh(rail, cfg, &moved) : rc;
}
