/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "include/log.h"
#include "plugin/comm.h"
#include "plugin/events.h"
#include "plugin/runtime.h"
#include "plugin/sibling.h"

#include <stdio.h>

/* What repair/ reports, told to people and programs (P5, P12): once a state change, never a
 * message. */

enum {
	TEXT_MAX = 512
};

static void fill_path(const struct comm *comm, unsigned int p, char remote[RAIL_NAME_MAX + 8],
		      struct event *event)
{
	const struct comm_path *path = &comm->paths[p];

	snprintf(remote, RAIL_NAME_MAX + 8, "%s:%u", path->peer_rail.name, path->peer_rail.port);
	event->path_idx = p;
	event->rail_idx = path->rail->idx;
	event->local = path->rail->label;
	event->remote = remote;
}

static void on_fault(const struct comm *comm, const struct repair_report *report,
		     struct event *event, char action[TEXT_MAX])
{
	(void)comm;
	event->kind = EVENT_PATH_FAULT;
	event->old_state = path_state_name(PATH_UP);
	event->new_state = path_state_name(PATH_FENCING);
	snprintf(action, TEXT_MAX, "fence both ends, then replay; %u paths go on",
		 report->up_count);
}

static void on_down(const struct comm *comm, const struct repair_report *report,
		    struct event *event, char action[TEXT_MAX])
{
	event->kind = EVENT_PATH_DOWN;
	event->old_state = path_state_name(PATH_FENCED);
	event->new_state = path_state_name(PATH_DOWN);
	event->duration_ns = (int64_t)report->took_ns;
	if (comm->role == COMM_SENDER) {
		event->bytes_replayed = (int64_t)report->replay_bytes;
		event->count = report->replay_pieces;
		snprintf(action, TEXT_MAX, "replayed %u pieces over the other %u paths",
			 report->replay_pieces, report->up_count);
	} else {
		event->count = report->again_count;
		snprintf(action, TEXT_MAX, "issued %u clear-to-send entries again, %u paths left",
			 report->again_count, report->up_count);
	}
}

/* P5: the last word lists every path, what became of it and why. */
static void list_paths(const struct comm *comm, char *text, size_t size)
{
	size_t at = 0;

	for (unsigned int p = 0; p < comm->path_count && at < size; p++) {
		const struct repair_path *path = &comm->end.paths[p];
		enum cause cause = path->state == PATH_DOWN ? path->down_cause : path->cause;
		int len = snprintf(text + at, size - at, "%s%s-%s %s%s%s%s", p ? ", " : "",
				   comm->paths[p].rail->label, comm->paths[p].peer_rail.name,
				   path_state_name(path->state), cause ? " (" : "",
				   cause ? cause_name(cause) : "", cause ? ")" : "");

		at += len > 0 ? (size_t)len : size;
	}
}

static void on_failed(const struct comm *comm, const struct repair_report *report,
		      struct event *event, char action[TEXT_MAX])
{
	char paths[TEXT_MAX - 128];

	event->kind = report->cause == CAUSE_PEER_GONE ? EVENT_PEER_GONE : EVENT_COMM_ERROR;
	list_paths(comm, paths, sizeof(paths));
	snprintf(action, TEXT_MAX, "%s%sNCCL is told; paths: %s",
		 report->detail ? report->detail : "", report->detail ? "; " : "", paths);
}

/*
 * This end gives up: the other would wait for it without end. CLOSE says what the book covers, as
 * at an orderly end; what it does not cover is an error there too.
 */
static void tell_peer(struct comm *comm, enum cause cause)
{
	struct frame frame = {.type = FRAME_CLOSE};

	if (cause == CAUSE_PEER_GONE || cause == CAUSE_PEER_CLOSED) {
		return;
	}
	frame.close.next_seq = comm->role == COMM_RECEIVER ? comm->rx.book.next_seq : 0;
	comm_send(comm, &frame);
}

void comm_report(struct comm *comm, const struct repair_report *report)
{
	struct event event = EVENT_INIT(EVENT_PATH_FAULT);
	char remote[RAIL_NAME_MAX + 8], action[TEXT_MAX], cause[96];

	if (report->kind == REPAIR_REPORT_FAILED && report->cause == CAUSE_PEER_CLOSED) {
		LOG_INFO("%s closed the connection with requests outstanding",
			 comm_peer_name(comm));
		return;
	}
	event.comm_id = (int64_t)comm->id;
	event.peer = comm_peer_name(comm);
	event.epoch = report->epoch;
	snprintf(cause, sizeof(cause), "%s%s", cause_name(report->cause),
		 report->cause_is_peer ? " (seen by the peer)" : "");
	event.cause = cause;
	event.action = action;
	if (report->path < comm->path_count) {
		fill_path(comm, report->path, remote, &event);
	}
	switch (report->kind) {
	case REPAIR_REPORT_FAULT:
		on_fault(comm, report, &event, action);
		sibling_tell(comm, report->path, report->cause);
		break;
	case REPAIR_REPORT_DOWN:
		on_down(comm, report, &event, action);
		break;
	case REPAIR_REPORT_BACK:
		event.kind = EVENT_PATH_UP;
		event.old_state = path_state_name(PATH_PROBING);
		event.new_state = path_state_name(PATH_UP);
		event.duration_ns = (int64_t)report->took_ns;
		event.cause = NULL;
		snprintf(action, TEXT_MAX, "carries traffic again, %u paths are up",
			 report->up_count);
		break;
	case REPAIR_REPORT_STILL_DOWN:
		event.kind = EVENT_PATH_PROBING;
		event.old_state = path_state_name(PATH_PROBING);
		event.new_state = path_state_name(PATH_DOWN);
		snprintf(action, TEXT_MAX, "not back yet, tried again later");
		break;
	case REPAIR_REPORT_NO_PATH:
		event.kind = EVENT_COMM_HELD;
		snprintf(action, TEXT_MAX, "held for BRAID_NO_PATH_MS = %d ms",
			 runtime_instance()->cfg.no_path_ms);
		break;
	case REPAIR_REPORT_FAILED:
		on_failed(comm, report, &event, action);
		tell_peer(comm, report->cause);
		break;
	}
	events_emit(&event);
}
