/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_EVENTS_H
#define BRAID_PLUGIN_EVENTS_H

/*
 * What happened, for people and for programs: each event is one log line and, when BRAID_EVENT_FILE
 * is set, one line of JSON in that file. A line of the file looks like this (in one line; fields
 * that are not known are left out):
 *
 *   {"time":"2025-01-31T12:34:56.789012Z","mono_ns":81234567890,"host":"node7","pid":4242,
 *    "event":"path_fault","comm":3,"path":1,"rail":1,"local":"mlx5_1:1","remote":"mlx5_3:1",
 *    "peer":"node9/4711","epoch":4,"old_state":"UP","new_state":"FENCING","cause":"port down",
 *    "action":"fence, then replay","seq":17,"bytes_replayed":65536,"duration_ns":1200000,
 *    "count":2}
 */

#include <stdint.h>

/* X(NAME, "name in file and log", log level): a WARN is for what an operator may have to mend. */
#define EVENT_LIST(X)                                                                              \
	X(RAIL_TABLE, "rail_table", INFO)     /* one per rail at init, and per path at connect */  \
	X(RAIL_DOWN, "rail_down", WARN)       /* port or device gone */                            \
	X(RAIL_UP, "rail_up", INFO)           /* port back */                                      \
	X(COMM_UP, "comm_up", INFO)           /* connection made */                                \
	X(COMM_ERROR, "comm_error", WARN)     /* sticky: NCCL is told */                           \
	X(COMM_HELD, "comm_held", WARN)       /* no path left, waiting for one */                  \
	X(COMM_RESUMED, "comm_resumed", INFO) /* a path is back after that */                      \
	X(PATH_FAULT, "path_fault", WARN)     /* a fence begins */                                 \
	X(PATH_FENCED, "path_fenced", INFO)   /* both ends fenced */                               \
	X(REPLAY, "replay", INFO)             /* what the book did not cover was sent again */     \
	X(PATH_DOWN, "path_down", WARN)       /* fenced and out of use */                          \
	X(PATH_SUSPECT, "path_suspect", WARN) /* stalled; the peer is asked */                     \
	X(PATH_PARKED, "path_parked", WARN)   /* rail without a partner */                         \
	X(PATH_PROBING, "path_probing", INFO)                                                      \
	X(PATH_UP, "path_up", INFO)       /* rejoined */                                           \
	X(PATH_SLOW, "path_slow", INFO)   /* gets less; one for a rail, not for each comm */       \
	X(PATH_SOUND, "path_sound", INFO) /* and its share again */                                \
	X(PATH_DRAINED, "path_drained", INFO)                                                      \
	X(LINK_UP, "link_up", INFO)                                                                \
	X(LINK_LOST, "link_lost", WARN)                                                            \
	X(PEER_SILENT, "peer_silent", WARN) /* paused or cut off: waited for */                    \
	X(PEER_BACK, "peer_back", INFO)                                                            \
	X(PEER_GONE, "peer_gone", WARN) /* its process is dead */

enum event_kind {
#define EVENT_ENUM(name, text, level) EVENT_##name,
	EVENT_LIST(EVENT_ENUM)
#undef EVENT_ENUM
	EVENT_COUNT
};

/**
 * One event. Start with EVENT_INIT and fill in what is known: a text that is NULL and a number that
 * is below 0 is left out everywhere. Texts are read during the call only.
 */
struct event {
	enum event_kind kind;
	const char *local;  /* local rail, "mlx5_1:1" */
	const char *remote; /* the peer's rail */
	const char *peer;   /* the peer's host and process, "node9/4711" */
	const char *old_state;
	const char *new_state;
	const char *cause;  /* as seen, not as supposed */
	const char *action; /* what Braid does about it */
	int64_t comm_id;
	int64_t path_idx;
	int64_t rail_idx;
	int64_t epoch;
	int64_t seq;
	int64_t bytes_replayed;
	int64_t duration_ns;
	int64_t count;   /* of whatever `action` speaks of: messages, pieces, attempts */
	int64_t mono_ns; /* when it happened, CLOCK_MONOTONIC; left out: now */
};

#define EVENT_INIT(event_kind)                                                                     \
	{                                                                                          \
		.kind = (event_kind), .comm_id = -1, .path_idx = -1, .rail_idx = -1, .epoch = -1,  \
		.seq = -1, .bytes_replayed = -1, .duration_ns = -1, .count = -1, .mono_ns = -1     \
	}

/** Name as in the file; "unknown" when out of range. */
const char *event_name(enum event_kind kind);

/**
 * Open the event file. `pattern` may hold %h (host name), %p (process id) and %%; "" or NULL means
 * no file, and events go to the log alone. Only regular files and character devices are taken: a
 * pipe without a reader would end the process. Opening again replaces the file.
 * @return 0, or -errno after a WARN line (the caller goes on without a file).
 * Thread: init, no other events call running.
 */
int events_open(const char *pattern);

/** Close the file; events then go to the log alone. Harmless without one. Thread: as events_open.
 */
void events_close(void);

/**
 * Tell an event. Any thread. One write(2) to the file, whose failure is logged and never reaches
 * the caller; may block for as long as a write to that file does, so not on the data path.
 */
void events_emit(const struct event *event);

#endif
