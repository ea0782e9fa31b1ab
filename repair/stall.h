/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_STALL_H
#define BRAID_REPAIR_STALL_H

#include "repair/path.h"

struct repair_end;

/**
 * The stall clock: finds paths whose HCA never reports an error (endless retries, a dead HCA). It
 * asks before it kills. A path is given up only when
 *
 *   1. something signalled is out and no completion came, of a receive neither, for stall_ms, plus
 * the time the oldest item would need at 10 MB/s,
 *   2. then the peer's process answered over the link at once, so it is and was neither paused nor
 * cut off, and still nothing came back,
 *   3. another path is UP and not under the same suspicion, or has moved since this one came under
 * it, or this has lasted for no_path_ms.
 *
 * A path may also be silent with nothing out: an HCA can acknowledge a write and die before it
 * places it, and then both ends wait for the other. So while an end waits for its peer, each of its
 * paths that gave no sign for stall_ms is probed with something signalled, whose completion is (1).
 * So is, after a quarter of that, a path that has only items without a completion out (entries,
 * words, copies): where the HCA reports nothing either, it is found about as soon as any other.
 *
 * A slow receiver never makes a stall: completions come from the peer's HCA, and receives are
 * posted for every piece that may be out (RECV_WRS).
 */
void stall_tick(struct repair_end *end, unsigned int path);
void stall_answered(struct repair_end *end);

/*
 * The data path reads no clock: it notes that something happened, and the next tick, or answer,
 * takes the time of that. A path so looks alive for one tick longer than it was.
 */

static inline void stall_note_progress(struct repair_path *path)
{
	path->has_moved = true;
}

/** Before the item is pushed. Waiting begins with the first signalled item. */
static inline void stall_note_post(struct repair_path *path, bool signalled)
{
	path->has_posted = true;
	if (signalled && path->sq.signalled_out == 0) {
		path->has_begun = true;
	}
}

#endif
