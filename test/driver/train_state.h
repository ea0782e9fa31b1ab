/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_TRAIN_STATE_H
#define BRAID_TEST_DRIVER_TRAIN_STATE_H

#include "test/driver/train.h"
#include "test/driver/watch.h"

#include <stdio.h>

enum train_phase {
	TRAIN_BEGIN,
	TRAIN_STRIKE, /**< faults are still to come */
	TRAIN_LIMP,   /**< all have come, none is mended */
	TRAIN_SETTLE, /**< mended; paths come back */
	TRAIN_LAST    /**< the iteration after which the ranks close */
};

enum {
	TRAIN_STALE_MAX = 64
};

/** The launcher's side of a train; its main thread owns it. */
struct train {
	struct run *run;
	FILE *log;
	enum train_phase phase;
	struct train_rails rails;
	struct train_episode episode;
	struct watch watch;
	struct train_hit stale[TRAIN_STALE_MAX]; /**< still armed when their episode ended */
	uint32_t stale_count;
	uint32_t next_number;
	uint32_t fired_seen; /**< of the fabric's list */
	uint32_t iter_count;
	uint32_t limped_count;
	uint32_t struck_count; /**< faults of finished episodes */
	uint64_t start_ns;     /**< of the episode */
	uint64_t mend_ns;
	uint64_t back_ns; /**< last path that came into use again; 0: none did */
	bool is_mended;   /**< all that fired so far */
	bool is_relieved; /**< a blackout's first rail is mended */
};

/** Returns 0 or -errno. */
int train_log_open(struct train *train);
void train_log_close(struct train *train);
/** Write what became of the episode. */
void train_log_episode(struct train *train);
/** Write the run's sums. */
void train_log_end(struct train *train);

#endif
