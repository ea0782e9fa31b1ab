/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_NCCL_REPORT_H
#define BRAID_TEST_NCCL_REPORT_H

/* The job's output: one line of JSON a step on standard output, by rank 0, and one for the job, by
 * the launcher. README.md tells the fields. */

#include "test/nccl/matrix/op.h"

/** What all ranks together made of a step. */
struct report_sum {
	uint64_t elements;
	uint64_t wrong;
	uint64_t begin_ns; /* the last rank began */
	uint64_t end_ns;   /* the last was done */
	uint64_t took_ns;  /* from the first to begin to the last to be done */
};

/** Adds up the results of all ranks but `except` (-1: none). Between two barriers. */
void report_sum(const struct shared *shared, int except, struct report_sum *sum);
/** Begins a line: kind, plan line, the operation. The caller ends it with report_end(). */
void report_begin(const struct rank *rank, const struct op *op);
void report_number(const char *key, uint64_t value);
void report_text(const char *key, const char *value);
void report_end(void);
/** Rank 0 adds a step's verdict to the job's. Gives 0: the plan goes on. */
int report_verdict(struct rank *rank, uint64_t wrong, bool is_right);
/** The line of the whole job; `codes` has an exit status per rank. Gives 0 when all is right. */
int report_job(const struct shared *shared, const int *codes, uint64_t began_ns);

#endif
