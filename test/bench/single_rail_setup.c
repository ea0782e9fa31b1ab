/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/verbs.h"
#include "test/bench/single_rail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Devices, and connections over loopback TCP. Nothing waits: NCCL calls again. */

static struct sr_device devices[SR_DEVICES_MAX];
static int device_count;

struct listener {
	struct sr_device *dev;
	struct sr_comm *comm; /* accepted, its handshake under way */
	int fd;
};

struct handle {
	struct sockaddr_in addr;
	struct sr_comm *comm; /* connect's, between calls */
};
static_assert(sizeof(struct handle) <= NCCL_NET_HANDLE_BYTES, "fits NCCL's handle");

/* InfiniBand: any GID. RoCE: the last, which is a RoCE v2 one where there are several. */
static int device_open(struct ibv_device *device, struct sr_device *out)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	uint32_t speed_mbps;
	int type;

	memset(out, 0, sizeof(*out));
	snprintf(out->name, sizeof(out->name), "%s", ib_verbs_device_name(device));
	if (ib_verbs_open_device(device, &out->ctx)) {
		return -EIO;
	}
	if (ib_verbs_query_device(out->ctx, &attr) ||
	    ib_verbs_query_port(out->ctx, 1, &port, &speed_mbps) || port.state != IBV_PORT_ACTIVE ||
	    ib_verbs_alloc_pd(out->ctx, &out->pd)) {
		ib_verbs_close_device(out->ctx);
		return -EIO;
	}
	out->guid = attr.sys_image_guid;
	out->lid = port.lid;
	out->mtu = (int)port.active_mtu;
	out->is_ib = port.link_layer == IBV_LINK_LAYER_INFINIBAND;
	out->speed_mbps = (int)speed_mbps;
	out->gid_idx = out->is_ib ? 0 : port.gid_tbl_len - 1;
	return ib_verbs_query_gid(out->ctx, 1, out->gid_idx, &out->gid, &type);
}

enum nccl_result sr_init(nccl_logger_fn logger)
{
	struct ibv_device **list;
	int count;

	(void)logger;
	if (device_count) {
		return NCCL_RESULT_SUCCESS;
	}
	if (ib_verbs_load() || ib_verbs_get_devices(&list, &count)) {
		return NCCL_RESULT_SYSTEM;
	}
	for (int i = 0; i < count && device_count < SR_DEVICES_MAX; i++) {
		device_count += device_open(list[i], &devices[device_count]) == 0;
	}
	ib_verbs_free_devices(list);
	return device_count ? NCCL_RESULT_SUCCESS : NCCL_RESULT_SYSTEM;
}

enum nccl_result sr_devices(int *count)
{
	*count = device_count;
	return NCCL_RESULT_SUCCESS;
}

enum nccl_result sr_properties(int dev, struct nccl_net_props_v8 *props)
{
	memset(props, 0, sizeof(*props));
	props->name = devices[dev].name;
	props->guid = devices[dev].guid;
	props->ptr_support = NCCL_PTR_HOST;
	props->speed_mbps = devices[dev].speed_mbps;
	props->port = 1;
	props->max_comms = 1 << 16;
	props->max_recvs = 1;
	return NCCL_RESULT_SUCCESS;
}

enum nccl_result sr_listen(int dev, void *handle, void **listen_comm)
{
	struct listener *listener = calloc(1, sizeof(*listener));
	struct handle *out = handle;
	socklen_t len = sizeof(out->addr);

	if (!listener) {
		return NCCL_RESULT_SYSTEM;
	}
	memset(out, 0, sizeof(*out));
	out->addr.sin_family = AF_INET;
	out->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener->dev = &devices[dev];
	listener->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0 || bind(listener->fd, (struct sockaddr *)&out->addr, len) ||
	    listen(listener->fd, 1) ||
	    getsockname(listener->fd, (struct sockaddr *)&out->addr, &len)) {
		return sr_close_listen(listener), NCCL_RESULT_SYSTEM;
	}
	*listen_comm = listener;
	return NCCL_RESULT_SUCCESS;
}

static int qp_create(struct sr_comm *c)
{
	struct ibv_qp_init_attr init = {
		.send_cq = c->cq,
		.recv_cq = c->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = SR_SEND_WRS,
			.max_recv_wr = SR_SLOTS,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = c->is_sender ? 0 : sizeof(struct sr_cts)},
	};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	if (ib_verbs_create_qp(c->dev->pd, &init, &c->qp)) {
		return -EIO;
	}
	c->inline_max_bytes = init.cap.max_inline_data;
	return ib_verbs_modify_qp(
		c->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int qp_connect(struct sr_comm *c, const struct sr_hello *peer)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = peer->mtu < c->dev->mtu ? (enum ibv_mtu)peer->mtu
						    : (enum ibv_mtu)c->dev->mtu,
		.dest_qp_num = peer->qpn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = !c->dev->is_ib, .dlid = peer->lid, .port_num = 1},
	};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
				  .timeout = 20,
				  .retry_cnt = 7,
				  .rnr_retry = 7,
				  .max_rd_atomic = 1};

	rtr.ah_attr.grh.dgid = peer->gid;
	rtr.ah_attr.grh.sgid_index = (uint8_t)c->dev->gid_idx;
	rtr.ah_attr.grh.hop_limit = 255;
	if (ib_verbs_modify_qp(c->qp, &rtr,
			       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				       IBV_QP_MIN_RNR_TIMER)) {
		return -EIO;
	}
	return ib_verbs_modify_qp(c->qp, &rts,
				  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					  IBV_QP_MAX_QP_RD_ATOMIC);
}

