/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_LIB_H
#define BRAID_TEST_FABRIC_LIB_H

#include "test/fabric/root.h"
#include "test/fabric/sysfs/topo.h"

#include <infiniband/verbs.h>

#include <limits.h>
#include <stdbool.h>

struct fab_dev {
	struct ibv_device ibv; /* first: the caller's pointer */
	uint32_t rail;         /* of port 1 */
	uint32_t port_count;
	bool roce;
	const struct fab_topo_device *made_up; /* its line in FABRIC_TOPO, or NULL */
	uint32_t idx;
	uint32_t pull_count;     /* fab_root_pulls() when it was plugged in */
	struct fab_dev *earlier; /* what it was before */
};

/** The process's view of its fabric: environment and root, read once, then constant. */
struct fab_lib {
	struct fab_root *root;
	char dir[PATH_MAX];
	uint32_t host;
	uint32_t rail_count;
	uint32_t dev_count;
	bool roce;            /* without FABRIC_TOPO */
	struct fab_topo topo; /* of FABRIC_TOPO */
	bool broken_fence;    /* FABRIC_BROKEN=fence */
	bool rail_wired;      /* rails reach only the rail of the same number */
	uint64_t latency_ns;
	uint64_t spin_ns; /* how long an engine looks at its doorbell before it sleeps */
	uint64_t seed;
	uint64_t rate_mbps[FAB_MAX_RAILS];
	struct fab_dev *devs[FAB_MAX_RAILS]; /* as they are plugged in; device.c's lock */
	struct fab_dev first_devs[FAB_MAX_RAILS];
};

/** The library's one instance, set up at the first call. NULL with errno set when the environment
 * or the fault file is wrong; that was said on stderr once. */
struct fab_lib *fab_lib_get(void);

/** Said once per verb and process, on stderr, by its first 63 characters; returns EOPNOTSUPP and
 * sets errno to it. */
int fab_unsupported(const char *verb);

/** Addresses of (host, rail). */
uint16_t fab_addr_lid(uint32_t host, uint32_t rail);
uint64_t fab_addr_guid(uint32_t host, uint32_t rail);
/** The GID that an InfiniBand port has. */
void fab_addr_gid(const struct fab_lib *lib, uint32_t host, uint32_t rail, union ibv_gid *gid);
/** 0 and the port behind an address vector of a RoCE or InfiniBand port, or -EINVAL when no port
 * has that address. */
int fab_addr_resolve(const struct fab_lib *lib, bool roce, const struct ibv_ah_attr *ah,
		     uint32_t *host, uint32_t *rail);

#endif
