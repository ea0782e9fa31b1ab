/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_ACK_TIMER_H
#define BRAID_PLUGIN_ACK_TIMER_H

#include <stdbool.h>

struct comm;
struct runtime;

/**
 * Rounds over the comms with an acknowledgement that waits (repair/ack.h), BRAID_ACK_DELAY_MS
 * apart, on the loop thread: what waits leaves within two of them when NCCL does not call. They
 * begin when many wanted to wait, and end when none did for a while, so an idle process is not
 * woken and the data path need not wake anybody: while there are no rounds nothing waits.
 *
 * Lock order: a comm's lock, then the list's own.
 */

/**
 * Put the comm, which is not there, on the list. False: there are no rounds. The list holds a
 * reference until the next round, which may be the last one. Comm's lock held; the data path.
 */
bool ack_timer_add(struct comm *comm);

/** Comms were refused that often since the last tick: rounds may begin. Loop thread. */
void ack_timer_tick(struct runtime *rt, unsigned int refused_count);

/** No rounds any more. Loop thread; no comm is left. */
void ack_timer_stop(struct runtime *rt);

#endif
