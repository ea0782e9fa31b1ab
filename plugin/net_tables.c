/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/net_tables.h"

#include "plugin/net_adapt.h"

/* Valid before init: NCCL compares it with NCCL_NET first. Must not be "IB". */
#define NET_NAME "Braid"

/*
 * Entries left NULL on purpose: device_mr and irecv_consumed (host device), make_vdev (each device
 * braids over all rails already, so NCCL has nothing to merge), set_attr (hints, not used).
 */

const struct nccl_net_v6 ncclNetPlugin_v6 = {
	.name = NET_NAME,
	.init = net_init_v6,
	.devices = net_devices,
	.properties = net_props_v6,
	.listen = net_listen_v6,
	.connect = net_connect_v6,
	.accept = net_accept_v6,
	.reg_mr = net_reg_mr_v6,
	.reg_mr_dmabuf = net_reg_mr_dmabuf,
	.dereg_mr = net_dereg_mr,
	.isend = net_isend_v6,
	.irecv = net_irecv_v6,
	.iflush = net_iflush,
	.test = net_test,
	.close_send = net_close_send,
	.close_recv = net_close_recv,
	.close_listen = net_close_listen,
};

const struct nccl_net_v7 ncclNetPlugin_v7 = {
	.name = NET_NAME,
	.init = net_init_v6,
	.devices = net_devices,
	.properties = net_props_v7,
	.listen = net_listen_v6,
	.connect = net_connect_v7,
	.accept = net_accept_v7,
	.reg_mr = net_reg_mr_v6,
	.reg_mr_dmabuf = net_reg_mr_dmabuf,
	.dereg_mr = net_dereg_mr,
	.isend = net_isend_v6,
	.irecv = net_irecv_v6,
	.iflush = net_iflush,
	.test = net_test,
	.close_send = net_close_send,
	.close_recv = net_close_recv,
	.close_listen = net_close_listen,
};

const struct nccl_net_v8 ncclNetPlugin_v8 = {
	.name = NET_NAME,
	.init = net_init_v6,
	.devices = net_devices,
	.properties = net_props_v8,
	.listen = net_listen_v6,
	.connect = net_connect_v7,
	.accept = net_accept_v7,
	.reg_mr = net_reg_mr_v8,
	.reg_mr_dmabuf = net_reg_mr_dmabuf,
	.dereg_mr = net_dereg_mr,
	.isend = net_isend_v6,
	.irecv = net_irecv_v6,
	.iflush = net_iflush,
	.test = net_test,
	.close_send = net_close_send,
	.close_recv = net_close_recv,
	.close_listen = net_close_listen,
};

const struct nccl_net_v9 ncclNetPlugin_v9 = {
	.name = NET_NAME,
	.init = net_init_v6,
	.devices = net_devices,
	.properties = net_props_v9,
	.listen = net_listen_v6,
	.connect = net_connect_v7,
	.accept = net_accept_v7,
	.reg_mr = net_reg_mr_v8,
	.reg_mr_dmabuf = net_reg_mr_dmabuf,
	.dereg_mr = net_dereg_mr,
	.isend = net_isend_v9,
	.irecv = net_irecv_v9,
	.iflush = net_iflush,
	.test = net_test,
	.close_send = net_close_send,
	.close_recv = net_close_recv,
	.close_listen = net_close_listen,
};

const struct nccl_net_v10 ncclNetPlugin_v10 = {
	.name = NET_NAME,
	.init = net_init_v10,
	.devices = net_devices,
	.properties = net_props_v9,
	.listen = net_listen_v6,
	.connect = net_connect_v10,
	.accept = net_accept_v7,
	.reg_mr = net_reg_mr_v8,
	.reg_mr_dmabuf = net_reg_mr_dmabuf,
	.dereg_mr = net_dereg_mr,
	.isend = net_isend_v10,
	.irecv = net_irecv_v10,
	.iflush = net_iflush,
	.test = net_test,
	.close_send = net_close_send,
	.close_recv = net_close_recv,
	.close_listen = net_close_listen,
};

const struct nccl_net_v11 ncclNetPlugin_v11 = {
	.name = NET_NAME,
	.init = net_init_v11,
	.devices = net_devices,
	.properties = net_props_v11,
	.listen = net_listen_v11,
	.connect = net_connect_v11,
	.accept = net_accept_v7,
	.reg_mr = net_reg_mr_v8,
	.reg_mr_dmabuf = net_reg_mr_dmabuf,
	.dereg_mr = net_dereg_mr,
	.isend = net_isend_v10,
	.irecv = net_irecv_v10,
	.iflush = net_iflush,
	.test = net_test,
	.close_send = net_close_send,
	.close_recv = net_close_recv,
	.close_listen = net_close_listen,
	.finalize = net_finalize,
};

const struct nccl_net_v12 ncclNetPlugin_v12 = {
	.name = NET_NAME,
	.init = net_init_v11,
	.devices = net_devices,
	.properties = net_props_v12,
	.listen = net_listen_v11,
	.connect = net_connect_v11,
	.accept = net_accept_v7,
	.reg_mr = net_reg_mr_v8,
	.reg_mr_dmabuf = net_reg_mr_dmabuf,
	.dereg_mr = net_dereg_mr,
	.isend = net_isend_v10,
	.irecv = net_irecv_v10,
	.iflush = net_iflush,
	.test = net_test,
	.close_send = net_close_send,
	.close_recv = net_close_recv,
	.close_listen = net_close_listen,
	.finalize = net_finalize,
};
