/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "include/log.h"
#include "plugin/ack_list.h"
#include "plugin/comm.h"
#include "plugin/connect.h"
#include "plugin/listen.h"
#include "plugin/rejoin_ops.h"
#include "plugin/runtime.h"
#include "plugin/setup.h"
#include "repair/rejoin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Everything that reaches comms from outside: frames, links, device events, time. Loop thread. */

enum {
	EARLY_MAX = 4 * PATHS_MAX /* a path has not more to say before this end answers */
};

void comm_take_frame(struct comm *comm, const struct frame *frame, uint64_t now_ns)
{
	switch ((int)frame->type) {
	case FRAME_FENCE:
		repair_end_on_fence(&comm->end, &frame->fence, now_ns);
		break;
	case FRAME_FENCED:
		repair_end_on_fenced(&comm->end, &frame->fenced, now_ns);
		break;
	case FRAME_PONG:
		comm_progress(comm, now_ns); /* first what came meanwhile */
		repair_end_answered(&comm->end, now_ns);
		break;
	case FRAME_CLOSE:
		if (comm->role == COMM_SENDER) {
			repair_tx_on_close(&comm->tx, frame->close.next_seq, now_ns);
		} else {
			comm->end.peer_closed = true;
		}
		break;
	default: /* is_end_frame() let nothing else in */
		repair_rejoin_on_frame(&comm->end, frame, now_ns);
		break;
	}
}

/*
 * The acceptor is READY first, and what it has to say may be here before the job that makes this
 * end READY has run. It must not be lost: it is taken then. Lock held.
 */
static void keep_early(struct comm *comm, const struct frame *frame)
{
	struct early_frame **at, *early;

	if (comm->role != COMM_SENDER || frame->type == FRAME_CLOSE) {
		return;
	}
	early = comm->early_count < EARLY_MAX ? malloc(sizeof(*early)) : NULL;
	if (!early) {
		comm_fail_setup(comm, -ENOMEM, "too many frames before READY");
		return;
	}
	*early = (struct early_frame){.frame = *frame};
	for (at = &comm->early; *at; at = &(*at)->next) {
	}
	*at = early;
	comm->early_count++;
}

static void on_end_frame(struct comm *comm, const struct frame *frame)
{
	uint64_t now_ns;

	lock_take(&comm->lock);
	now_ns = clock_mono_ns();
	if (comm->state == COMM_READY) {
		comm_take_frame(comm, frame, now_ns);
		comm_progress(comm, now_ns);
	} else if (comm->state == COMM_OPENING) {
		keep_early(comm, frame);
	}
	comm_unlock(comm);
}

static bool is_end_frame(enum frame_type type)
{
	static const bool is_one[FRAME_TYPE_COUNT] = {
		[FRAME_FENCE] = true,  [FRAME_FENCED] = true,      [FRAME_CLOSE] = true,
		[FRAME_PONG] = true,   [FRAME_REJOIN] = true,      [FRAME_REJOINED] = true,
		[FRAME_PROBED] = true, [FRAME_REJOIN_HINT] = true,
	};

	return is_one[type];
}

/* The connector did not wait: the acceptor must not either. */
static void say_gone(struct oob_link *link, uint64_t peer_comm)
{
	struct frame frame = {.type = FRAME_CLOSE, .dst_comm = peer_comm};

	(void)oob_link_send(link, &frame);
}

static void on_frame(void *arg, struct oob_link *link, const struct frame *frame)
{
	struct comm *comm;

	(void)arg;
	if (frame->type == FRAME_OPEN) {
		listener_on_open(link, frame);
		return;
	}
	comm = comm_find(frame->type == FRAME_PONG ? frame->ping.cookie : frame->dst_comm);
	if (!comm) {
		/* closed here while the frame was under way */
		if (frame->type == FRAME_OPENED) {
			say_gone(link, frame->opened.src_comm);
		}
		return;
	}
	if (comm->link != link) {
		LOG_WARN_LIMITED("%s named a connection of another peer", oob_link_name(link));
	} else if (is_end_frame(frame->type)) {
		if (frame->type == FRAME_CLOSE) {
			setup_on_frame(comm, frame); /* if it is not READY yet */
		}
		on_end_frame(comm, frame);
	} else {
		setup_on_frame(comm, frame);
	}
	comm_put(comm);
}

static void on_link_up(void *arg, struct oob_link *link)
{
	(void)arg;
	(void)link;
}

static void on_link_lost(void *arg, struct oob_link *link, int err)
{
	(void)arg;
	LOG_WARN("link to %s lost: %s; traffic goes on, repairs wait until it is back",
		 oob_link_name(link), strerror(-err));
}

struct gone {
	struct oob_link *link;
	int err;
	const char *why;
};

static void fail_of_peer(struct comm *comm, void *arg)
{
	const struct gone *gone = arg;

	if (comm->link != gone->link) {
		return;
	}
	setup_give_up(comm, gone->err ? gone->err : -ECONNRESET, gone->why);
	lock_take(&comm->lock);
	if (comm->state == COMM_READY) {
		if (gone->err == -ESHUTDOWN) {
			comm->end.peer_closed = true;
		} else {
			repair_end_fail(&comm->end, CAUSE_PEER_GONE, PATHS_MAX, gone->why);
		}
	}
	comm_unlock(comm);
}

