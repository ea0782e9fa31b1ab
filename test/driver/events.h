/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_EVENTS_H
#define BRAID_TEST_DRIVER_EVENTS_H

#include "test/driver/options.h"

#include <limits.h>
#include <stdint.h>

typedef void (*events_line_fn)(void *arg, uint32_t rank, const char *line);

/** Reader of the plugin's event files, one a rank: JSON objects, one a line. */
struct events {
	char dir[PATH_MAX];
	long offset[OPT_RANKS_MAX]; /**< read so far */
	uint64_t line_count;
	uint64_t replayed_bytes; /**< sum of all "bytes_replayed" */
	uint64_t fault_count;    /**< paths that were fenced, as either end told it */
	events_line_fn on_line;  /**< told of each line; NULL: nobody */
	void *on_line_arg;
};

/** Read what was added to the files since the last call. */
void events_poll(struct events *events, uint32_t rank_count);

#endif
