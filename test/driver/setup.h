/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_SETUP_H
#define BRAID_TEST_DRIVER_SETUP_H

#include "test/driver/rank.h"

/*
 * The service thread's work. Each function returns 0, -EREMOTEIO after an error of the plugin,
 * -ECANCELED when told to stop, -EPROTO for a broken rule of the net API, or -ENOMEM.
 */

/** Make the list of connections the run's operations need, without touching the plugin. */
int setup_plan(struct rank *rank);
/** Listen for each receiving connection and publish the handles in shared memory. */
int setup_listen(struct rank *rank);
/**
 * Poll connect and accept for all connections until each is there, close each listener at once,
 * then register the memory. All handles must have been published. Blocks for as long as peers do.
 */
int setup_connect(struct rank *rank);
/**
 * Deregister and close whatever exists, in NCCL's order, in any state. Returns the first error but
 * goes on. Sets the report's close_ns.
 */
int setup_close(struct rank *rank);
/** Unmap the memory of the connections, after the last look at it. */
void setup_free(struct rank *rank);
/**
 * Register and deregister a scratch buffer on one connection after another until *until is not 0,
 * as NCCL's service thread does for user buffers while data moves.
 */
int setup_churn(struct rank *rank, const _Atomic int *until);

#endif
