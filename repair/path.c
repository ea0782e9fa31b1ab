/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/path.h"

#include "include/log.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>

/*
 * Invariants, re-checked by path_check():
 *
 * I1  New work is posted in UP only; in PROBING a probe and, at the receiver, receives. (P4)
 * I2  In FENCED and DOWN every send item and every receive posted on the path is back: no WR of
 *     the epoch can read or write memory at this end any more.              (P2, P4)
 * I3  DOWN is entered only when both ends have fenced: replay starts there. (P4) A path that was
 *     never connected has nothing to fence: both ends know from READY's mask.
 * I4  The epoch is raised at DOWN and nowhere else, so a frame of an older epoch is stale.
 *
 * What may be relied on:
 *   PARKED         nothing was ever posted
 *   UP             QPs are in RTS, or failed and not yet noticed
 *   FENCING        no new work; completions still come
 *   FENCING_HEARD  as FENCING; peer_book is the peer's, read out after the peer's fence
 *   FENCED         I2; FENCED was sent; only the peer is missing
 *   DOWN           I2 on both ends; nothing of the old epoch can land anywhere
 *   PROBING        QPs of the new epoch are in RTS here; the peer may be UP already and send
 */
static const struct path_step table[PATH_STATE_COUNT][PATH_EVENT_COUNT] =
	{
		[PATH_PARKED] =
			{
				[PATH_EV_READY] = {true, PATH_UP, PATH_ACT_RESUME},
				/* could not be connected when the comm opened */
				[PATH_EV_FAULT] = {true, PATH_DOWN, PATH_ACT_NONE},
			},
		[PATH_UP] =
			{
				[PATH_EV_FAULT] = {true, PATH_FENCING, PATH_ACT_BEGIN},
				[PATH_EV_PEER_FENCE] = {true, PATH_FENCING, PATH_ACT_BEGIN},
				[PATH_EV_PEER_FENCED] = {true, PATH_FENCING_HEARD,
							 PATH_ACT_BEGIN | PATH_ACT_KEEP},
			},
		[PATH_FENCING] =
			{
				[PATH_EV_FAULT] = {true, PATH_FENCING, PATH_ACT_NONE},
				[PATH_EV_PEER_FENCE] = {true, PATH_FENCING, PATH_ACT_NONE},
				[PATH_EV_SELF_FENCED] = {true, PATH_FENCED, PATH_ACT_ANNOUNCE},
				[PATH_EV_PEER_FENCED] = {true, PATH_FENCING_HEARD, PATH_ACT_KEEP},
			},
		[PATH_FENCING_HEARD] =
			{
				[PATH_EV_FAULT] = {true, PATH_FENCING_HEARD, PATH_ACT_NONE},
				[PATH_EV_PEER_FENCE] = {true, PATH_FENCING_HEARD, PATH_ACT_NONE},
				[PATH_EV_SELF_FENCED] = {true, PATH_DOWN,
							 PATH_ACT_ANNOUNCE | PATH_ACT_RECONCILE},
				[PATH_EV_PEER_FENCED] = {true, PATH_FENCING_HEARD, PATH_ACT_NONE},
			},
		[PATH_FENCED] =
			{
				[PATH_EV_FAULT] = {true, PATH_FENCED, PATH_ACT_NONE},
				[PATH_EV_PEER_FENCE] = {true, PATH_FENCED, PATH_ACT_NONE},
				[PATH_EV_PEER_FENCED] = {true, PATH_DOWN,
							 PATH_ACT_KEEP | PATH_ACT_RECONCILE},
			},
		[PATH_DOWN] =
			{
				[PATH_EV_FAULT] = {true, PATH_DOWN, PATH_ACT_NONE},
				/* the peer probed and failed before this end had joined */
				[PATH_EV_PEER_FENCE] = {true, PATH_FENCED, PATH_ACT_ANNOUNCE},
				[PATH_EV_PEER_FENCED] = {true, PATH_DOWN,
							 PATH_ACT_ANNOUNCE | PATH_ACT_KEEP |
								 PATH_ACT_RECONCILE},
				[PATH_EV_JOINED] = {true, PATH_PROBING, PATH_ACT_PROBE},
			},
		[PATH_PROBING] =
			{
				[PATH_EV_READY] = {true, PATH_UP, PATH_ACT_RESUME},
				[PATH_EV_FAULT] = {true, PATH_FENCING, PATH_ACT_BEGIN},
				[PATH_EV_PEER_FENCE] = {true, PATH_FENCING, PATH_ACT_BEGIN},
				[PATH_EV_PEER_FENCED] = {true, PATH_FENCING_HEARD,
							 PATH_ACT_BEGIN | PATH_ACT_KEEP},
			},
};

static const char *const state_names[] = {
#define NAME(name) #name,
	PATH_STATE_LIST(NAME)};

static const char *const event_names[] = {PATH_EVENT_LIST(NAME)
#undef NAME
};

static_assert(sizeof(state_names) / sizeof(state_names[0]) == PATH_STATE_COUNT, "a name per state");
static_assert(sizeof(event_names) / sizeof(event_names[0]) == PATH_EVENT_COUNT, "a name per event");

const char *path_state_name(enum path_state state)
{
	return (size_t)state < PATH_STATE_COUNT ? state_names[state] : "?";
}

const char *path_event_name(enum path_event event)
{
	return (size_t)event < PATH_EVENT_COUNT ? event_names[event] : "?";
}

struct path_step path_step(enum path_state state, enum path_event event)
{
	ASSERT((size_t)state < PATH_STATE_COUNT);
	ASSERT((size_t)event < PATH_EVENT_COUNT);
	return table[state][event];
}

int path_apply(struct repair_path *path, enum path_event event)
{
	struct path_step step = path_step(path->state, event);

	if (!step.legal) {
		LOG_WARN("repair: event %s is not possible in state %s (epoch %u)",
			 path_event_name(event), path_state_name(path->state), path->epoch);
		return -EPROTO;
	}
	path->state = step.next;
	return (int)step.actions;
}

void path_check(const struct repair_path *path)
{
	ASSERT((size_t)path->state < PATH_STATE_COUNT);
	ASSERT(path->epoch > 0 || path->state == PATH_PARKED);
	if (path->state == PATH_FENCED || path->state == PATH_DOWN) {
		ASSERT(wrq_out(&path->sq) == 0);
		ASSERT(path->recvs_out == 0);
		ASSERT(path->inflight_bytes == 0);
	}
	if (path->state == PATH_PARKED) {
		ASSERT(wrq_out(&path->sq) == 0);
	}
	(void)path;
}
