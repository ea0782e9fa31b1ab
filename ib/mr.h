/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_MR_H
#define BRAID_IB_MR_H

#include "ib/rail.h"
#include "ib/verbs.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Memory registered on every rail of the process, with a cache: page-aligned ranges, reference
 * counted, one entry serves every request that it covers. Registration failing on one rail takes
 * only that rail out of the mask (one line says so); failing on all is an error.
 */
struct ib_mr {
	/* of any moment; a rail's change when its device is opened again (ib/reopen.h) */
	_Atomic uint32_t rail_mask; /* bit r: registered on rail r */
	_Atomic uint32_t lkeys[RAILS_MAX], rkeys[RAILS_MAX];
	/* private below: owned by the cache and its lock */
	struct ibv_mr *mrs[RAILS_MAX]; /* one per device, at its first rail; NULL: it could not */
	struct ib_device *devices[RAILS_MAX]; /* there too, with which that was; a reference */
	uintptr_t addr;
	size_t len_bytes;
	struct ib_dmabuf dmabuf; /* with a descriptor of our own */
	unsigned int ref_count;
	uint32_t busy; /* bit of a device's first rail: being registered anew there */
	bool ordered, is_dmabuf;
};

/*
 * Relaxed: who posts on a rail holds the lock under which that rail was taken into use, and its
 * keys were there before (ib/reopen.h). For any other they are a hint.
 */

static inline bool ib_mr_is_on(const struct ib_mr *mr, const struct ib_rail *rail)
{
	return atomic_load_explicit(&mr->rail_mask, memory_order_relaxed) >> rail->idx & 1;
}

/** On all rails of a mask. */
static inline bool ib_mr_is_on_all(const struct ib_mr *mr, uint32_t rails)
{
	return (~atomic_load_explicit(&mr->rail_mask, memory_order_relaxed) & rails) == 0;
}

static inline uint32_t ib_mr_lkey(const struct ib_mr *mr, const struct ib_rail *rail)
{
	return atomic_load_explicit(&mr->lkeys[rail->idx], memory_order_relaxed);
}

static inline uint32_t ib_mr_rkey(const struct ib_mr *mr, const struct ib_rail *rail)
{
	return atomic_load_explicit(&mr->rkeys[rail->idx], memory_order_relaxed);
}

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
 * The fd may be closed by the caller right after: one of our own is kept until it is put, for a
 * device that is opened again. -EOPNOTSUPP when no rail can.
 */
int ib_mr_get_dmabuf(struct ib_mr_cache *cache, void *addr, size_t len_bytes, uint64_t offset_bytes,
		     int fd, struct ib_mr **out);

/** Drop a reference; at zero deregister on every rail. NULL is fine. */
void ib_mr_put(struct ib_mr_cache *cache, struct ib_mr *mr);

struct ib_mr_renewed {
	unsigned int count, failed_count;
};

/**
 * A device was opened again: register everything in the cache with it, `first` being its first
 * rail. What cannot be is without its rails from then on, which a line says; what is registered or
 * put meanwhile is taken care of. For one device one caller at a time. Blocks as verbs do: worker.
 */
void ib_mr_cache_renew(struct ib_mr_cache *cache, unsigned int first, struct ib_mr_renewed *out);

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
