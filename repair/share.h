/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_SHARE_H
#define BRAID_REPAIR_SHARE_H

#include "repair/path.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/**
 * One rail as all senders of the process use it. A rail that is idle as far as one comm knows may
 * be full of the others' pieces: so what each has outstanding on it is added up, and the least
 * loaded rail is that of all of them. Owner: the caller of repair/, one for each local rail; it
 * outlives the paths that point to it. Numbers only, hence relaxed: one that is read a little late
 * makes a choice a little worse. Small items are left out (limits.large_bytes), and cost nothing.
 */
struct repair_share {
	_Alignas(64) _Atomic uint64_t load_bytes;
	/* repair/pace.h: how many paths find it slow, when one is tried anew, when that was said */
	_Atomic uint32_t slow_count;
	_Atomic bool is_said;
	_Atomic uint64_t retry_ns, said_ns;
};

/** Bytes that are to go before what is posted on this path now. */
static inline uint64_t share_load_bytes(const struct repair_path *path)
{
	uint64_t own_bytes = path->inflight_bytes - path->shared_bytes;

	return path->share ? own_bytes + atomic_load_explicit(&path->share->load_bytes,
							      memory_order_relaxed)
			   : own_bytes;
}

/** An item of this length was posted on the path. */
static inline void share_post(struct repair_path *path, uint32_t len_bytes, uint32_t large_bytes)
{
	path->inflight_bytes += len_bytes;
	if (len_bytes >= large_bytes && path->share) {
		path->shared_bytes += len_bytes;
		atomic_fetch_add_explicit(&path->share->load_bytes, len_bytes,
					  memory_order_relaxed);
	}
}

/** It is back, or never will be. */
static inline void share_retire(struct repair_path *path, uint32_t len_bytes, uint32_t large_bytes)
{
	ASSERT(path->inflight_bytes >= len_bytes);
	path->inflight_bytes -= len_bytes;
	if (len_bytes >= large_bytes && path->share) {
		ASSERT(path->shared_bytes >= len_bytes);
		path->shared_bytes -= len_bytes;
		atomic_fetch_sub_explicit(&path->share->load_bytes, len_bytes,
					  memory_order_relaxed);
	}
}

#endif
