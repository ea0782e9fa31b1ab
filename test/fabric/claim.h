/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_CLAIM_H
#define BRAID_TEST_FABRIC_CLAIM_H

#include "test/fabric/inst.h"

#include <stdbool.h>

/*
 * The right to place into a QP. fab_qp_slot.claim is 0 or inst id << 48 | number << 2 | phase.
 *
 *   begin (0 -> LOOK)  look at state, PSN, keys
 *   copy  (LOOK -> COPY)  the system call that moves the bytes, and nothing else
 *   finish (-> FINISH)  completion, PSN, counters; or the refusal, straight from LOOK
 *   end (-> 0)
 *
 * The holder looks at the QP's state after begin; the owner who fences first stores the state, then
 * drains. Both are sequentially consistent, so either the holder sees the fence or the owner sees
 * the claim. A holder may be killed, or stopped for minutes, at any point. A stopped one can be
 * struck off while it looks, and once its bytes are placed: they carry a marker that lands behind
 * them in the same system call (claim_done), whose end is where a stopped engine nearly always is.
 * When it wakes up, its next step fails and it forgets what it saw. In between, and while it
 * finishes, the owner has to wait: a few instructions before the system call and some after; an
 * atomic operation makes one more call, to read, before the one that carries the marker.
 */

#define FAB_CLAIM_LOOK   0ull
#define FAB_CLAIM_COPY   1ull
#define FAB_CLAIM_FINISH 2ull
#define FAB_CLAIM_PHASES 3ull

/** Takes the claim for instance `id`. Returns it, or 0 when somebody else has it. */
uint64_t fab_claim_begin(struct fab_qp_slot *qp, uint32_t id);
/** From one phase to a later one. False: the owner took the claim away; what was seen under it may
 * be wrong and nothing more may be done. */
bool fab_claim_move(struct fab_qp_slot *qp, uint64_t claim, uint64_t from, uint64_t to);
/** Gives the claim back, from LOOK or FINISH. False: it was taken away before. */
bool fab_claim_end(struct fab_qp_slot *qp, uint64_t claim);

/**
 * Returns when every claim taken before the call is over. The caller has stored a state that makes
 * holders leave at once (or freed the key they looked for). A holder that is gone is struck off,
 * and a stopped one where that is safe. `inst` is the instance that owns `qp`.
 */
void fab_claim_drain(struct fab_root *root, struct fab_inst *inst, struct fab_qp_slot *qp);

#endif
