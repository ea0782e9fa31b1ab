/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_CHILDREN_H
#define BRAID_TEST_DRIVER_CHILDREN_H

#include "test/driver/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/** The ranks' processes, all started by this one. */
struct children {
	pid_t pids[OPT_RANKS_MAX]; /**< 0: not running */
	int status[OPT_RANKS_MAX]; /**< as from waitpid, once gone */
	uint32_t count;
};

/**
 * Start one process per rank: this program again, with each rank's environment. run_dir is the
 * run's folder (fabric state in run_dir/fabric, events in run_dir/events.rankR.jsonl). Returns 0 or
 * -errno; what was started stays to be reaped.
 */
int children_start(struct children *children, const struct options *opt, const char *run_dir,
		   int shm_fd);
/** Collect those that have ended. Returns how many still run. Does not block. */
uint32_t children_poll(struct children *children);
/** Wait up to wait_ms for all to end, then SIGKILL the rest and collect them. */
void children_finish(struct children *children, uint32_t wait_ms);
/** Send a signal to one rank, if it still runs. */
void children_signal(struct children *children, uint32_t rank, int signal);
/** How a rank that is gone ended, in words: "exit status 3", "signal 11". */
void children_epitaph(const struct children *children, uint32_t rank, char *text, size_t cap);
/** A rank ended by itself with status 0. */
bool children_clean(const struct children *children, uint32_t rank);

#endif
