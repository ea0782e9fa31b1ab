/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_SYSFS_TOPO_H
#define BRAID_TEST_FABRIC_SYSFS_TOPO_H

#include "test/fabric/layout_root.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * A made-up host: which verbs devices it has and where they sit. The verbs library takes names,
 * ports and link layers from it, the tree (tree.h) everything that clients look up in sysfs.
 *
 *   device NAME [pci=PATH] [numa=N] [ports=N] [link=ib|roce] [speed=GBPS] [gids=KIND,...]
 *               [netdev=NAME] [bond=NAME,NAME] [vf_of=NAME]
 *
 * One a line, # begins a comment. PATH is the path below /sys/devices, from the host bridge down:
 * pci0000:10/0000:10:01.0/0000:1a:00.0. The ports take the fabric's rails in the order of the file.
 */

#define FAB_TOPO_NAME_LEN  32u
#define FAB_TOPO_PATH_LEN  256u
#define FAB_TOPO_PORTS_MAX 4u
#define FAB_TOPO_GIDS_MAX  8u
#define FAB_TOPO_BOND_MAX  4u

/** What an entry of a port's GID table is. */
enum fab_gid_kind {
	FAB_GID_LL_V1, /* link-local IPv6, RoCE v1 */
	FAB_GID_LL_V2,
	FAB_GID_IP4_V1, /* IPv4 mapped, RoCE v1 */
	FAB_GID_IP4_V2,
	FAB_GID_IP6_V2, /* a global IPv6 address, RoCE v2 */
	FAB_GID_EMPTY,  /* a hole in the table */
	FAB_GID_KIND_COUNT,
};

struct fab_topo_device {
	char name[FAB_TOPO_NAME_LEN];
	char pci[FAB_TOPO_PATH_LEN]; /* below /sys/devices; "" = no PCI device, as soft-RoCE */
	char vf_of[FAB_TOPO_NAME_LEN];
	char netdev[FAB_TOPO_NAME_LEN]; /* "" = none; port 2's has "p2" behind it, and so on */
	char bond[FAB_TOPO_BOND_MAX][FAB_TOPO_NAME_LEN]; /* what is bonded in `netdev` */
	uint32_t bond_count;
	int numa_node; /* -1 unknown */
	uint32_t port_count;
	uint32_t first_rail; /* port P is rail first_rail + P - 1 */
	uint32_t speed_gbps;
	bool roce;
	enum fab_gid_kind gids[FAB_TOPO_GIDS_MAX];
	uint32_t gid_count; /* 0 = one entry, as a host without such a file has it */
};

struct fab_topo {
	struct fab_topo_device devices[FAB_MAX_RAILS];
	uint32_t device_count;
	uint32_t rail_count;
};

/** Reads the file. -EINVAL with the file, the line, and the nearest right word in `why`; or -errno
 * of open(2), with `why` filled as well. `out` is written on success only. */
int fab_topo_load(const char *path, struct fab_topo *out, char *why, size_t why_len);

/** The device called `name`, or NULL. */
const struct fab_topo_device *fab_topo_find(const struct fab_topo *topo, const char *name);

/** 1 or 2: the RoCE version of an entry; 0 for an empty one. */
unsigned int fab_gid_kind_version(enum fab_gid_kind kind);

#endif
