/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_PAIR_H
#define BRAID_PLUGIN_PAIR_H

#include "include/rail_desc.h"

#include <stdint.h>

/** One path to be: indices into the two rail lists. */
struct rail_pair {
	uint8_t local, remote;
	uint8_t dist; /* the larger of both: 0 active, more standby */
	uint8_t is_down;
};

/**
 * Pair the rails of two ends. Never by position or name: a pair needs the same link layer, and
 * prefers, in this order, the same subnet (GID prefix; for RoCE v2 over IPv4 the same /24),
 * nearness to the comm's own device, the same speed, and only then the order of the lists (nearest
 * first). Between two processes of one host a port is paired with itself, all else being equal:
 * crosswise, one card that dies would end two paths. Pairs across subnets are used only when no two
 * rails share one. Each rail is used once, and rails that are down are paired last, with what the
 * others leave: they may come up later. The result is sorted by dist. Returns the number of pairs,
 * at most max. Pure.
 */
unsigned int rail_pair_all(const struct rail_desc *local, unsigned int local_count,
			   const struct rail_desc *remote, unsigned int remote_count,
			   struct rail_pair *pairs, unsigned int max);

#endif
