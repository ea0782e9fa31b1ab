/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_BENCH_COUNT_H
#define BRAID_TEST_BENCH_COUNT_H

#include "test/bench/bench.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Instructions inside isend, irecv and test. Both ranks run under callgrind and count only there;
 * between the steps they rest until what is under way has landed, so that the number of calls, and
 * with it the count, does not depend on the machine's load.
 */

enum {
	COUNT_MESSAGES = 64, /* per dump */
	COUNT_BURSTS = 2,
	COUNT_SIZES = 2,
	COUNT_FNS_MAX = 256,
};

extern const unsigned int count_bursts[COUNT_BURSTS];
extern const unsigned int count_sizes[COUNT_SIZES];

enum count_kind {
	COUNT_IRECV,
	COUNT_ISEND,
	COUNT_TEST_RECV,
	COUNT_TEST_SEND,
	COUNT_EMPTY_ISEND, /* no receive is posted */
	COUNT_EMPTY_TEST,  /* of a receive; nothing has arrived */
	COUNT_KIND_COUNT
};
extern const char *const count_kind_names[COUNT_KIND_COUNT];

struct count_fn {
	char name[64];
	uint64_t instructions; /* in itself */
};

/** One dump of callgrind, or several added up. */
struct count_sum {
	uint64_t plugin, verbs; /* instructions in the plugin and what it calls; below verbs */
	/* the same in functions that acknowledge, and of their posts */
	uint64_t acks, ack_verbs;
	unsigned int calls_extra; /* calls that found nothing, where one should have found it */
	unsigned int fn_count;
	struct count_fn fns[COUNT_FNS_MAX]; /* of the plugin's own object */
};

/** What is counted: with --most only what it looks at. */
static inline int count_size_count(const struct bench_options *opt)
{
	return opt->most ? 1 : COUNT_SIZES;
}

static inline int count_burst_count(const struct bench_options *opt)
{
	return opt->most ? 1 : COUNT_BURSTS;
}

/** count_read.c: add the dump at path to *sum when its label is the one. 0 or -errno. */
int count_read(const char *path, const char *label, struct count_sum *sum);

#endif
