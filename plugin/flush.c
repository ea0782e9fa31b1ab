/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/flush.h"

#include "include/log.h"
#include "include/nccl_net.h"
#include "include/wr_id.h"
#include "plugin/core.h"
#include "plugin/runtime.h"

#include <errno.h>

/*
 * GPU memory: data that an HCA has written may still be on its way through PCIe when its completion
 * is seen. A read through the same HCA pushes it. Every HCA that carried a piece must be flushed;
 * all that carry this comm are, which is the same or more.
 */

static int flush_open(struct comm *comm, struct comm_path *path)
{
	struct runtime *rt = runtime_instance();
	int rc;

	if (path->has_flush) {
		return 0;
	}
	rc = ib_flush_create(path->rail, rt->mrs, &rt->cfg, &path->flush);
	if (rc) {
		LOG_WARN("%s: no loopback queue pair to flush GPU memory", path->rail->label);
		repair_end_fail(&comm->end, CAUSE_POST_FAILED, path->idx, "cannot flush");
		return rc;
	}
	path->has_flush = true;
	return 0;
}

/* One read per path that has carried data. A path that died was reaped, its HCA is not asked again.
 */
static int post_reads(struct comm *comm, struct request *req, void *data)
{
	for (unsigned int p = 0; p < comm->path_count; p++) {
		struct comm_path *path = &comm->paths[p];
		uint64_t wr_id =
			wr_id_pack((struct wr_id){.kind = WR_KIND_FLUSH,
						  .path = (uint8_t)p,
						  .idx = (uint32_t)(req - comm->requests)});
		int rc;

		if (comm->end.paths[p].state != PATH_UP) {
			continue;
		}
		rc = flush_open(comm, path);
		if (!rc) {
			rc = ib_flush_post(&path->flush, (uint64_t)(uintptr_t)data,
					   req->memory->mr->rkeys[path->rail->idx], wr_id);
		}
		if (rc) {
			return rc;
		}
		req->reads_out++;
	}
	return 0;
}

static struct request *take_flush(struct comm *comm, struct memory *memory)
{
	for (unsigned int i = 0; i < REQUESTS_MAX; i++) {
		struct request *req = &comm->requests[i];

		if (!req->busy) {
			*req = (struct request){.comm = comm,
						.type = REQUEST_FLUSH,
						.busy = true,
						.memory = memory};
			return req;
		}
	}
	return NULL;
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
	pthread_mutex_lock(&comm->lock);
	rc = comm_error(comm);
	req = rc ? NULL : take_flush(comm, memory);
	if (req) {
		rc = post_reads(comm, req, data[last]);
		req->busy = rc == 0;
		*request = rc ? NULL : req;
	}
	pthread_mutex_unlock(&comm->lock);
	return rc;
}

bool flush_poll(struct comm *comm, struct request *request)
{
	struct ib_wc wcs[4];

	for (unsigned int p = 0; p < comm->path_count; p++) {
		int count =
			comm->paths[p].has_flush ? ib_flush_poll(&comm->paths[p].flush, wcs, 4) : 0;

		for (int i = 0; i < count; i++) {
			struct request *req =
				&comm->requests[wr_id_unpack(wcs[i].wr_id).idx % REQUESTS_MAX];

			if (wcs[i].cause != CAUSE_NONE) {
				repair_end_fault(&comm->end, p, wcs[i].cause, comm->end.now_ns);
			}
			req->reads_out -= req->reads_out > 0;
		}
	}
	return request->reads_out == 0;
}
