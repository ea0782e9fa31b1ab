/* SPDX-License-Identifier: Apache-2.0 */
#include "test/guest/compare/pair.h"

#include "include/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct ibv_context *device_open(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i]; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name)) {
			ctx = ibv_open_device(list[i]);
		}
	}
	if (list) {
		ibv_free_device_list(list);
	}
	return ctx;
}

/** The last used entry: on RoCE the one with the IPv4 address, on InfiniBand the only one. */
static int address_read(struct end *end)
{
	static const union ibv_gid none;
	struct ibv_port_attr attr;
	union ibv_gid gid;

	if (ibv_query_port(end->ctx, 1, &attr)) {
		return -EIO;
	}
	end->lid = attr.lid;
	end->mtu = attr.active_mtu;
	for (int i = 0; i < attr.gid_tbl_len && i < 16; i++) {
		if (!ibv_query_gid(end->ctx, 1, i, &gid) && memcmp(&gid, &none, sizeof(gid)) != 0) {
			end->gid = gid;
			end->gid_index = i;
		}
	}
	return 0;
}

int end_renew(struct end *end)
{
	struct ibv_qp_init_attr init = {.send_cq = end->cq,
					.recv_cq = end->cq,
					.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = PAIR_DEPTH,
						.max_recv_wr = PAIR_DEPTH,
						.max_send_sge = 1,
						.max_recv_sge = 1}};
	struct ibv_wc wc;

	if (end->qp) {
		ibv_destroy_qp(end->qp);
	}
	while (ibv_poll_cq(end->cq, 1, &wc) > 0) {
	}
	end->qp = ibv_create_qp(end->pd, &init);
	return end->qp ? 0 : -errno;
}

int end_open(struct end *end, const char *device)
{
	*end = (struct end){.ctx = device_open(device), .psn = 1000};
	if (!end->ctx) {
		return -ENODEV;
	}
	end->pd = ibv_alloc_pd(end->ctx);
	end->cq = ibv_create_cq(end->ctx, 4 * PAIR_DEPTH, NULL, NULL, 0);
	end->buf = calloc(1, PAIR_BYTES);
	if (!end->pd || !end->cq || !end->buf) {
		return -ENOMEM;
	}
	end->mr = ibv_reg_mr(end->pd, end->buf, PAIR_BYTES,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				     IBV_ACCESS_REMOTE_READ);
	if (!end->mr) {
		return -errno;
	}
	int err = address_read(end);

	return err ? err : end_renew(end);
}

void end_close(struct end *end)
{
	if (end->qp) {
		ibv_destroy_qp(end->qp);
	}
	if (end->mr) {
		ibv_dereg_mr(end->mr);
	}
	if (end->cq) {
		ibv_destroy_cq(end->cq);
	}
	if (end->pd) {
		ibv_dealloc_pd(end->pd);
	}
	if (end->ctx) {
		ibv_close_device(end->ctx);
	}
	free(end->buf);
}

int end_to(struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ibv_modify_qp(end->qp, &attr, IBV_QP_STATE);
}

int end_to_init(struct end *end)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags =
					   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

	return ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int end_to_rtr(struct end *end, const struct end *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = end->mtu,
				   .dest_qp_num = peer->qp->qp_num,
				   .rq_psn = peer->psn,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 12,
				   .ah_attr = {.dlid = peer->lid,
					       .port_num = 1,
					       .is_global = 1,
					       .grh = {.dgid = peer->gid,
						       .sgid_index = (uint8_t)end->gid_index,
						       .hop_limit = 64}}};

	return ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

int end_to_rts(struct end *end, const struct patience *patience)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
				   .timeout = patience->timeout,
				   .retry_cnt = patience->retry_cnt,
				   .rnr_retry = patience->rnr_retry,
				   .sq_psn = end->psn,
				   .max_rd_atomic = 1};

	return ibv_modify_qp(end->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int pair_connect(struct end *a, struct end *b, const struct patience *patience)
{
	int err = end_renew(a);

	err = err ? err : end_renew(b);
	err = err ? err : end_to_init(a);
	err = err ? err : end_to_init(b);
	err = err ? err : end_to_rtr(a, b);
	err = err ? err : end_to_rtr(b, a);
	err = err ? err : end_to_rts(a, patience);
	return err ? err : end_to_rts(b, patience);
}

int end_post_recv(struct end *end, uint64_t first, uint32_t count)
{
	struct ibv_recv_wr *bad;
	int err = 0;

	for (uint32_t i = 0; !err && i < count; i++) {
		struct ibv_recv_wr wr = {.wr_id = first + i};

		err = ibv_post_recv(end->qp, &wr, &bad);
	}
	return err;
}

static struct ibv_send_wr write_wr(const struct end *peer, struct ibv_sge *sge, uint64_t wr_id)
{
	return (struct ibv_send_wr){
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = sge->length ? 1 : 0,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htonl((uint32_t)wr_id),
		.wr.rdma = {.remote_addr = (uintptr_t)peer->buf, .rkey = peer->mr->rkey}};
}

int end_post_write(struct end *end, const struct end *peer, uint64_t wr_id, uint32_t bytes,
		   unsigned flags)
{
	struct ibv_sge sge = {.addr = (uintptr_t)end->buf, .length = bytes, .lkey = end->mr->lkey};
	struct ibv_send_wr wr = write_wr(peer, &sge, wr_id);
	struct ibv_send_wr *bad;

	wr.send_flags = flags;
	return ibv_post_send(end->qp, &wr, &bad);
}

int end_post_pair(struct end *end, const struct end *peer, uint64_t wr_id, uint32_t bytes)
{
	struct ibv_sge sges[2] = {
		{.addr = (uintptr_t)end->buf, .length = bytes, .lkey = end->mr->lkey},
		{.addr = (uintptr_t)end->buf, .length = 40, .lkey = end->mr->lkey}};
	struct ibv_send_wr wrs[2] = {write_wr(peer, &sges[0], wr_id),
				     write_wr(peer, &sges[1], wr_id)};
	struct ibv_send_wr *bad;

	wrs[0].opcode = IBV_WR_RDMA_WRITE;
	wrs[0].next = &wrs[1];
	wrs[1].send_flags = IBV_SEND_SIGNALED;
	return ibv_post_send(end->qp, wrs, &bad);
}

int end_post_read(struct end *end, const struct end *peer, uint64_t wr_id)
{
	struct ibv_sge sge = {.addr = (uintptr_t)end->buf, .length = 8, .lkey = end->mr->lkey};
	struct ibv_send_wr wr = write_wr(peer, &sge, wr_id);
	struct ibv_send_wr *bad;

	wr.opcode = IBV_WR_RDMA_READ;
	wr.send_flags = IBV_SEND_SIGNALED;
	return ibv_post_send(end->qp, &wr, &bad);
}

int end_poll(struct end *end, struct ibv_wc *wc, uint32_t wait_ms)
{
	static const struct timespec nap = {0, 100000};
	uint64_t deadline_ns = clock_mono_ns() + wait_ms * NS_PER_MS;
	int got;

	while ((got = ibv_poll_cq(end->cq, 1, wc)) == 0 && clock_mono_ns() < deadline_ns) {
		nanosleep(&nap, NULL);
	}
	return got;
}
