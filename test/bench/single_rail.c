/* SPDX-License-Identifier: Apache-2.0 */
#include "test/bench/single_rail.h"

#include "ib/verbs.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* The data path: clear-to-send entries one way, writes with immediate the other. */

static enum nccl_result reg_mr(void *comm, void *data, size_t size, int type, void **mh)
{
	struct sr_comm *c = comm;
	struct ibv_mr *mr;

	if (type != NCCL_PTR_HOST ||
	    ib_verbs_reg_mr(c->dev->pd, data, size,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr)) {
		return NCCL_RESULT_SYSTEM;
	}
	*mh = mr;
	return NCCL_RESULT_SUCCESS;
}

static enum nccl_result dereg_mr(void *comm, void *mh)
{
	(void)comm;
	return ib_verbs_dereg_mr(mh) ? NCCL_RESULT_SYSTEM : NCCL_RESULT_SUCCESS;
}

static struct sr_request *take_request(struct sr_comm *c, enum sr_kind kind)
{
	for (unsigned int i = 0; i < SR_SLOTS; i++) {
		struct sr_request *req = &c->requests[i];

		if (req->kind == SR_FREE) {
			req->comm = c;
			req->kind = kind;
			req->is_done = 0;
			return req;
		}
	}
	return NULL;
}

static void fill_data(struct ibv_send_wr *wr, struct ibv_sge *sge, const struct sr_cts *entry)
{
	memset(wr, 0, sizeof(*wr));
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->wr.rdma.remote_addr = entry->addr;
	wr->wr.rdma.rkey = entry->rkey;
	wr->sg_list = sge;
	wr->num_sge = sge->length > 0;
}

/* The last of a message carries the size as immediate; a large one's data goes ahead of it. */
static int post_message(struct sr_comm *c, struct sr_request *req, struct ibv_sge *sge,
			const struct sr_cts *entry)
{
	struct ibv_send_wr wrs[2];
	struct ibv_send_wr *last = &wrs[0];
	struct ibv_send_wr *bad;

	fill_data(&wrs[0], sge, entry);
	if (c->dev->is_ib && sge->length > SR_WRITE_ALONE_BYTES) {
		memset(&wrs[1], 0, sizeof(wrs[1]));
		wrs[0].next = &wrs[1];
		last = &wrs[1];
		last->wr.rdma = wrs[0].wr.rdma;
	}
	last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	last->imm_data = htonl(sge->length);
	last->send_flags = IBV_SEND_SIGNALED;
	last->wr_id = (uint64_t)(uintptr_t)req;
	return ib_verbs_post_send(c->qp, wrs, &bad);
}

static enum nccl_result isend(void *send_comm, void *data, int size, int tag, void *mh,
			      void **request)
{
	struct sr_comm *c = send_comm;
	const struct sr_cts *entry = &c->ring[c->head % SR_SLOTS];
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)data, .length = (uint32_t)size};
	struct sr_request *req;

	(void)tag;
	*request = NULL;
	if (__atomic_load_n(&entry->idx, __ATOMIC_ACQUIRE) != c->head + 1) {
		return NCCL_RESULT_SUCCESS;
	}
	req = take_request(c, SR_SEND);
	if (!req) {
		return NCCL_RESULT_SUCCESS;
	}
	if (sge.length > entry->size_bytes) {
		sge.length = (uint32_t)entry->size_bytes;
	}
	req->size_bytes = (int)sge.length;
	sge.lkey = mh ? ((struct ibv_mr *)mh)->lkey : 0;
	if (post_message(c, req, &sge, entry)) {
		return NCCL_RESULT_SYSTEM;
	}
	c->head++;
	*request = req;
	return NCCL_RESULT_SUCCESS;
}

