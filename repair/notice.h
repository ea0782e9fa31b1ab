/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_NOTICE_H
#define BRAID_REPAIR_NOTICE_H

#include "repair/end.h"

/**
 * What a path has to tell the peer. The link delivers what it takes exactly once and in order, but
 * it refuses a frame when it has no room or no memory. Then the path owes it: it is told again with
 * each tick, before anything newer of the same path, and made anew from what is true by then. A
 * frame that has become pointless is dropped instead:
 *
 *   FENCE     once the own fence is done: FENCED says as much
 *   FENCED    never. The books only grow, so a later reading serves as well
 *   REJOIN    when the offer was withdrawn; REJOINED: when its epoch is over
 *   PROBED    when the path is neither PROBING nor UP; REJOIN_HINT: when it is not DOWN
 */
enum notice {
	NOTICE_FENCE,
	NOTICE_FENCED,
	NOTICE_REJOIN,
	NOTICE_REJOINED,
	NOTICE_PROBED,
	NOTICE_HINT,
	NOTICE_COUNT
};

/** Tell it now, or as soon as the link takes it. */
void notice_send(struct repair_end *end, unsigned int path, enum notice what);

/** Try what is owed once more. */
void notice_tick(struct repair_end *end, unsigned int path);

#endif
