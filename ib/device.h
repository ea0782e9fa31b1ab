/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_DEVICE_H
#define BRAID_IB_DEVICE_H

#include "include/rail_desc.h"

#include <infiniband/verbs.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum ib_device_state {
	IB_DEVICE_PREPARED, /* memory is being registered with it; no queue pair yet */
	IB_DEVICE_USED,
	IB_DEVICE_LEFT /* given up: nothing new is made with it */
};

/**
 * A HCA as it was opened: context and protection domain, shared by the rails that are its ports.
 * One that failed or was replaced is opened again as another of these (ib/reopen.h), while what was
 * made with the old one goes on referring to that. References: one of each of its rails, queue
 * pairs and registrations, and of who watches its events; the last one closes it.
 */
struct ib_device {
	struct ibv_context *ctx;
	struct ibv_pd *pd; /* NULL until ib_device_alloc_pd() */
	char name[RAIL_NAME_MAX];
	struct ibv_device_attr attr;
	uint32_t id; /* of this process, never used again */
	_Atomic unsigned int refs;
	_Atomic int state;          /* enum ib_device_state */
	_Atomic uint64_t looked_ns; /* when another one was looked for last (ib/reopen.h) */
	_Atomic bool
		is_fatal; /* so its driver reported: it moves nothing any more. Never cleared */
};

/**
 * Open, with one reference, in state USED and with a non-blocking async_fd. Blocks as verbs do. 0
 * or -errno, and *what is a static text about which step it was.
 */
int ib_device_open(struct ibv_device *device, struct ib_device **out, const char **what);

/** The domain of all rails of the device, if it has none yet. 0 or -errno. */
int ib_device_alloc_pd(struct ib_device *device);

struct ib_device *ib_device_hold(struct ib_device *device);
/** Drop a reference; the last one closes, which may block on a sick HCA. NULL is fine. */
void ib_device_put(struct ib_device *device);

/** May queue pairs be made with it: neither reported fatal nor given up, nor being prepared. */
static inline bool ib_device_is_used(const struct ib_device *device)
{
	return !atomic_load_explicit(&device->is_fatal, memory_order_acquire) &&
	       atomic_load_explicit(&device->state, memory_order_acquire) == IB_DEVICE_USED;
}

#endif
