/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/series.h"

#include <errno.h>
#include <stdlib.h>

int series_add(struct series *series, const struct series_point *point)
{
	if (series->count > 0) {
		const struct series_point *last = &series->points[series->count - 1];

		if (point->time_ns < last->time_ns || point->tx_bytes < last->tx_bytes ||
		    point->rx_bytes < last->rx_bytes) {
			return -EINVAL;
		}
	}
	if (series->count == series->cap) {
		size_t cap = series->cap ? 2 * series->cap : 256;
		struct series_point *points = realloc(series->points, cap * sizeof(*points));

		if (!points) {
			return -ENOMEM;
		}
		series->points = points;
		series->cap = cap;
	}
	series->points[series->count++] = *point;
	return 0;
}

void series_clear(struct series *series)
{
	free(series->points);
	*series = (struct series){0};
}

/** Number of readings at or before time_ns. */
static size_t count_until(const struct series *series, uint64_t time_ns)
{
	size_t low = 0;
	size_t high = series->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (series->points[mid].time_ns <= time_ns) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low;
}

const struct series_point *series_before(const struct series *series, uint64_t time_ns)
{
	size_t count = count_until(series, time_ns);

	if (series->count == 0) {
		return NULL;
	}
	return &series->points[count > 0 ? count - 1 : 0];
}

const struct series_point *series_after(const struct series *series, uint64_t time_ns)
{
	size_t count = time_ns > 0 ? count_until(series, time_ns - 1) : 0;

	if (series->count == 0) {
		return NULL;
	}
	return &series->points[count < series->count ? count : series->count - 1];
}

static double tx_at(const struct series *series, uint64_t time_ns)
{
	const struct series_point *a = series_before(series, time_ns);
	const struct series_point *b = series_after(series, time_ns);

	if (!a) {
		return 0;
	}
	if (time_ns <= a->time_ns || b->time_ns <= a->time_ns) {
		return (double)a->tx_bytes;
	}
	return (double)a->tx_bytes + (double)(b->tx_bytes - a->tx_bytes) *
					     (double)(time_ns - a->time_ns) /
					     (double)(b->time_ns - a->time_ns);
}

double series_rate_mbps(const struct series *series, uint64_t from_ns, uint64_t to_ns)
{
	if (to_ns <= from_ns) {
		return 0;
	}
	return (tx_at(series, to_ns) - tx_at(series, from_ns)) * 1e3 / (double)(to_ns - from_ns);
}
