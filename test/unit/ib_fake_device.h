/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_IB_FAKE_DEVICE_H
#define BRAID_TEST_IB_FAKE_DEVICE_H

/* Fakes of ib_fake.h: devices, ports, events, posting and polling. */

#include "ib_fake_state.h"

static inline struct ibv_device **fake_get_device_list(int *count)
{
	if (fake_fails("get_device_list")) {
		return NULL;
	}
	for (unsigned int i = 0; i < fake.device_count; i++) {
		unsigned int at = fake.device_first + i;

		fake_handles[at].transport_type =
			(enum ibv_transport_type)fake.devices[at].transport;
		fake_list[i] = &fake_handles[at];
	}
	fake_list[fake.device_count] = NULL;
	*count = (int)fake.device_count;
	fake.live_count++;
	return fake_list;
}

static inline void fake_free_device_list(struct ibv_device **list)
{
	(void)list;
	fake.live_count--;
}

static inline const char *fake_get_device_name(struct ibv_device *device)
{
	return fake.devices[device - fake_handles].name;
}

static inline __be64 fake_get_device_guid(struct ibv_device *device)
{
	return fake.devices[device - fake_handles].node_guid;
}

static inline int fake_poll(struct ibv_cq *cq, int max, struct ibv_wc *wcs)
{
	int count = 0;

	(void)cq;
	while (count < max && fake.wc_next < fake.wc_count) {
		wcs[count++] = fake.wcs[fake.wc_next++];
	}
	return count == 0 && fake.poll_error != 0 ? fake.poll_error : count;
}

static inline bool fake_queue_full(void)
{
	return fake.post_limit != 0 && fake.post_taken++ >= fake.post_limit;
}

static inline int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
				 struct ibv_send_wr **bad)
{
	(void)qp;
	fake.sent_count = 0;
	for (; wr != NULL; wr = wr->next) {
		if (fake_queue_full()) {
			*bad = wr;
			return ENOMEM;
		}
		fake.sent_len[fake.sent_count] = wr->num_sge > 0 ? wr->sg_list[0].length : 0;
		fake.sent[fake.sent_count++] = *wr;
	}
	return 0;
}

static inline int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
				 struct ibv_recv_wr **bad)
{
	(void)qp;
	for (; wr != NULL; wr = wr->next) {
		if (fake_queue_full()) {
			*bad = wr;
			return ENOMEM;
		}
		fake.recv_count++;
	}
	return 0;
}

static inline struct ibv_context *fake_open_device(struct ibv_device *device)
{
	struct fake_context *ctx;

	if (fake_fails("open_device")) {
		return NULL;
	}
	ctx = calloc(1, sizeof(*ctx));
	ctx->device = &fake.devices[device - fake_handles];
	ctx->ctx.device = device;
	ctx->ctx.async_fd = eventfd(0, 0);
	ctx->ctx.ops.poll_cq = fake_poll;
	ctx->ctx.ops.post_send = fake_post_send;
	ctx->ctx.ops.post_recv = fake_post_recv;
	fake.live_count++;
	return &ctx->ctx;
}

static inline int fake_close_device(struct ibv_context *ctx)
{
	(void)close(ctx->async_fd);
	free(ctx);
	fake.live_count--;
	return 0;
}

static inline int fake_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
	(void)ctx;
	if (fake_fails("get_async_event")) {
		return -1;
	}
	if (!fake.has_event) {
		errno = EAGAIN;
		return -1;
	}
	*event = fake.event;
	fake.has_event = false;
	fake.events_out++;
	return 0;
}

static inline void fake_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
	fake.events_out--;
}

static inline const char *fake_event_type_str(enum ibv_event_type type)
{
	return type == IBV_EVENT_PORT_ERR ? "port error" : "some event";
}

static inline int fake_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	if (fake_fails("query_device")) {
		return fake.fail_errno;
	}
	attr->sys_image_guid = fake_device(ctx)->guid;
	attr->node_guid = fake_device(ctx)->node_guid;
	attr->phys_port_cnt = fake_device(ctx)->port_count;
	attr->max_qp = 100;
	attr->max_qp_wr = 1024;
	attr->max_cqe = 1500;
	return 0;
}

static inline int fake_query_port(struct ibv_context *ctx, uint8_t port, void *out)
{
	struct ibv_port_attr *attr = out;

	if (fake_fails("query_port")) {
		return fake.fail_errno;
	}
	attr->state = (enum ibv_port_state)fake_device(ctx)->state;
	attr->active_mtu = fake.no_link ? 0 : IBV_MTU_4096;
	attr->link_layer = fake_device(ctx)->link_layer;
	attr->lid = fake.no_link ? 0 : (uint16_t)(10 + port);
	attr->gid_tbl_len = fake_device(ctx)->gid_count;
	attr->pkey_tbl_len = 1;
	attr->active_speed = 64;                   /* 50 Gb/s a lane */
	attr->active_width = fake.no_link ? 1 : 2; /* 1 lane or 4 */
	return 0;
}

static inline int fake_query_gid(struct ibv_context *ctx, uint8_t port, int idx, union ibv_gid *gid)
{
	(void)port;
	if (fake_fails("query_gid")) {
		return -1;
	}
	if (idx < 0 || idx >= fake_device(ctx)->gid_count) {
		errno = EINVAL;
		return -1;
	}
	*gid = fake_device(ctx)->gids[idx];
	return 0;
}

static inline int fake_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t idx,
				    struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	(void)port;
	(void)flags;
	(void)size;
	if (fake_fails("query_gid_ex")) {
		return fake.fail_errno;
	}
	if (idx >= (uint32_t)fake_device(ctx)->gid_count) {
		return EINVAL;
	}
	entry->gid = fake_device(ctx)->gids[idx];
	entry->gid_type = (uint32_t)fake_device(ctx)->gid_types[idx];
	return 0;
}

#endif
