/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DEMO_SERIES_H
#define BRAID_TEST_DEMO_SERIES_H

#include <stddef.h>
#include <stdint.h>

/** Byte counters of one rail of one host at one moment (CLOCK_MONOTONIC). */
struct series_point {
	uint64_t time_ns;
	uint64_t tx_bytes;
	uint64_t rx_bytes;
};

/** All readings of one rail of one host, oldest first. All zero is an empty one. */
struct series {
	struct series_point *points;
	size_t count;
	size_t cap;
};

/**
 * Append a reading. Returns 0, -ENOMEM, or -EINVAL when it lies before the last one or a counter
 * went down, which no counter does.
 */
int series_add(struct series *series, const struct series_point *point);
/** Free the readings; the series is empty after that. */
void series_clear(struct series *series);

/** The last reading at or before time_ns, else the first; NULL when there is none. */
const struct series_point *series_before(const struct series *series, uint64_t time_ns);
/** The first reading at or after time_ns, else the last; NULL when there is none. */
const struct series_point *series_after(const struct series *series, uint64_t time_ns);

/**
 * Mean send rate between two moments in MB/s (1e6 bytes), with counters taken to grow evenly from
 * one reading to the next and not at all outside of them. 0 when to_ns <= from_ns.
 */
double series_rate_mbps(const struct series *series, uint64_t from_ns, uint64_t to_ns);

#endif
