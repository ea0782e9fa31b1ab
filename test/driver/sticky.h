/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_STICKY_H
#define BRAID_TEST_DRIVER_STICKY_H

#include "test/driver/rank.h"

/**
 * A connection has returned an error, of the kind a run with --expect remote waits for: from now on
 * each call on it must return the same. Adds what it finds to the tally; without --expect remote it
 * does nothing. Blocks for some milliseconds.
 */
void sticky_check(struct rank *rank, struct conn *conn);

#endif
