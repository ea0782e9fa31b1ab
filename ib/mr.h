/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_MR_H
#define BRAID_IB_MR_H

#include "ib/rail.h"

#include <stddef.h>
#include <stdint.h>

/**
 * Memory registered on every rail of the process, with a cache: page-aligned ranges, reference
 * counted, one entry serves every request that it covers. Registration failing on one rail takes
 * only that rail out of the mask (one line says so); failing on all is an error.
 */
struct ib_mr {
	uint32_t rail_mask; /* bit r: registered on rail r */
	uint32_t lkeys[RAILS_MAX], rkeys[RAILS_MAX];
	/* private below: owned by the cache and its lock */
	struct ibv_mr *mrs[RAILS_MAX]; /* one per device, at its first rail */
	uintptr_t addr;
	size_t len_bytes;
	unsigned int ref_count;
	bool ordered, dmabuf;
	struct ib_mr *next;
};

struct ib_mr_cache;

int ib_mr_cache_create(struct ib_rails *rails, struct ib_mr_cache **out);
/** Deregister what is left (logged as a leak at INFO). NULL is fine. */
void ib_mr_cache_destroy(struct ib_mr_cache *cache);

/**
 * Register [addr, addr + len). Local and remote write, remote read; relaxed ordering when the rail
 * has it and `ordered` is false (rings that are polled are registered ordered). Thread safe. Blocks
 * as verbs do: NCCL's service thread or worker. 0, -ENOMEM, -EFAULT, ...
 */
int ib_mr_get(struct ib_mr_cache *cache, void *addr, size_t len_bytes, bool ordered,
	      struct ib_mr **out);

/**
 * Register a DMA-BUF (ibv_reg_dmabuf_mr(3)); not cached across fds but reference counted by range.
 * The fd may be closed by the caller right after. -EOPNOTSUPP when no rail can.
 */
int ib_mr_get_dmabuf(struct ib_mr_cache *cache, void *addr, size_t len_bytes, uint64_t offset_bytes,
		     int fd, struct ib_mr **out);

/** Drop a reference; at zero deregister on every rail. NULL is fine. */
void ib_mr_put(struct ib_mr_cache *cache, struct ib_mr *mr);

/** Bits of NCCL's ptrSupport. */
enum {
	IB_PTR_HOST = 1,
	IB_PTR_CUDA = 2,
	IB_PTR_DMABUF = 4
};

/**
 * What this host was seen to be able to do: IB_PTR_* bits of any rail; each rail's own are in its
 * ptr_support. GPU bits are set only after a registration of GPU memory has worked, for which the
 * calling thread's CUDA context is used, or one that is already active; none is ever created. The
 * result is kept, unless there was no context to try with. Blocks: NCCL's init thread.
 */
int ib_mr_ptr_support(struct ib_rails *rails);

#endif
