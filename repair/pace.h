/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_PACE_H
#define BRAID_REPAIR_PACE_H

#include "include/limits.h"
#include "repair/path.h"

#include <stdbool.h>
#include <stdint.h>

struct repair_end;

/**
 * How fast the paths of a sender are beside each other. What is outstanding tells that only while
 * much is: when all are idle as a message begins, a rail at a tenth of its rate gets its full part,
 * and the message waits for it. So messages of several pieces are timed.
 *
 *  - A path's rate is what its rail had to move before and with the message's pieces, all comms
 *    together, by the time it took. All rates are of the same moment and the same pieces, so
 *    latency, a late poll and a busy machine, which slow all of them, cancel.
 *  - A path's rating is a slow mean of that, as a part of the fastest path's: over more messages
 *    than are under way together, which one delay holds up. A path is slow that stays below a half,
 *    and sound again from three quarters on; in between nothing changes, and the ratings of sound
 *    paths change nothing at all: they share as their weights say.
 *  - A slow path counts as so much slower (plan_pick()), and may then get nothing for long. So a
 *    message now and then begins there all the same: one in RETRY_MS for each rail, of all comms
 *    together; and when that was quick, the next ones at once.
 *
 * Slowness is no fault: no state of the path, no stall clock and no fence depends on it.
 *
 * The same times say how long pieces may be (repair_end.piece_bytes). Each costs two work requests,
 * a completion at both ends and a record, so on fast rails they grow to what takes 100 us, and at
 * most to PACE_GROWTH times the smallest or a quarter of the window; on slow ones small ones share
 * better.
 */
enum {
	PACE_FULL = 64,      /* speed of a path that is not slow */
	PACE_UNIT = 1 << 16, /* rating of the fastest */
	PACE_GROWTH = 4,     /* longest pieces / smallest */
};

/** What one path has of a message that is timed. Small: there is one for each message and path. */
struct pace_part {
	uint32_t ns; /* when it began, since the message did; once it is back: how long it took */
	uint32_t lines; /* load of its rail, it and what was there before, in PIECE_ALIGN_BYTES */
};

struct pace {
	uint64_t begun_ns;
	uint32_t mask; /* paths that have a part of it */
	bool is_timed;
	uint8_t out_count[PATHS_MAX]; /* pieces that are not back */
	struct pace_part parts[PATHS_MAX];
};

/** Time a message that is about to be posted. The end's time is exact. */
void pace_begin(struct repair_end *end, struct pace *pace);

/** Before its first piece: the slow path that is to be tried anew with it, or -1. */
int pace_retry(const struct repair_end *end, const struct pace *pace, uint32_t key_mask);

/** A piece of it was posted on path p, whose load was load_bytes before. */
void pace_post(struct repair_end *end, struct pace *pace, unsigned int p, uint64_t load_bytes,
	       uint32_t len_bytes);

/** A piece of it is back from path p, the last one of the message or not. */
void pace_retire(struct repair_end *end, struct pace *pace, unsigned int p, bool is_last);

/** It is no measure any more: a path failed, or it is posted again. */
void pace_drop(struct repair_end *end, struct pace *pace);

/** Nothing is known of the path: it was down, or will never be used again. */
void pace_forget(struct repair_path *path);

#endif
