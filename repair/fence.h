/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_FENCE_H
#define BRAID_REPAIR_FENCE_H

#include "repair/end.h"

/**
 * Repair of path p at epoch e. Either end may start, both may start at once:
 *
 *   1. no new work on p; own QP to ERR (elsewhere, it may block); FENCE{p,e} to the peer, so that
 * it starts as well
 *   2. reap: every send item and every receive is back; successes among them count
 *   3. FENCED{p,e,book} to the peer: nothing of epoch e can land or be read here any more. The
 *      receiver reads its book out at this moment and not before (P4)
 *   4. own fence done and the peer's FENCED in: the sender takes what was ever posted on p and is
 * not in the receiver's book, and posts it on other paths; the receiver writes the clear-to-send
 *      entries that the sender lacks again. Epoch up, path DOWN
 *
 * Why a late write can't land (P2): a piece is posted on another path only in step 4. By then the
 * receiver's QP was in ERR when its FENCED left, so its responder drops what comes later, and what
 * was placed before has a record in the book or, without a record, is the same bytes for the same
 * place of a message that can't be done without the piece. The sender's QP was reaped before step
 * 4, so its HCA reads the source buffer no more; a send is not done while one of its WRs is out.
 *
 * One epoch may never have carried anything: when the peer fences while this end is DOWN (it probed
 * and failed before this end had joined), FENCED is answered from DOWN without touching a QP. A
 * join that is under way may still bring the new QP to RTS; all that the peer ever posted in that
 * epoch is its probe, into memory for probes, and the next epoch has another QP and another
 * pattern.
 *
 * A second failure at any moment is the same code for another path: pieces handed over in step 4
 * are pieces of their new path like any other.
 */
enum fence_outcome {
	FENCE_ERRORED, /* QP is in ERR, its WRs will flush */
	FENCE_DEAD,    /* device reported fatal: nothing can move any more and nothing flushes */
	FENCE_REFUSED, /* the QP could not be moved and the device is not reported fatal */
};

/** Result of ops->fence. */
void repair_fence_errored(struct repair_end *end, unsigned int path, enum fence_outcome outcome,
			  uint64_t now_ns);

/** Result of ops->cut: the QP was RESET after its completions were entered; 0 or -errno. */
void repair_fence_cut(struct repair_end *end, unsigned int path, int err, uint64_t now_ns);

/* For end.c. */
void fence_event(struct repair_end *end, unsigned int path, enum path_event event,
		 const struct frame_fenced *peer_book);
void fence_check_reaped(struct repair_end *end, unsigned int path);
void fence_tick(struct repair_end *end, unsigned int path);

#endif
