/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/rejoin_ops.h"

#include "include/clock.h"
#include "plugin/comm.h"
#include "plugin/flush.h"
#include "plugin/reopen.h"
#include "plugin/runtime.h"
#include "repair/rejoin.h"

#include <errno.h>

/*
 * Jobs of one path never overlap (repair's is_busy), and the rail's worker runs them behind the
 * fence jobs of earlier epochs, so none of those meets the new QP.
 */

/* The new QP takes the place of the fenced one, unless the comm has moved on meanwhile. */
static bool swap_qp(struct comm_path *path, struct ib_qp *qp)
{
	struct comm *comm = path->comm;
	const struct repair_path *state = &comm->end.paths[path->idx];
	bool wanted;

	lock_take(&comm->lock);
	wanted = comm->state == COMM_READY && !comm->is_quiet && state->state == PATH_DOWN &&
		 state->epoch == path->rejoin_epoch;
	if (wanted) {
		struct ib_qp old = path->qp;

		path->qp = *qp;
		*qp = old;
	}
	comm_unlock(comm);
	ib_qp_destroy(qp); /* the old one, or the one that nobody wants */
	return wanted;
}

static void rebuild_job(void *arg)
{
	struct comm_path *path = arg;
	struct comm *comm = path->comm;
	struct path_side side = {.ring_rkey = 0};
	struct ib_qp qp;
	int rc = reopen_refresh(path->rail);

	if (!rc && !ib_mr_is_on(comm->rings.mr, path->rail)) {
		rc = -ENOMEM; /* said when it could not be registered */
	}
	if (!rc) {
		rc = comm_create_qp(comm, path->rail, &qp);
	}
	if (!rc) {
		side.qp = (struct qp_addr){.qpn = qp.qpn, .psn = qp.psn};
		side.ring_rkey = ib_mr_rkey(comm->rings.mr, path->rail);
		ib_rail_describe(path->rail, &side.rail);
		rc = swap_qp(path, &qp) ? flush_rebuild(path) : -ECANCELED;
	}
	lock_take(&comm->lock);
	repair_rejoin_built(&comm->end, path->idx, path->rejoin_epoch, rc, &side, clock_mono_ns());
	comm_unlock(comm);
	comm_put(comm);
}

static void join_job(void *arg)
{
	struct comm_path *path = arg;
	struct comm *comm = path->comm;
	int rc;

	rc = ib_qp_connect(&path->qp, &path->peer_rail, &path->rejoin_peer,
			   &runtime_instance()->cfg, path->traffic_class);
	lock_take(&comm->lock);
	if (!rc && !ib_device_is_used(path->qp.device)) {
		rc = -EIO; /* see plugin/reopen.h */
	}
	repair_rejoin_joined(&comm->end, path->idx, path->rejoin_epoch, rc, clock_mono_ns());
	comm_unlock(comm);
	comm_put(comm);
}

static void post_job(struct comm_path *path, uint32_t epoch, void (*fn)(void *arg))
{
	path->rejoin_epoch = epoch;
	path->rejoin_job = (struct worker_job){.fn = fn, .arg = path};
	comm_hold(path->comm);
	worker_post(runtime_instance()->rail_workers[path->rail->idx], &path->rejoin_job);
}

void rejoin_op_rebuild(void *ctx, unsigned int p, uint32_t epoch)
{
	struct comm *comm = ctx;

	post_job(&comm->paths[p], epoch, rebuild_job);
}

void rejoin_op_join(void *ctx, unsigned int p, uint32_t epoch, const struct path_side *peer)
{
	struct comm *comm = ctx;
	struct comm_path *path = &comm->paths[p];

	path->rejoin_peer = peer->qp;
	path->peer_rail = peer->rail;
	path->cts_rkey = peer->ring_rkey;
	path->ack_rkey = peer->ring_rkey;
	path->record_rkey = peer->ring_rkey;
	path->probe_rkey = peer->ring_rkey;
	post_job(path, epoch, join_job);
	runtime_repair_begins(); /* the probe's completion has to be polled */
}

bool rejoin_op_key(void *ctx, unsigned int p, void *cookie, uint32_t *rkey)
{
	const struct comm *comm = ctx;
	const struct memory *memory = cookie;
	const struct ib_rail *rail = comm->paths[p].rail;

	if (!memory || !ib_mr_is_on(memory->mr, rail)) {
		return false;
	}
	*rkey = ib_mr_rkey(memory->mr, rail);
	return true;
}

struct hint {
	bool (*is_meant)(const struct comm_path *path, const void *arg);
	const void *arg;
};

static void hint_comm(struct comm *comm, void *arg)
{
	const struct hint *hint = arg;
	uint64_t now_ns;

	lock_take(&comm->lock);
	now_ns = clock_mono_ns();
	for (unsigned int p = 0; comm->state == COMM_READY && p < comm->path_count; p++) {
		if (hint->is_meant(&comm->paths[p], hint->arg)) {
			repair_rejoin_hint(&comm->end, p, now_ns);
		}
	}
	comm_unlock(comm);
}

void rejoin_hint_all(bool (*is_meant)(const struct comm_path *path, const void *arg),
		     const void *arg)
{
	struct hint hint = {.is_meant = is_meant, .arg = arg};

	comm_for_each(hint_comm, &hint);
}
