/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm.h"
#include "plugin/runtime.h"

#include <errno.h>

static bool is_usable(const struct ib_rail *rail)
{
	return atomic_load_explicit(&rail->port_up, memory_order_acquire) &&
	       !atomic_load_explicit(&rail->device_fatal, memory_order_acquire);
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

static void append(struct comm *comm, const struct ib_rail *rail, unsigned int dist)
{
	unsigned int i = comm->rail_count++;

	ib_rail_describe(rail, &comm->rail_descs[i]);
	comm->rail_descs[i].dist = stripe_dist(runtime_instance()->cfg.stripe, i, dist);
	comm->rail_idx[i] = rail->idx;
}

int comm_list_rails(struct comm *comm)
{
	enum {
		DIST_MAX = 3
	};
	const struct runtime *rt = runtime_instance();
	const struct ib_rail *own = &rt->rails->rails[comm->dev];
	unsigned int max = (unsigned int)rt->cfg.paths_max_count;

	comm->rail_count = 0;
	if (is_usable(own)) {
		append(comm, own, 0);
	}
	for (unsigned int dist = 0; dist <= DIST_MAX; dist++) {
		for (unsigned int i = 0; i < rt->rails->count && comm->rail_count < max; i++) {
			const struct ib_rail *rail = &rt->rails->rails[i];

			if (rail != own && is_usable(rail) && ib_rail_distance(own, rail) == dist) {
				append(comm, rail, dist);
			}
		}
	}
	return comm->rail_count ? 0 : -ENETDOWN;
}
