/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_GUARDED_H
#define BRAID_TEST_DRIVER_GUARDED_H

#include <stddef.h>
#include <stdint.h>

enum {
	GUARD_BYTES = 4096 /**< on each side of a buffer */
};

/**
 * A buffer with a guard zone right before its first and right after its last used byte. The guards
 * lie inside what is registered with the plugin: a stray write must land, not be refused.
 */
struct guarded {
	unsigned char *map;
	size_t map_bytes;
	unsigned char *data; /**< page aligned */
	size_t cap_bytes;
	size_t len_bytes; /**< used now; the rear guard starts there */
};

/** Map zeroed memory for up to cap_bytes (may be 0). Returns 0 or -ENOMEM. */
int guarded_create(struct guarded *buf, size_t cap_bytes);
/** Unmap; accepts a zeroed struct. */
void guarded_destroy(struct guarded *buf);
/** Use the first len_bytes (at most cap_bytes) and write both guards. */
void guarded_arm(struct guarded *buf, size_t len_bytes);
/**
 * Count changed guard bytes and mend them. *at_bytes gets the offset from data of the first one
 * (negative: before the buffer), set only if the result is not 0.
 */
size_t guarded_check(struct guarded *buf, int64_t *at_bytes);

#endif
