/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_GID_H
#define BRAID_IB_GID_H

#include "include/config.h"

#include <infiniband/verbs.h>

#include <stdbool.h>

/** One used entry of a port's GID table. */
struct gid_entry {
	union ibv_gid gid;
	int idx;
	int roce_version; /* 1, 2; 0 unknown */
};

/** What is wanted of a RoCE GID. */
struct gid_wish {
	int family;        /* AF_INET or AF_INET6 */
	int roce_version;  /* 1 or 2 */
	const char *range; /* "address/length" or ""; checked by the configuration */
};

enum {
	GID_TEXT_MAX_BYTES = 48
};

/** Is it there at all: neither zero nor a link-local prefix without an interface part. */
bool ib_gid_is_set(const union ibv_gid *gid);
/** fe80::/10, or 169.254/16 as a mapped IPv4 address. */
bool ib_gid_is_link_local(const union ibv_gid *gid);
/** AF_INET for a mapped IPv4 address, else AF_INET6. */
int ib_gid_family(const union ibv_gid *gid);
/** Is the address in "address/length"? An empty range holds everything, a malformed one nothing. */
bool ib_gid_in_range(const union ibv_gid *gid, const char *range);
/** Address text as people know it: dotted quad for a mapped IPv4 address. Returns out. */
const char *ib_gid_text(const union ibv_gid *gid, char out[GID_TEXT_MAX_BYTES]);
/** InfiniBand: the 16 bits behind the link-local prefix that route between subnets; 0 none. */
uint16_t ib_gid_flid(const union ibv_gid *gid);

/**
 * Choose a RoCE GID: not link-local before link-local, then the range, the RoCE version, the
 * family, the lowest index. Position in the table, or -ENOENT when it has no usable entry.
 */
int ib_gid_choose(const struct gid_entry *table, unsigned int count, const struct gid_wish *wish);

/** A port whose GID is to be chosen. */
struct gid_port {
	struct ibv_context *ctx;
	const char *device;
	const char *sysfs_root;
	uint8_t port;
	uint8_t link_layer; /* enum rail_link_layer */
	int table_len;
};

/**
 * Choose and read the GID of a port. InfiniBand: index 0, or 1 when that one routes between
 * subnets. RoCE: NCCL_IB_GID_INDEX when set, else ib_gid_choose() over the table. Blocks on device
 * files. 0, -ENOENT when there is none, or what verbs said.
 */
int ib_gid_pick(const struct gid_port *port, const struct braid_config *cfg, struct gid_entry *out);

/**
 * Warn if a GID that was picked is a link-local one or does not meet the wish. Apart from the pick,
 * which is tried again and again while a port is out: said when the GID is taken into use.
 */
void ib_gid_warn(const struct gid_port *port, const struct braid_config *cfg,
		 const struct gid_entry *entry);

/** Find a GID in the port's table again, in the RoCE version wanted if it is there twice. As pick.
 */
int ib_gid_find(const struct gid_port *port, const struct braid_config *cfg,
		const union ibv_gid *gid, struct gid_entry *out);

#endif