static void on_peer_gone(void *arg, struct oob_link *link, int err, const char *why)
{
	struct gone gone = {.link = link, .err = err, .why = why};

	(void)arg;
	comm_for_each(fail_of_peer, &gone);
}

const struct oob_handlers watch_link_handlers = {
	.frame = on_frame,
	.link_up = on_link_up,
	.link_lost = on_link_lost,
	.peer_gone = on_peer_gone,
};

struct rail_fault {
	const struct ib_device *device; /* that reported it */
	struct ib_event event;
};

static bool concerns(const struct rail_fault *fault, const struct comm_path *path)
{
	if (!path->qp.qp || path->qp.device != fault->device) {
		return false;
	}
	switch (fault->event.kind) {
	case IB_EVENT_PORT_DOWN:
		return path->rail->port == fault->event.port;
	case IB_EVENT_DEVICE_FATAL:
		return true;
	case IB_EVENT_QP_FATAL:
		return path->qp.qpn == fault->event.qpn;
	case IB_EVENT_PORT_UP:
	case IB_EVENT_GID_CHANGE:
	case IB_EVENT_OTHER:
		break;
	}
	return false;
}

/* The port is back, or its address. */
static bool is_back(const struct comm_path *path, const void *arg)
{
	const struct rail_fault *back = arg;

	return path->rail->port == back->event.port && ib_rail_device_is(path->rail, back->device);
}

static void fault_paths(struct comm *comm, void *arg)
{
	const struct rail_fault *fault = arg;
	uint64_t now_ns;

	lock_take(&comm->lock);
	now_ns = clock_mono_ns();
	for (unsigned int p = 0; comm->state == COMM_READY && p < comm->path_count; p++) {
		if (concerns(fault, &comm->paths[p])) {
			repair_end_fault(&comm->end, p, fault->event.cause, now_ns);
		}
	}
	comm_unlock(comm);
}

void watch_device_event(void *arg)
{
	struct device_watch *watch = arg;
	const struct ib_rail *rail = watch->rail;
	struct rail_fault fault = {.device = watch->device};
	struct runtime *rt = runtime_instance();
	int rc;

	while ((rc = ib_rail_event_next(rt->rails, watch->device, &fault.event)) == 1) {
		LOG_INFO("%s: device event: %s (port %u)", rail->label, fault.event.text,
			 fault.event.port);
		if (fault.event.kind == IB_EVENT_PORT_UP ||
		    fault.event.kind == IB_EVENT_GID_CHANGE) {
			rejoin_hint_all(is_back, &fault);
			runtime_repair_begins();
		} else if (fault.event.cause != CAUSE_NONE) {
			comm_for_each(fault_paths, &fault);
		}
	}
	if (rc < 0) {
		LOG_WARN("%s: no more device events: %s", rail->label, strerror(-rc));
		runtime_unwatch(rt, watch);
	}
}

struct tick {
	uint32_t step_ms;
	bool repairing; /* some comm */
};

/* The connector gives up by itself; an acceptor whose connector fell silent does so here. */
static void tick_opening(struct comm *comm, uint64_t now_ns)
{
	uint64_t bound_ns = (uint32_t)runtime_instance()->cfg.connect_timeout_ms * NS_PER_MS;

	if (comm->role == COMM_RECEIVER && now_ns - comm->opened_ns > bound_ns) {
		setup_give_up(comm, -ETIMEDOUT, "no answer in BRAID_CONNECT_TIMEOUT_MS");
	}
}

static void tick_comm(struct comm *comm, void *arg)
{
	struct tick *tick = arg;
	uint64_t now_ns;
	bool opening;

	lock_take(&comm->lock);
	now_ns = clock_mono_ns();
	opening = comm->state == COMM_OPENING;
	if (comm->state == COMM_READY) {
		comm_progress(comm, now_ns);
		repair_end_tick(&comm->end, now_ns);
		tick->repairing = tick->repairing || (repair_end_is_repairing(&comm->end) &&
						      !comm->end.failed && !comm->end.peer_closed);
	}
	comm_unlock(comm);
	if (opening) {
		tick_opening(comm, now_ns);
	}
	connect_tick(comm, tick->step_ms);
}

/*
 * Slow: what found no path or no room, and acknowledgements that wait, leave also when NCCL does
 * not call. Fast while a path is being fenced: completions have to be reaped, whoever is awake.
 */
void watch_tick(void *arg)
{
	struct runtime *rt = arg;
	struct tick tick = {.step_ms = rt->tick_ms};

	comm_for_each(tick_comm, &tick);
	ack_list_flush();
	rt->tick_ms = tick.repairing ? TICK_FAST_MS : TICK_SLOW_MS;
	oob_timer_set(rt->loop, &rt->tick, rt->tick_ms);
}
