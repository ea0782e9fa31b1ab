/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/flush.h"

#include "include/clock.h"
#include "include/log.h"
#include "include/nccl_net.h"
#include "include/wr_id.h"
#include "plugin/ack_list.h"
#include "plugin/core.h"
#include "plugin/runtime.h"

#include <string.h>

/*
 * GPU memory: data that an HCA has written may still be on its way through PCIe when its completion
 * is seen. A read through the same HCA pushes it. Every HCA that carried a piece must be flushed;
 * all that carry this comm are, which is the same or more.
 */

/* A loopback QP on the path's rail takes the place of what there is. Blocks as verbs do. */
static int flush_renew(struct comm *comm, struct comm_path *path, bool only_if_none)
{
	struct runtime *rt = runtime_instance();
	struct ib_flush flush;
	int rc = ib_flush_create(path->rail, rt->mrs, &rt->cfg, &flush);

	if (rc) {
		LOG_WARN("%s: no loopback queue pair to flush GPU memory: %s", path->rail->label,
			 strerror(-rc));
		return rc;
	}
	lock_take(&comm->lock);
	if (!only_if_none || !path->has_flush) {
		struct ib_flush old = path->flush;

		path->flush = flush;
		flush = old;
		path->has_flush = true;
		/* What was out on the old one will not be heard of again. */
		for (unsigned int i = 0; i < REQUESTS_MAX; i++) {
			comm->requests[i].reads &= ~(1u << path->idx);
		}
	}
	comm_unlock(comm);
	ib_flush_destroy(&flush);
	return 0;
}

void flush_prepare(struct comm *comm)
{
	for (unsigned int p = 0; comm->role == COMM_RECEIVER && p < comm->path_count; p++) {
		struct comm_path *path = &comm->paths[p];
		bool wanted;

		lock_take(&comm->lock);
		comm->wants_flush = true;
		/* Also while the path rejoins: its job has looked at wants_flush, or will. */
		wanted = !path->has_flush && path->qp.qp &&
			 atomic_load_explicit(&path->rail->port_up, memory_order_acquire);
		comm_unlock(comm);
		if (wanted) {
			(void)flush_renew(comm, path, true); /* iflush says what that means */
		}
	}
}

int flush_rebuild(struct comm_path *path)
{
	struct comm *comm = path->comm;
	bool wanted;

	lock_take(&comm->lock);
	wanted = comm->wants_flush;
	comm_unlock(comm);
	return wanted ? flush_renew(comm, path, false) : 0;
}

/*
 * One read per path that carries data. A path that died was reaped, its HCA is not asked again; nor
 * is one that dies here.
 */
static int post_reads(struct comm *comm, struct request *req, void *data, uint64_t now_ns)
{
	for (unsigned int p = 0; p < comm->path_count; p++) {
		struct comm_path *path = &comm->paths[p];
		struct wr_id id = {.kind = WR_KIND_FLUSH,
				   .path = (uint8_t)p,
				   .epoch_low = (uint16_t)comm->end.paths[p].epoch,
				   .idx = (uint32_t)(req - comm->requests)};

		if (comm->end.paths[p].state != PATH_UP ||
		    !ib_mr_is_on(req->memory->mr, path->rail)) {
			continue;
		}
		if (!path->has_flush && ib_rail_is_fatal(path->rail)) {
			repair_end_fault(&comm->end, p, CAUSE_DEVICE_FATAL, now_ns);
			continue;
		}
		if (!path->has_flush) {
			repair_end_fail(&comm->end, CAUSE_POST_FAILED, p,
					"no queue pair to flush GPU memory");
			return comm_error(comm);
		}
		if (ib_flush_post(&path->flush, (uint64_t)(uintptr_t)data,
				  ib_mr_rkey(req->memory->mr, path->rail), wr_id_pack(id))) {
			repair_end_fault(&comm->end, p, CAUSE_POST_FAILED, now_ns);
			continue;
		}
		req->reads |= 1u << p;
	}
	return 0;
}

int plugin_iflush(void *recv_comm, int n, void **data, const int *sizes, void **mhs, void **request)
{
	struct comm *comm = recv_comm;
	struct memory *memory = NULL;
	struct request *req;
	int last = -1;
	int rc = 0;

	for (int i = 0; i < n; i++) {
		last = sizes[i] > 0 ? i : last;
	}
	if (last >= 0) {
		memory = mhs[last];
	}
	if (!memory || memory->type == NCCL_PTR_HOST || runtime_instance()->cfg.gdr_flush_disable) {
		return 0; /* nothing to wait for */
	}
	lock_take(&comm->lock);
	rc = comm_error(comm);
	req = rc ? NULL : comm_take_request(comm, REQUEST_FLUSH, memory);
	if (req) {
		rc = post_reads(comm, req, data[last], clock_mono_ns());
		if (rc) {
			comm_give_request(req);
		} else {
			comm_expect(req);
			*request = req;
		}
	}
	comm_unlock(comm);
	ack_list_turn();
	return rc;
}

bool flush_poll(struct comm *comm, struct request *request, uint64_t now_ns)
{
	struct ib_wc wcs[4];

	for (unsigned int p = 0; p < comm->path_count; p++) {
		int count =
			comm->paths[p].has_flush ? ib_flush_poll(&comm->paths[p].flush, wcs, 4) : 0;

		for (int i = 0; i < count; i++) {
			struct wr_id id = wr_id_unpack(wcs[i].wr_id);

			/* Left over by a path that died: its request has not waited for it. */
			if (id.epoch_low != (uint16_t)comm->end.paths[p].epoch) {
				continue;
			}
			comm->requests[id.idx % REQUESTS_MAX].reads &= ~(1u << p);
			if (wcs[i].cause != CAUSE_NONE) {
				repair_end_fault(&comm->end, p, wcs[i].cause, now_ns);
			}
		}
	}
	/* A path that is not UP was given up, and its HCA may never answer. */
	request->reads &= repair_end_up_mask(&comm->end);
	return request->reads == 0;
}
