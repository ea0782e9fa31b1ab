/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DEMO_TIMELINE_H
#define BRAID_TEST_DEMO_TIMELINE_H

#include "test/demo/series.h"

#include <stdbool.h>
#include <stdint.h>

/** Bounds of what is taken in; a line beyond them is refused. */
enum {
	TIMELINE_HOSTS_MAX = 16,
	TIMELINE_RAILS_MAX = 16,
	TIMELINE_ITERATIONS_MAX = 4096,
	TIMELINE_FIRED_MAX = 32,
	TIMELINE_TEXT_MAX = 192
};

/** One all-reduce; its number counts from 0. */
struct iteration {
	uint32_t number;
	bool done;
	uint64_t start_ns;
	uint64_t end_ns; /**< once done */
	uint64_t size_bytes;
};

/** A fault of the fabric that came true. */
struct fired {
	uint64_t at_ns;
	char rule[TIMELINE_TEXT_MAX];
};

/** What braid_driver --samples writes, taken in line by line. All zero is an empty one. */
struct timeline {
	uint32_t host_count; /**< highest seen + 1 */
	uint32_t rail_count;
	struct series series[TIMELINE_HOSTS_MAX][TIMELINE_RAILS_MAX];
	struct iteration iterations[TIMELINE_ITERATIONS_MAX];
	uint32_t iteration_count;
	struct fired fired[TIMELINE_FIRED_MAX];
	uint32_t fired_count;
	uint64_t last_ns; /**< time of the newest sample */
};

/**
 * Take in one line, with or without its newline. Returns 0, -EINVAL for what the driver would not
 * write (nothing is changed then), -ENOSPC beyond the bounds, -ENOMEM.
 */
int timeline_line(struct timeline *timeline, const char *line);
/** Free the samples; the timeline is empty after that. Accepts NULL. */
void timeline_clear(struct timeline *timeline);

/** Bytes sent and received by one rail of one host between two moments, samples around them. */
struct series_point timeline_moved(const struct timeline *timeline, uint32_t host, uint32_t rail,
				   const struct iteration *iteration);
/** The iteration that was running at that time, or NULL. */
const struct iteration *timeline_running(const struct timeline *timeline, uint64_t time_ns);

static inline double iteration_ms(const struct iteration *iteration)
{
	return iteration->done ? (double)(iteration->end_ns - iteration->start_ns) / 1e6 : 0;
}

#endif
