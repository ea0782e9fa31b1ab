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

/* Smaller is better; -1: can't be a pair. */
static int cost(const struct rail_desc *a, const struct rail_desc *b, bool cross_subnet)
{
	int dist = a->dist > b->dist ? a->dist : b->dist;

	if (a->link_layer != b->link_layer || (!cross_subnet && !same_subnet(a, b))) {
		return -1;
	}
	return dist * 2 + (a->speed_mbps != b->speed_mbps);
}

struct lists {
	const struct rail_desc *local, *remote;
	unsigned int local_count, remote_count;
	uint32_t local_used, remote_used;
};

static bool best_pair(const struct lists *lists, bool cross_subnet, struct rail_pair *out)
{
	int best = -1;

	for (unsigned int i = 0; i < lists->local_count; i++) {
		for (unsigned int j = 0; j < lists->remote_count; j++) {
			int c;

			if (lists->local_used >> i & 1 || lists->remote_used >> j & 1) {
				continue;
			}
			c = cost(&lists->local[i], &lists->remote[j], cross_subnet);
			if (c >= 0 && (best < 0 || c < best)) {
				best = c;
				*out = (struct rail_pair){.local = (uint8_t)i,
							  .remote = (uint8_t)j,
							  .dist = (uint8_t)(c / 2)};
			}
		}
	}
	return best >= 0;
}

unsigned int rail_pair_all(const struct rail_desc *local, unsigned int local_count,
			   const struct rail_desc *remote, unsigned int remote_count,
			   struct rail_pair *pairs, unsigned int max)
{
	struct lists lists = {.local = local,
			      .remote = remote,
			      .local_count = local_count,
			      .remote_count = remote_count};
	struct rail_pair probe;
	bool cross_subnet = !best_pair(&lists, false, &probe);
	unsigned int count = 0;

	/* Cheapest first, so the result comes out sorted by dist. */
	while (count < max && count < PATHS_MAX && best_pair(&lists, cross_subnet, &pairs[count])) {
		lists.local_used |= 1u << pairs[count].local;
		lists.remote_used |= 1u << pairs[count].remote;
		count++;
	}
	return count;
}