static int comm_create(struct sr_device *dev, int fd, int is_sender, struct sr_comm **out)
{
	struct sr_comm *c = aligned_alloc(64, (sizeof(*c) + 63) / 64 * 64);
	struct sr_hello hello = {.lid = dev->lid, .mtu = (uint16_t)dev->mtu, .gid = dev->gid};

	if (!c) {
		close(fd);
		return -ENOMEM;
	}
	memset(c, 0, sizeof(*c));
	c->dev = dev;
	c->fd = fd;
	c->is_sender = is_sender;
	if (ib_verbs_create_cq(dev->ctx, SR_SEND_WRS + SR_SLOTS, &c->cq) || qp_create(c) ||
	    ib_verbs_reg_mr(dev->pd, c->ring, sizeof(c->ring),
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &c->ring_mr)) {
		goto close;
	}
	hello.qpn = c->qp->qp_num;
	hello.addr = (uint64_t)(uintptr_t)c->ring;
	hello.rkey = c->ring_mr->rkey;
	if (send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
		goto close;
	}
	*out = c;
	return 0;
close:
	sr_close(c);
	return -EIO;
}

/* -EAGAIN: the peer is not that far. Messages are small and arrive whole on loopback. */
static int take_word(int fd, void *buf, size_t len_bytes)
{
	ssize_t got = recv(fd, buf, len_bytes, MSG_DONTWAIT | MSG_PEEK);

	if (got == (ssize_t)len_bytes) {
		return recv(fd, buf, len_bytes, 0) == got ? 0 : -EIO;
	}
	return got > 0 || (got < 0 && errno == EAGAIN) ? -EAGAIN : -EIO;
}

/* Both ends are ready to receive before either posts: each says so once its QP is. */
static int step(struct sr_comm *c)
{
	struct sr_hello peer;
	char ready = 1;
	int err;

	if (c->state == SR_HELLO) {
		err = take_word(c->fd, &peer, sizeof(peer));
		if (err) {
			return err;
		}
		c->peer_addr = peer.addr;
		c->peer_rkey = peer.rkey;
		if (qp_connect(c, &peer) || send(c->fd, &ready, 1, MSG_NOSIGNAL) != 1) {
			return -EIO;
		}
		c->state = SR_READY;
	}
	err = take_word(c->fd, &ready, 1);
	if (!err) {
		c->state = SR_UP;
	}
	return err;
}

enum nccl_result sr_connect(int dev, void *handle, void **send_comm,
			    struct nccl_net_device_handle **dev_handle)
{
	struct handle *h = handle;
	int err;

	(void)dev_handle;
	*send_comm = NULL;
	if (!h->comm) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0 || connect(fd, (struct sockaddr *)&h->addr, sizeof(h->addr)) ||
		    comm_create(&devices[dev], fd, 1, &h->comm)) {
			return NCCL_RESULT_SYSTEM;
		}
	}
	err = step(h->comm);
	if (!err) {
		*send_comm = h->comm;
	}
	return err && err != -EAGAIN ? NCCL_RESULT_REMOTE : NCCL_RESULT_SUCCESS;
}

enum nccl_result sr_accept(void *listen_comm, void **recv_comm,
			   struct nccl_net_device_handle **dev_handle)
{
	struct listener *listener = listen_comm;
	int err;

	(void)dev_handle;
	*recv_comm = NULL;
	if (!listener->comm) {
		int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0) {
			return errno == EAGAIN ? NCCL_RESULT_SUCCESS : NCCL_RESULT_SYSTEM;
		}
		if (comm_create(listener->dev, fd, 0, &listener->comm)) {
			return NCCL_RESULT_SYSTEM;
		}
	}
	err = step(listener->comm);
	if (!err) {
		*recv_comm = listener->comm;
		listener->comm = NULL;
	}
	return err && err != -EAGAIN ? NCCL_RESULT_REMOTE : NCCL_RESULT_SUCCESS;
}

enum nccl_result sr_close(void *comm)
{
	struct sr_comm *c = comm;

	if (!c) {
		return NCCL_RESULT_SUCCESS;
	}
	if (c->qp) {
		ib_verbs_destroy_qp(c->qp);
	}
	if (c->cq) {
		ib_verbs_destroy_cq(c->cq);
	}
	if (c->ring_mr) {
		ib_verbs_dereg_mr(c->ring_mr);
	}
	close(c->fd);
	free(c);
	return NCCL_RESULT_SUCCESS;
}

enum nccl_result sr_close_listen(void *comm)
{
	struct listener *listener = comm;

	if (listener) {
		sr_close(listener->comm);
		if (listener->fd >= 0) {
			close(listener->fd);
		}
		free(listener);
	}
	return NCCL_RESULT_SUCCESS;
}
