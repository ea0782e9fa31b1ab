/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_OP_H
#define BRAID_TEST_DRIVER_OP_H

#include "test/driver/rank.h"

/**
 * Get ready for rank->job: fill the input, poison the output, give each connection that takes part
 * its messages. Sets the report's total.
 */
void op_begin(struct rank *rank);
/** After the data moved: checks of every element and of all memory around it. */
void op_end(struct rank *rank);

#endif
