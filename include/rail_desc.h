/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_RAIL_DESC_H
#define BRAID_RAIL_DESC_H

#include <stdint.h>

enum {
	RAIL_NAME_MAX = 64
};

enum rail_link_layer {
	RAIL_LINK_INFINIBAND = 1,
	RAIL_LINK_ETHERNET = 2
};

/** What one end tells the other about a rail; travels in OPEN and OPENED frames. */
struct rail_desc {
	char name[RAIL_NAME_MAX]; /* verbs device name, NUL terminated */
	uint8_t port;             /* port number, from 1 */
	uint8_t link_layer;       /* enum rail_link_layer */
	uint8_t mtu;              /* enum ibv_mtu, active MTU */
	uint8_t dist;             /* 0: as near as the comm's own device (active); more: standby */
	uint8_t is_down;          /* 1: its port is not ACTIVE now; it may become so later */
	uint16_t lid;
	uint32_t speed_mbps;
	uint64_t guid;   /* system image GUID, network order as the device reports it */
	uint8_t gid[16]; /* raw GID at the chosen index; its first 8 bytes are the subnet prefix */
};

/** Address of a QP, all that the other end needs for RTR. Travels in OPENED and PATHS frames. */
struct qp_addr {
	uint32_t qpn; /* 24 bits; 0: no QP, path not available yet */
	uint32_t psn; /* 24 bits, first PSN this end sends */
};

#endif
