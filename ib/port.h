/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_PORT_H
#define BRAID_IB_PORT_H

#include "ib/gid.h"
#include "ib/rail.h"

/** What a port is like now. */
struct port_state {
	struct ib_rail_addr addr;
	struct gid_entry picked; /* its GID, as the table has it: for ib_gid_warn() */
	uint32_t speed_mbps;
	uint16_t pkey_index;
	uint8_t link_layer; /* enum rail_link_layer */
	const char *
		inactive; /* why not ACTIVE, static; NULL: it is. Then LID and MTU may be made up */
};

/**
 * Ask a port (ctx, device, sysfs_root and number of `port`; the rest is filled here) for its state
 * and choose its GID. `keep`, if not NULL, is a GID that is kept as long as the table still has it,
 * at whatever index. NULL and *out, also of a port that is not ACTIVE but else in order, or a
 * static text saying why the port cannot be used. Blocks on device files.
 */
const char *ib_port_read(struct gid_port *port, const struct braid_config *cfg,
			 const union ibv_gid *keep, struct port_state *out);

#endif