/* One in SR_SLOTS is signalled, which frees the send queue; its wr_id is no request. */
static int post_cts(struct sr_comm *c, struct sr_cts *entry)
{
	uint32_t slot = (uint32_t)(c->head % SR_SLOTS);
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)entry,
			      .length = sizeof(*entry),
			      .lkey = c->ring_mr->lkey};
	struct ibv_send_wr wr;
	struct ibv_send_wr *bad;

	memset(&wr, 0, sizeof(wr));
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.wr.rdma.remote_addr = c->peer_addr + slot * sizeof(*entry);
	wr.wr.rdma.rkey = c->peer_rkey;
	wr.send_flags = (c->inline_max_bytes >= sizeof(*entry) ? IBV_SEND_INLINE : 0u) |
			(slot == 0 ? IBV_SEND_SIGNALED : 0u);
	return ib_verbs_post_send(c->qp, &wr, &bad);
}

static enum nccl_result irecv(void *recv_comm, int n, void **data, int *sizes, int *tags,
			      void **mhs, void **request)
{
	struct sr_comm *c = recv_comm;
	struct sr_cts *entry = &c->ring[c->head % SR_SLOTS];
	struct ibv_recv_wr wr = {0};
	struct ibv_recv_wr *bad;
	struct sr_request *req;

	(void)tags;
	*request = NULL;
	if (n != 1) {
		return NCCL_RESULT_INTERNAL;
	}
	req = take_request(c, SR_RECV);
	if (!req) {
		return NCCL_RESULT_SUCCESS;
	}
	wr.wr_id = (uint64_t)(uintptr_t)req;
	if (ib_verbs_post_recv(c->qp, &wr, &bad)) {
		return NCCL_RESULT_SYSTEM;
	}
	entry->addr = (uint64_t)(uintptr_t)data[0];
	entry->size_bytes = (uint64_t)sizes[0];
	entry->rkey = mhs[0] ? ((struct ibv_mr *)mhs[0])->rkey : 0;
	entry->idx = c->head + 1;
	if (post_cts(c, entry)) {
		return NCCL_RESULT_SYSTEM;
	}
	c->head++;
	*request = req;
	return NCCL_RESULT_SUCCESS;
}

static enum nccl_result iflush(void *recv_comm, int n, void **data, int *sizes, void **mhs,
			       void **request)
{
	(void)recv_comm;
	(void)n;
	(void)data;
	(void)sizes;
	(void)mhs;
	*request = NULL; /* host memory: nothing to flush */
	return NCCL_RESULT_SUCCESS;
}

static enum nccl_result take(const struct ibv_wc *wc)
{
	struct sr_request *req = (struct sr_request *)(uintptr_t)wc->wr_id;

	if (wc->status != IBV_WC_SUCCESS) {
		fprintf(stderr, "single_rail: completion with status %d\n", (int)wc->status);
		return NCCL_RESULT_REMOTE;
	}
	if (req) {
		if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
			req->size_bytes = (int)ntohl(wc->imm_data);
		}
		req->is_done = 1;
	}
	return NCCL_RESULT_SUCCESS;
}

static enum nccl_result test(void *request, int *done, int *sizes)
{
	struct sr_request *req = request;
	struct ibv_wc wcs[SR_POLL_BATCH];

	*done = 0;
	for (;;) {
		if (req->is_done) {
			req->kind = SR_FREE;
			*done = 1;
			if (sizes) {
				sizes[0] = req->size_bytes;
			}
			return NCCL_RESULT_SUCCESS;
		}
		int count = ib_verbs_poll_cq(req->comm->cq, SR_POLL_BATCH, wcs);

		if (count <= 0) {
			return count ? NCCL_RESULT_SYSTEM : NCCL_RESULT_SUCCESS;
		}
		for (int i = 0; i < count; i++) {
			enum nccl_result result = take(&wcs[i]);

			if (result != NCCL_RESULT_SUCCESS) {
				return result;
			}
		}
	}
}

__attribute__((visibility("default"))) const struct nccl_net_v8 ncclNetPlugin_v8 = {
	.name = "single_rail",
	.init = sr_init,
	.devices = sr_devices,
	.properties = sr_properties,
	.listen = sr_listen,
	.connect = sr_connect,
	.accept = sr_accept,
	.reg_mr = reg_mr,
	.dereg_mr = dereg_mr,
	.isend = isend,
	.irecv = irecv,
	.iflush = iflush,
	.test = test,
	.close_send = sr_close,
	.close_recv = sr_close,
	.close_listen = sr_close_listen,
};
