/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_CONNECT_H
#define BRAID_PLUGIN_CONNECT_H

#include <stdint.h>

struct comm;

/*
 * Connections that NCCL forgot: one that aborts while it connects neither asks for the connection
 * again nor closes it, and without an end of it our threads would never end (P11).
 */

/** step_ms have passed: let go of a sender that NCCL has not asked for in a long time. Loop thread.
 */
void connect_tick(struct comm *comm, uint32_t step_ms);

/** Close all senders that were never handed to NCCL: the last user has finalized. Bounded as
 * closing is. Not from our own threads. */
void connect_close_all(void);

#endif
