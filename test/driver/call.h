/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_CALL_H
#define BRAID_TEST_DRIVER_CALL_H

#include "include/clock.h"
#include "test/driver/rank.h"

/** Which of NCCL's threads makes a call. */
enum call_thread {
	CALL_SERVICE,
	CALL_PROGRESS
};

/**
 * Account for a call that began at start_ns: its duration, and the error it returned if any (noted
 * in the report with its time). Returns 0 or -EREMOTEIO.
 */
int call_end(struct rank *rank, enum call_thread thread, const char *name, uint64_t start_ns,
	     enum nccl_result result);

#endif
