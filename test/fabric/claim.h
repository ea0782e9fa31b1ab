/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_CLAIM_H
#define BRAID_TEST_FABRIC_CLAIM_H

#include "test/fabric/inst.h"

#include <stdbool.h>

/*
 * The right to place into a QP. fab_qp_slot.claim is 0 or inst id << 48 | number << 1 | phase.
 *
 *   holder: begin (0 -> claim)  copy bytes  finish (phase 0 -> 1)  book-keeping  end (-> 0)
 *
 * The holder looks at the QP's state after begin; the owner who fences first stores the state, then
 * drains. Both are sequentially consistent, so either the holder sees the fence or the owner sees
 * the claim. A holder may be killed, or stopped for minutes, at any point. So the bytes carry a
 * marker that lands after them in the same system call (claim_done), and nothing but the bytes
 * happens before finish: the owner may then take the claim from a holder that is stopped between
 * the two, which is where a stopped engine nearly always is, and finish fails when it wakes up.
 */

#define FAB_CLAIM_FINISHING 1ull

/** Takes the claim for instance `id`. Returns it, or 0 when somebody else has it. */
uint64_t fab_claim_begin(struct fab_qp_slot *qp, uint32_t id);
/** Turns to the book-keeping. False: the owner took the claim away; nothing more may be done. */
bool fab_claim_finish(struct fab_qp_slot *qp, uint64_t claim);
/** Gives the claim back after fab_claim_finish(). */
void fab_claim_end(struct fab_qp_slot *qp);

/**
 * Returns when every claim taken before the call is over. The caller has stored a state that makes
 * holders leave at once (or freed the key they looked for). A holder that is gone is struck off, as
 * is one that is stopped with all its bytes placed. `inst` is the instance that owns `qp`.
 */
void fab_claim_drain(struct fab_root *root, struct fab_inst *inst, struct fab_qp_slot *qp);

#endif
