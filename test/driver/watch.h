/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_WATCH_H
#define BRAID_TEST_DRIVER_WATCH_H

#include "test/driver/children.h"

#include <stdbool.h>
#include <stdint.h>

/** What a line of the plugin's event file says of a path. */
enum watch_kind {
	WATCH_OTHER, /**< nothing that matters here */
	WATCH_FAULT, /**< it is being fenced */
	WATCH_DOWN,  /**< fenced; what the book did not cover was sent again */
	WATCH_UP,    /**< it carries traffic (again) */
	WATCH_KIND_COUNT
};

/** One end of a path, and the last that was heard of it. */
struct watch_path {
	uint32_t rank;
	uint32_t peer;
	uint64_t comm;
	uint32_t path;
	uint32_t local;  /**< rail of `rank` */
	uint32_t remote; /**< rail of `peer` */
	bool is_up;
};

struct watch_event {
	enum watch_kind kind;
	const struct watch_path *path;
	uint64_t mono_ns;
	uint64_t replayed_bytes;
};

enum {
	WATCH_PATHS_MAX = 4096
};

/** All paths that any rank ever told of. */
struct watch {
	const struct children *children;
	uint32_t count;
	struct watch_path paths[WATCH_PATHS_MAX];
};

/** Take in a line of rank's event file. Returns what it says; its path is NULL for WATCH_OTHER. */
struct watch_event watch_line(struct watch *watch, uint32_t rank, const char *line);

#endif
