/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_RUN_H
#define BRAID_TEST_DRIVER_RUN_H

#include "test/driver/children.h"
#include "test/driver/events.h"
#include "test/driver/job.h"
#include "test/driver/rails.h"
#include "test/driver/sampler.h"
#include "test/driver/shared.h"
#include "test/driver/train.h"

#include <limits.h>

/** What is known of one iteration. */
struct iter_record {
	struct job job;
	bool done;
	bool reported;                        /**< its line was printed */
	uint64_t start_ns;                    /**< the first rank's start, CLOCK_MONOTONIC */
	uint64_t time_ns;                     /**< from there to the last rank's end */
	uint64_t rail_bytes[RAILS_COUNT_MAX]; /**< sent, over all hosts */
	uint64_t replayed_bytes;
	uint32_t fired_count; /**< faults that fired in it */
	bool wrong;           /**< some check failed in it */
};

/** One installed fault or sent signal. */
struct trouble {
	bool armed;
	bool done;
	uint64_t at_ns;
	uint64_t end_ns; /**< of a command: when it was over */
};

/** A run, as the launcher sees it. */
struct run {
	const struct options *opt;
	struct shared *shared;
	int shm_fd;
	char dir[PATH_MAX - 64];
	struct children children;
	struct rails *rails; /**< NULL without a fabric */
	struct sampler *sampler;
	struct events events;
	struct train *train; /**< NULL without one */
	struct iter_record *records;
	uint32_t record_count; /**< iterations begun */
	uint64_t rail_base[RAILS_COUNT_MAX];
	uint64_t replayed_base;
	uint64_t failed_base;
	uint32_t fired_base;
	struct trouble faults[OPT_FAULTS_MAX];
	struct trouble commands[OPT_COMMANDS_MAX];
	struct trouble killed;
	struct trouble stopped;
	struct trouble continued;
	struct rail_fired fired[RAILS_FIRED_MAX];
	uint32_t fired_count;
	uint64_t remote_max_ns; /**< from the kill to the last told survivor */
	char failure[256];      /**< why the run failed, if not by a check */
	bool passed;
};

/** Sum of one kind of finding over all ranks. */
uint64_t run_tally(const struct run *run, enum tally_kind kind);
/** Sum of all findings that fail a run. */
uint64_t run_failures(const struct run *run);
/** Note why the run failed; the first reason stays. */
void run_fail(struct run *run, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/** Install faults and send signals that are due: in iteration iter, with `percent` arrived. */
void trouble_tick(struct run *run, uint32_t iter, uint32_t percent);
/** End a pause that is over, also between iterations. True while a rank is stopped. */
bool trouble_pause_tick(struct run *run);
/**
 * Run the i-th --at command to its end, at most --timeout seconds; that it failed is noted. Blocks.
 */
void command_run(struct run *run, uint32_t i);
/** True while something is still to happen within iteration iter. */
bool trouble_pending(const struct run *run, uint32_t iter);

/** Complete the record of the last iteration from the counters and print its line. */
void record_finish(struct run *run);
/** Counters from which the next record counts. */
void record_base(struct run *run);

void report_header(const struct run *run);
void report_iteration(const struct run *run, const struct iter_record *record);
/** The verdict and where each finding was first seen. */
void report_verdict(const struct run *run);
/** One line of NAME=VALUE. */
void report_brief(const struct run *run);
/** Write the summary. Returns 0 or -errno. */
int report_json(const struct run *run, const char *path);

#endif
