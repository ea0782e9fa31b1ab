/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_WAKE_H
#define BRAID_REPAIR_WAKE_H

#include "repair/end.h"

/**
 * When this process stood still for a while (SIGSTOP, a machine that was moved), the time says
 * nothing: completions may be on their way to a queue that was just looked at, answers are as old
 * as the sleep, worker threads wake when this one does. So all clocks stand still as well: those of
 * paths begin anew, those of verbs calls and of the hold leave the sleep out.
 *
 * A sleep shows as a gap between two ticks. Called before any clock is looked at.
 */
void wake_check(struct repair_end *end);

/** A gap, or the wait for an answer, from which on somebody was away. */
uint64_t wake_bound_ns(const struct repair_end *end);

/** Now is a tick. */
void wake_note_tick(struct repair_end *end);

#endif
