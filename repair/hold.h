/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_HOLD_H
#define BRAID_REPAIR_HOLD_H

#include "repair/end.h"

/**
 * No path can carry what waits: the comm is held for no_path_ms, while paths try to rejoin, and
 * then fails. Only time in which the peer's process answers over the link counts. One that is
 * stopped, or out of reach, can bring no path back and is waited for (P7); how long it may be out
 * of reach is the link's business.
 */
void hold_tick(struct repair_end *end);

/** The peer's process has answered. */
void hold_answered(struct repair_end *end);

#endif
