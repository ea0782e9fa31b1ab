/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/port.h"

#include "ib/verbs.h"

static const char *state_reason(enum ibv_port_state state)
{
	static const char *const reasons[] = {
		[IBV_PORT_NOP] = "port state unknown",
		[IBV_PORT_DOWN] = "port is down",
		[IBV_PORT_INIT] = "port is not configured by a subnet manager (INIT)",
		[IBV_PORT_ARMED] = "port is ARMED, not ACTIVE",
		[IBV_PORT_ACTIVE_DEFER] = "port is ACTIVE_DEFER, not ACTIVE",
	};

	if ((size_t)state < sizeof(reasons) / sizeof(reasons[0]) && reasons[state] != NULL) {
		return reasons[state];
	}
	return "port is not ACTIVE";
}

static uint8_t link_layer(const struct ibv_port_attr *attr)
{
	if (attr->link_layer == IBV_LINK_LAYER_ETHERNET) {
		return RAIL_LINK_ETHERNET;
	}
	/* drivers from before Ethernet ports existed say "unspecified" */
	if (attr->link_layer == IBV_LINK_LAYER_INFINIBAND ||
	    attr->link_layer == IBV_LINK_LAYER_UNSPECIFIED) {
		return RAIL_LINK_INFINIBAND;
	}
	return 0;
}

static const char *read_gid(const struct gid_port *port, const struct braid_config *cfg,
			    const union ibv_gid *keep, struct port_state *out)
{
	if ((keep == NULL || ib_gid_find(port, cfg, keep, &out->picked) != 0) &&
	    ib_gid_pick(port, cfg, &out->picked) != 0) {
		return cfg->ib_gid_idx >= 0 ? "no address at NCCL_IB_GID_INDEX in its GID table"
					    : "no usable address in its GID table";
	}
	out->addr.gid = out->picked.gid;
	out->addr.gid_index = out->picked.idx;
	return NULL;
}

/* All but the port's state. */
static const char *read_rest(struct gid_port *port, const struct braid_config *cfg,
			     const union ibv_gid *keep, const struct ibv_port_attr *attr,
			     struct port_state *state)
{
	state->link_layer = link_layer(attr);
	if (state->link_layer == 0) {
		return "neither InfiniBand nor Ethernet";
	}
	state->addr.lid = attr->lid;
	state->addr.mtu = (uint8_t)attr->active_mtu;
	/* There is none without a link, and a peer would not take that for one. */
	if (attr->active_mtu < IBV_MTU_256 || attr->active_mtu > IBV_MTU_4096) {
		state->addr.mtu = IBV_MTU_1024;
	}
	if (state->link_layer == RAIL_LINK_INFINIBAND) {
		if (cfg->ib_pkey_idx >= (attr->pkey_tbl_len > 0 ? attr->pkey_tbl_len : 1)) {
			return "NCCL_IB_PKEY is beyond its partition key table";
		}
		state->pkey_index = (uint16_t)cfg->ib_pkey_idx;
	}
	port->link_layer = state->link_layer;
	port->table_len = attr->gid_tbl_len;
	return read_gid(port, cfg, keep, state);
}

const char *ib_port_read(struct gid_port *port, const struct braid_config *cfg,
			 const union ibv_gid *keep, struct port_state *out)
{
	struct port_state state = {.pkey_index = 0};
	struct ibv_port_attr attr;
	const char *why;

	if (ib_verbs_query_port(port->ctx, port->port, &attr, &state.speed_mbps) != 0) {
		return "the device does not answer a query of the port";
	}
	state.inactive = attr.state == IBV_PORT_ACTIVE ? NULL : state_reason(attr.state);
	why = read_rest(port, cfg, keep, &attr, &state);
	if (why == NULL) {
		*out = state;
	} else if (state.inactive != NULL) {
		why = state.inactive; /* the rest may come with it */
	}
	return why;
}
