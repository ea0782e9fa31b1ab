/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/sibling.h"

#include "include/clock.h"
#include "plugin/runtime.h"

#include <stdlib.h>
#include <string.h>

/** Two rails between which nothing gets through. */
struct dead_pair {
	uint64_t comm_id; /* where it was seen */
	struct proc_id peer;
	const struct ib_rail *rail;
	uint64_t peer_guid;
	uint8_t peer_port;
};

static bool is_pair(const struct dead_pair *pair, const struct comm_path *path)
{
	return path->qp.qp && path->rail == pair->rail && path->peer_rail.guid == pair->peer_guid &&
	       path->peer_rail.port == pair->peer_port;
}

static void fault_pair(struct comm *comm, void *arg)
{
	const struct dead_pair *pair = arg;
	uint64_t now_ns;
	struct proc_id peer;

	if (comm->id == pair->comm_id) {
		return;
	}
	lock_take(&comm->lock);
	now_ns = clock_mono_ns();
	if (comm->state == COMM_READY) {
		peer = oob_link_peer(comm->link);
		for (unsigned int p = 0; p < comm->path_count; p++) {
			if (memcmp(&peer, &pair->peer, sizeof(peer)) == 0 &&
			    comm->end.paths[p].state == PATH_UP && is_pair(pair, &comm->paths[p])) {
				repair_end_fault(&comm->end, p, CAUSE_PAIR, now_ns);
			}
		}
	}
	comm_unlock(comm);
}

/* Loop thread. */
static void tell(void *arg)
{
	struct dead_pair *pair = arg;

	comm_for_each(fault_pair, pair);
	free(pair);
}

void sibling_tell(struct comm *comm, unsigned int p, enum cause cause)
{
	const struct comm_path *path = &comm->paths[p];
	struct dead_pair *pair;

	if (cause != CAUSE_RETRY_EXC && cause != CAUSE_RESP_TIMEOUT && cause != CAUSE_STALL) {
		return;
	}
	pair = malloc(sizeof(*pair));
	if (!pair) {
		return; /* the others find out by themselves */
	}
	*pair = (struct dead_pair){.comm_id = comm->id,
				   .peer = oob_link_peer(comm->link),
				   .rail = path->rail,
				   .peer_guid = path->peer_rail.guid,
				   .peer_port = path->peer_rail.port};
	if (oob_loop_post(runtime_instance()->loop, tell, pair)) {
		free(pair);
	}
}
