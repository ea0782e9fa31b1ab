/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm.h"
#include "plugin/runtime.h"

#include <errno.h>

enum {
	DIST_MAX = 3
};

static bool is_up(const struct ib_rail *rail)
{
	return atomic_load_explicit(&rail->port_up, memory_order_acquire) &&
	       !ib_rail_is_fatal(rail);
}

/* What BRAID_STRIPE makes of the distance: 0 shares the load, more stands by. */
static uint8_t stripe_dist(int stripe, unsigned int rank, unsigned int dist)
{
	if (stripe == CONFIG_STRIPE_ALL) {
		return 0;
	}
	if (stripe == CONFIG_STRIPE_NEAR) {
		return (uint8_t)dist;
	}
	return rank < (unsigned int)stripe ? 0 : (uint8_t)(dist ? dist : 1);
}

static void append(struct comm *comm, const struct ib_rail *rail, unsigned int dist, bool is_down)
{
	unsigned int i = comm->rail_count++;

	ib_rail_describe(rail, &comm->rail_descs[i]);
	comm->rail_descs[i].dist = stripe_dist(runtime_instance()->cfg.stripe, i, dist);
	comm->rail_descs[i].is_down = is_down;
	comm->rail_idx[i] = rail->idx;
}

/* Those that are up, or those that are down, nearest first. */
static void list(struct comm *comm, bool is_down)
{
	const struct runtime *rt = runtime_instance();
	const struct ib_rail *own = &rt->rails->rails[comm->dev];
	unsigned int max = (unsigned int)rt->cfg.paths_max_count;

	if (comm->rail_count < max && is_up(own) != is_down) {
		append(comm, own, 0, is_down);
	}
	for (unsigned int dist = 0; dist <= DIST_MAX; dist++) {
		for (unsigned int i = 0; i < rt->rails->count && comm->rail_count < max; i++) {
			/* From the own one on, so that comms of different devices do not all put
			 * their second piece on the same rail. */
			const struct ib_rail *rail =
				&rt->rails->rails[(own->idx + i) % rt->rails->count];

			if (rail != own && is_up(rail) != is_down &&
			    ib_rail_distance(own, rail) == dist) {
				append(comm, rail, dist, is_down);
			}
		}
	}
}

int comm_list_rails(struct comm *comm)
{
	comm->rail_count = 0;
	list(comm, false);
	if (comm->rail_count == 0) {
		return -ENETDOWN;
	}
	list(comm, true);
	return 0;
}
