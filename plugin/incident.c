/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "include/log.h"
#include "plugin/comm.h"
#include "plugin/events.h"
#include "plugin/path_list.h"
#include "plugin/runtime.h"
#include "plugin/sibling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What repair/ reports, told to people and programs (P5, P12): once a state change, never a
 * message. It is put down under the comm's lock and written once that is free. */

enum {
	PATHS_TEXT_MAX = 512,
	TEXT_MAX = PATHS_TEXT_MAX + 128
};

struct incident {
	struct incident *next;
	struct event event; /* its texts are static, or those below */
	char local[RAIL_NAME_MAX + 8], remote[RAIL_NAME_MAX + 8], peer[192];
	char cause[96], action[TEXT_MAX];
};

/* Of all comms, oldest first, so that lines come in the order of what they tell. */
static struct {
	pthread_mutex_t
		lock; /* guards the list, not the writing; no other lock is taken under it */
	struct incident *head, **tail;
	bool is_told; /* some thread writes, and goes on until none is left */
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .tail = &queue.head};

_Atomic bool incidents_wait;

static void queue_put(struct incident *incident)
{
	pthread_mutex_lock(&queue.lock);
	*queue.tail = incident;
	queue.tail = &incident->next;
	atomic_store_explicit(&incidents_wait, true, memory_order_relaxed);
	pthread_mutex_unlock(&queue.lock);
}

/* Lock of the queue held. NULL when there is none left. */
static struct incident *queue_take(void)
{
	struct incident *incident = queue.head;

	if (incident) {
		queue.head = incident->next;
	}
	if (!queue.head) {
		queue.tail = &queue.head;
		atomic_store_explicit(&incidents_wait, false, memory_order_relaxed);
	}
	return incident;
}

void incidents_tell(void)
{
	struct incident *incident;

	pthread_mutex_lock(&queue.lock);
	if (queue.is_told) {
		pthread_mutex_unlock(&queue.lock);
		return;
	}
	queue.is_told = true;
	while ((incident = queue_take())) {
		pthread_mutex_unlock(&queue.lock);
		events_emit(&incident->event);
		free(incident);
		pthread_mutex_lock(&queue.lock);
	}
	queue.is_told = false;
	pthread_mutex_unlock(&queue.lock);
}

static void fill_path(const struct comm *comm, unsigned int p, struct incident *incident)
{
	const struct comm_path *path = &comm->paths[p];

	snprintf(incident->local, sizeof(incident->local), "%s", path->rail->label);
	snprintf(incident->remote, sizeof(incident->remote), "%s:%u", path->peer_rail.name,
		 path->peer_rail.port);
	incident->event.path_idx = p;
	incident->event.rail_idx = path->rail->idx;
	incident->event.local = incident->local;
	incident->event.remote = incident->remote;
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

static void on_failed(const struct comm *comm, const struct repair_report *report,
		      struct event *event, char action[TEXT_MAX])
{
	char paths[PATHS_TEXT_MAX];

	event->kind = report->cause == CAUSE_PEER_GONE ? EVENT_PEER_GONE : EVENT_COMM_ERROR;
	path_list_write(comm, paths, sizeof(paths)); /* P5: the last word names them all */
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

/* What is the same in all of them. */
static void fill(const struct comm *comm, const struct repair_report *report,
		 struct incident *incident)
{
	struct event *event = &incident->event;

	*event = (struct event)EVENT_INIT(EVENT_PATH_FAULT);
	event->mono_ns = (int64_t)clock_mono_ns();
	event->comm_id = (int64_t)comm->id;
	event->epoch = report->epoch ? (int64_t)report->epoch : -1; /* of a path, from 1 */
	snprintf(incident->peer, sizeof(incident->peer), "%s", comm_peer_name(comm));
	snprintf(incident->cause, sizeof(incident->cause), "%s%s", cause_name(report->cause),
		 report->cause_is_peer ? " (seen by the peer)" : "");
	event->peer = incident->peer;
	event->cause = incident->cause;
	event->action = incident->action;
	if (report->path < comm->path_count) {
		fill_path(comm, report->path, incident);
	}
}

static void describe(const struct comm *comm, const struct repair_report *report,
		     struct event *event, char action[TEXT_MAX])
{
	switch (report->kind) {
	case REPAIR_REPORT_FAULT:
		on_fault(comm, report, event, action);
		break;
	case REPAIR_REPORT_DOWN:
		on_down(comm, report, event, action);
		break;
	case REPAIR_REPORT_BACK:
		event->kind = EVENT_PATH_UP;
		event->old_state = path_state_name(PATH_PROBING);
		event->new_state = path_state_name(PATH_UP);
		event->duration_ns = (int64_t)report->took_ns;
		event->cause = NULL;
		snprintf(action, TEXT_MAX, "carries traffic again, %u paths are up",
			 report->up_count);
		break;
	case REPAIR_REPORT_STILL_DOWN:
		event->kind = EVENT_PATH_PROBING;
		event->old_state = path_state_name(PATH_PROBING);
		event->new_state = path_state_name(PATH_DOWN);
		snprintf(action, TEXT_MAX, "not back yet, tried again later");
		break;
	case REPAIR_REPORT_SLOW:
		event->kind = EVENT_PATH_SLOW;
		event->cause = NULL;
		snprintf(action, TEXT_MAX, "gets less: it moves about %u %% of what it should",
			 report->percent);
		break;
	case REPAIR_REPORT_SOUND:
		event->kind = EVENT_PATH_SOUND;
		event->cause = NULL;
		snprintf(action, TEXT_MAX, "is as fast as the others, gets its share again");
		break;
	case REPAIR_REPORT_NO_PATH:
		event->kind = EVENT_COMM_HELD;
		snprintf(action, TEXT_MAX, "held for BRAID_NO_PATH_MS = %d ms",
			 runtime_instance()->cfg.no_path_ms);
		break;
	case REPAIR_REPORT_FAILED:
		on_failed(comm, report, event, action);
		break;
	}
}

static void tell(const struct comm *comm, const struct repair_report *report)
{
	struct incident *incident = calloc(1, sizeof(*incident));

	if (!incident) {
		LOG_WARN("out of memory for an incident of the connection to %s: %s",
			 comm_peer_name(comm), cause_name(report->cause));
		return;
	}
	fill(comm, report, incident);
	describe(comm, report, &incident->event, incident->action);
	queue_put(incident);
}

void comm_report(struct comm *comm, const struct repair_report *report)
{
	if (report->kind == REPAIR_REPORT_FAILED && report->cause == CAUSE_PEER_CLOSED) {
		LOG_INFO("%s closed the connection with requests outstanding",
			 comm_peer_name(comm));
		return;
	}
	tell(comm, report);
	if (report->kind == REPAIR_REPORT_FAULT) {
		sibling_tell(comm, report->path, report->cause);
	} else if (report->kind == REPAIR_REPORT_FAILED) {
		tell_peer(comm, report->cause);
	}
}
