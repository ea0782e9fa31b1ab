/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_RAIL_H
#define BRAID_IB_RAIL_H

#include "ib/device.h"
#include "include/cause.h"
#include "include/config.h"
#include "include/limits.h"
#include "include/rail_desc.h"

#include <infiniband/verbs.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/** Where a rail is reached. May change while it is out: see ib_rail_refresh(). */
struct ib_rail_addr {
	union ibv_gid gid;
	int gid_index;
	uint16_t lid;
	uint8_t mtu; /* enum ibv_mtu, active MTU */
};

/**
 * A rail: one local HCA port with its chosen GID. Found once per process; immutable afterwards but
 * for `addr`, `device` and the fields marked atomic. NCCL sees each rail as one device, with the
 * same name, guid, port, pciPath and speed as its built-in IB transport would report.
 */
struct ib_rail {
	unsigned int idx; /* in the table, = NCCL device number */
	char name[RAIL_NAME_MAX];
	char label[RAIL_NAME_MAX + 8]; /* "mlx5_0:1" for log lines */
	uint8_t port;
	uint8_t link_layer; /* enum rail_link_layer */
	uint16_t pkey_index;
	struct ib_rail_addr addr; /* under rails->lock: use ib_rail_addr_get() */
	uint64_t guid;            /* sys_image_guid as NCCL reports it */
	int nccl_port; /* what NCCL is told: port + number of earlier rails with this PCI path */
	int rail_id, plane_id;       /* from NCCL_IB_HCA (name:port:rail:plane), -1 unknown */
	_Atomic uint32_t speed_mbps; /* of a port that was out, as it was read last */
	uint32_t max_qp;
	char *pci_path; /* realpath, function digit zeroed as NCCL does; NULL if none; lives for
			   ever */
	const char *dev_path; /* realpath of the device as it is, NULL if none; lives for ever */
	const char *pf_path;  /* the same of its physical function; its own if it is none */
	int numa_node;        /* -1 unknown */
	bool relaxed_ordering;
	/* shared by the rails of one device; a reference. Under rails->lock, as it may be opened
	 * again: use ib_rail_device_get() */
	struct ib_device *device;
	unsigned int first; /* index of the first rail of the same device */
	_Atomic bool port_up;
	_Atomic bool is_read;          /* address and speed are those of an ACTIVE port */
	_Atomic(const char *) out_why; /* said last; static, NULL: it was not out */
	_Atomic int ptr_support;       /* see ib_mr_ptr_support(); of this rail, 0 until tried */
	struct ib_rails *rails;        /* table it is in */
};

struct ib_rails {
	unsigned int count;
	/* Of them, the last so many are no devices of NCCL's: their ports were not ACTIVE when they
	 * were found. Connections use them once they are. */
	unsigned int hidden_count;
	struct ib_rail rails[RAILS_MAX];
	pthread_mutex_t lock; /* addr and device of every rail; held for a copy only */
};

/**
 * Load libibverbs, find and open every usable port as the configuration says (NCCL_IB_HCA with
 * NCCL's own meaning: comma list of prefixes, '^' exclude, '=' exact, name[:port]; ports that are
 * not ACTIVE are hidden, see struct ib_rails, with a line that says so; several functions of one
 * physical port are one rail when NCCL_IB_MERGE_VFS is set). Logs one table: rail, port, link
 * layer, speed, GID, PCI path, or why a port was left out. 0 also when there is nothing (count 0,
 * one line says why: library missing, no device, nothing matched and what exists). -errno only for
 * running out of memory. Calling thread: NCCL's init thread; may block on device files.
 */
int ib_rails_open(const struct braid_config *cfg, struct ib_rails **out);

/** Close all. No QP, MR or CQ may be left. NULL is fine. */
void ib_rails_close(struct ib_rails *rails);

/** Rails that NCCL sees as its devices, the first in the table. */
static inline unsigned int ib_rails_device_count(const struct ib_rails *rails)
{
	return rails->count - rails->hidden_count;
}

/** Fill what is told to a peer. `dist` and `is_down` are set by the caller. */
void ib_rail_describe(const struct ib_rail *rail, struct rail_desc *out);

/** Copy of the rail's present address. Any thread. */
void ib_rail_addr_get(const struct ib_rail *rail, struct ib_rail_addr *out);

/** The rail's present device, with a reference for the caller. Any thread. */
struct ib_device *ib_rail_device_get(const struct ib_rail *rail);
/** Is it still this one? Any thread. */
bool ib_rail_device_is(const struct ib_rail *rail, const struct ib_device *device);
/** Was the present device reported fatal? Any thread. */
bool ib_rail_is_fatal(const struct ib_rail *rail);

/**
 * Ask the device again, before a rail is used that was out: its GID may have moved to another
 * index, or be another one. Updates the address, the speed and port_up; *moved says whether the
 * address is not what it was (then a peer has to be told). 0: usable. -ENETDOWN: port not ACTIVE,
 * without a GID, or with nothing but a link-local one in place of its address, logged when that is
 * news. -EIO: device fatal or given up; then it is not asked. Blocks on device files: worker only.
 */
int ib_rail_refresh(struct ib_rail *rail, const struct braid_config *cfg, bool *moved);

/** PCI distance class between two rails: 0 same switch/card or unknown, 1 same NUMA node, 2 far. */
unsigned int ib_rail_distance(const struct ib_rail *a, const struct ib_rail *b);

/** What an asynchronous event means to us. */
enum ib_event_kind {
	IB_EVENT_PORT_DOWN,
	IB_EVENT_PORT_UP,
	IB_EVENT_DEVICE_FATAL,
	IB_EVENT_QP_FATAL,
	IB_EVENT_GID_CHANGE,
	IB_EVENT_OTHER
};

struct ib_event {
	enum ib_event_kind kind;
	uint8_t port;     /* port events */
	uint32_t qpn;     /* QP events */
	enum cause cause; /* what it means for a path; CAUSE_NONE when nothing is wrong */
	const char *text; /* name of the verbs event, static */
};

/**
 * Take, acknowledge and translate one event of a device of these rails, and keep port_up of the
 * rails that are its ports and its own is_fatal up to date. A CQ error is reported as QP_FATAL with
 * the number of the QP it serves. 1 event, 0 none, -errno (the device is gone: stop watching its
 * async_fd). Loop thread. ibv_get_async_event(3).
 */
int ib_rail_event_next(struct ib_rails *rails, struct ib_device *device, struct ib_event *out);

#endif
