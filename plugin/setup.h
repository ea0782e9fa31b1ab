/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_SETUP_H
#define BRAID_PLUGIN_SETUP_H

#include "plugin/comm.h"

#include <stdbool.h>
#include <stdint.h>

/**
 * The handshake of a comm (include/frame.h draws it). Verbs calls run on the setup worker, one job
 * at a time per comm; frames come on the loop thread and are accepted only when expected. A failure
 * fails this comm alone, with one line here and REFUSED at the peer.
 */

/** Connector: get rings and send OPEN. Takes no reference. */
void setup_begin_open(struct comm *comm, const uint8_t token[16]);

/** Acceptor: put the comm into the table and answer OPEN with OPENED. */
void setup_begin_accept(struct comm *comm, const struct frame *frame);

/**
 * OPENED, PATHS, READY or REFUSED came for this comm, or CLOSE before it was READY. Loop thread, no
 * lock held.
 */
void setup_on_frame(struct comm *comm, const struct frame *frame);

/**
 * The peer is gone or refused: end the handshake. Nothing once the comm is READY. True if it did.
 * A reference is held. Any thread.
 */
bool setup_give_up(struct comm *comm, int err, const char *why);

#endif
