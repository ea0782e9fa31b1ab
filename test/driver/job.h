/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_JOB_H
#define BRAID_TEST_DRIVER_JOB_H

#include "test/driver/options.h"

#include <stdint.h>

/** One iteration of one operation. Launcher and ranks derive the same list from the options. */
struct job {
	uint32_t iter; /**< number over the whole run */
	enum op_kind op;
	enum proto_kind proto;
	uint64_t size_bytes; /**< of each rank's buffer */
};

/** Number of iterations of the whole run. */
uint32_t job_count(const struct options *opt);
/** Iteration iter, 0 <= iter < job_count(opt): operations outermost, then protocols, sizes. */
struct job job_at(const struct options *opt, uint32_t iter);
/** True if some iteration uses proto. */
bool job_uses_proto(const struct options *opt, enum proto_kind proto);
/** Longest buffer over the run, bytes. */
uint64_t job_size_max(const struct options *opt);

#endif
