/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/pair.h"

#include "include/limits.h"

#include <stdbool.h>
#include <string.h>

static bool is_ipv4_mapped(const uint8_t gid[16])
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(gid, prefix, sizeof(prefix)) == 0;
}

static bool same_subnet(const struct rail_desc *a, const struct rail_desc *b)
{
	if (is_ipv4_mapped(a->gid) && is_ipv4_mapped(b->gid)) {
		return memcmp(a->gid + 12, b->gid + 12, 3) == 0;
	}
	return memcmp(a->gid, b->gid, 8) == 0;
}

/* Both processes are on one host. */
static bool same_port(const struct rail_desc *a, const struct rail_desc *b)
{
	return a->guid != 0 && a->guid == b->guid && a->port == b->port &&
	       memcmp(a->gid, b->gid, sizeof(a->gid)) == 0;
}

enum {
	COST_DIST = 4, /* weighs more than the others together */
	COST_SPEED = 2,
	COST_OTHER_PORT = 1
};

/* Smaller is better; -1: can't be a pair. */
static int cost(const struct rail_desc *a, const struct rail_desc *b, bool cross_subnet)
{
	int dist = a->dist > b->dist ? a->dist : b->dist;

	if (a->link_layer != b->link_layer || (!cross_subnet && !same_subnet(a, b))) {
		return -1;
	}
	return dist * COST_DIST + (a->speed_mbps != b->speed_mbps) * COST_SPEED +
	       !same_port(a, b) * COST_OTHER_PORT;
}

struct lists {
	const struct rail_desc *local, *remote;
	unsigned int local_count, remote_count;
	uint32_t local_used, remote_used;
	bool takes_down; /* rails that are down as well */
};

static bool is_free(const struct rail_desc *rails, uint32_t used, unsigned int i, bool takes_down)
{
	return !(used >> i & 1) && (takes_down || !rails[i].is_down);
}

static bool best_pair(const struct lists *lists, bool cross_subnet, struct rail_pair *out)
{
	int best = -1;

	for (unsigned int i = 0; i < lists->local_count; i++) {
		for (unsigned int j = 0; j < lists->remote_count; j++) {
			int c;

			if (!is_free(lists->local, lists->local_used, i, lists->takes_down) ||
			    !is_free(lists->remote, lists->remote_used, j, lists->takes_down)) {
				continue;
			}
			c = cost(&lists->local[i], &lists->remote[j], cross_subnet);
			if (c >= 0 && (best < 0 || c < best)) {
				best = c;
				*out = (struct rail_pair){.local = (uint8_t)i,
							  .remote = (uint8_t)j,
							  .dist = (uint8_t)(c / COST_DIST)};
			}
		}
	}
	return best >= 0;
}

/* Stable: of the same distance, those that are up stay in front. */
static void sort_by_dist(struct rail_pair *pairs, unsigned int count)
{
	for (unsigned int i = 1; i < count; i++) {
		struct rail_pair pair = pairs[i];
		unsigned int at = i;

		for (; at > 0 && pairs[at - 1].dist > pair.dist; at--) {
			pairs[at] = pairs[at - 1];
		}
		pairs[at] = pair;
	}
}

unsigned int rail_pair_all(const struct rail_desc *local, unsigned int local_count,
			   const struct rail_desc *remote, unsigned int remote_count,
			   struct rail_pair *pairs, unsigned int max)
{
	struct lists lists = {.local = local,
			      .remote = remote,
			      .local_count = local_count,
			      .remote_count = remote_count};
	struct rail_pair pair;
	bool cross_subnet = !best_pair(&lists, false, &pair);
	unsigned int count = 0;

	while (count < max && count < PATHS_MAX) {
		if (!best_pair(&lists, cross_subnet, &pair)) {
			if (lists.takes_down) {
				break;
			}
			lists.takes_down = true;
			continue;
		}
		pair.is_down = local[pair.local].is_down || remote[pair.remote].is_down;
		lists.local_used |= 1u << pair.local;
		lists.remote_used |= 1u << pair.remote;
		pairs[count++] = pair;
	}
	sort_by_dist(pairs, count);
	return count;
}
