/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_RANK_H
#define BRAID_TEST_DRIVER_RANK_H

#include "test/driver/conn.h"
#include "test/driver/job.h"
#include "test/driver/netapi.h"
#include "test/driver/shared.h"

enum {
	RANK_CONNS_MAX = 2 * OPT_CHANNELS_MAX * OPT_RANKS_MAX
};

/** One rank's process. Main, service and progress thread hand it to each other, one at a time. */
struct rank {
	int id;
	struct shared *shared;
	const struct options *opt;
	struct rank_report *report;
	struct netapi api;
	int dev_count;
	struct conn *conns;
	uint32_t conn_count;
	struct guarded in; /**< user buffers */
	struct guarded out;
	bool out_poisoned; /**< the last iteration left out poisoned over its whole length */
	struct job job;
};

/** Run rank opt->rank in this process. Returns the exit status. */
int rank_run(const struct options *opt);

/** True once the launcher wants the ranks to leave. */
static inline bool rank_stopped(const struct rank *rank)
{
	return atomic_load_explicit(&rank->shared->stop, memory_order_acquire) != STOP_NONE;
}

#endif
