/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_NCCL_SHARED_H
#define BRAID_TEST_NCCL_SHARED_H

/*
 * What the ranks of a job and their launcher see of each other: one anonymous shared mapping, made
 * before the ranks are forked. Every wait has a bound, and ends early when the job has failed.
 */

#include "test/nccl/matrix/nccl_api.h"
#include "test/nccl/matrix/value.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/** What rank 0 asks the launcher to do to a rank. */
enum shared_order {
	ORDER_NONE,
	ORDER_KILL,
	ORDER_PAUSE,
	ORDER_DONE,
	ORDER_COUNT
};

/** One rank's part of the current step; written by the rank, read by rank 0 after a barrier and by
 * the launcher at the end. */
struct shared_result {
	uint64_t begin_ns; /* CLOCK_MONOTONIC, before the first NCCL call of the collective */
	uint64_t end_ns;   /* its stream was seen done */
	uint64_t elements;
	uint64_t wrong;
	int error;           /* what NCCL said, enum nccl_result; 0 while all is well */
	uint64_t error_ns;   /* when it said so */
	uint64_t abort_ns;   /* how long ncclCommAbort took */
	_Atomic int is_done; /* this rank has nothing more to add; release, pairs with acquire */
};

struct shared {
	int rank_count;
	_Atomic uint32_t arrived; /* at the barrier; acq_rel */
	_Atomic uint32_t gen;   /* of the barrier; release by the last one, acquire by the others */
	_Atomic int has_failed; /* a rank gave up: nobody waits any more */
	_Atomic uint32_t line;  /* of the plan that rank 0 is at */
	struct nccl_unique_id
		ids[VALUE_MAX_RANKS]; /* of communicators; by rank 0 before a barrier */
	int decision;                 /* of rank 0, before a barrier */
	struct shared_result results[VALUE_MAX_RANKS];
	uint64_t wrong_total; /* of the steps so far; rank 0 */
	int bad_count;        /* steps that were not as they must be; rank 0 */
	_Atomic int order;    /* enum shared_order; release by rank 0, then by the launcher */
	int order_rank;
	uint64_t order_at_ns;
	uint32_t order_ms;
	uint64_t order_begin_ns; /* when the launcher had sent the signal */
	uint64_t order_end_ns;   /* when it had sent SIGCONT */
};

uint64_t shared_now_ns(void);
/** Waits until all ranks are here. -ETIMEDOUT after `limit_ms`, -ECANCELED when the job failed. */
int shared_barrier(struct shared *shared, uint64_t limit_ms);
/** Sleeps a little; for loops that look at something another process changes. */
void shared_nap(void);

#endif
