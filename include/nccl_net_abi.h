/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_INCLUDE_NCCL_NET_ABI_H
#define BRAID_INCLUDE_NCCL_NET_ABI_H

/*
 * Sizes and offsets of NCCL's net ABI on LP64. Included by nccl_net.h only. A failure here means
 * that NCCL would read another field than the one written.
 */

#include <assert.h>

#define NCCL_ABI_SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), #type " size")
#define NCCL_ABI_AT(type, field, bytes)                                                            \
	static_assert(offsetof(struct type, field) == (bytes), #type "." #field " offset")

NCCL_ABI_SIZE(nccl_net_device_handle, 32);
NCCL_ABI_AT(nccl_net_device_handle, handle, 8);
NCCL_ABI_AT(nccl_net_device_handle, size, 16);
NCCL_ABI_AT(nccl_net_device_handle, needs_proxy_progress, 24);
NCCL_ABI_SIZE(nccl_net_config, 4);
NCCL_ABI_SIZE(nccl_net_attr, 44);
NCCL_ABI_AT(nccl_net_attr, recv, 16);
NCCL_ABI_AT(nccl_net_attr, op, 32);
NCCL_ABI_SIZE(nccl_net_vprops_v9, 20);
NCCL_ABI_SIZE(nccl_net_vprops_v12, 36);
static_assert(sizeof(enum nccl_result) == 4 && sizeof(enum nccl_net_device_type) == 4,
	      "enums are ints");

/* name, pci_path, guid and ptr_support open every version alike. */
#define NCCL_ABI_PROPS_HEAD(type)                                                                  \
	NCCL_ABI_AT(type, name, 0);                                                                \
	NCCL_ABI_AT(type, pci_path, 8);                                                            \
	NCCL_ABI_AT(type, guid, 16);                                                               \
	NCCL_ABI_AT(type, ptr_support, 24)

/* speed to max_recvs stay together in every version. */
#define NCCL_ABI_PROPS_LINK(type, bytes)                                                           \
	NCCL_ABI_AT(type, speed_mbps, (bytes));                                                    \
	NCCL_ABI_AT(type, port, (bytes) + 4);                                                      \
	NCCL_ABI_AT(type, latency_us, (bytes) + 8);                                                \
	NCCL_ABI_AT(type, max_comms, (bytes) + 12);                                                \
	NCCL_ABI_AT(type, max_recvs, (bytes) + 16)

NCCL_ABI_SIZE(nccl_net_props_v6, 48);
NCCL_ABI_PROPS_HEAD(nccl_net_props_v6);
NCCL_ABI_PROPS_LINK(nccl_net_props_v6, 28);

NCCL_ABI_SIZE(nccl_net_props_v7, 56);
NCCL_ABI_PROPS_HEAD(nccl_net_props_v7);
NCCL_ABI_PROPS_LINK(nccl_net_props_v7, 28);
NCCL_ABI_AT(nccl_net_props_v7, device_type, 48);
NCCL_ABI_AT(nccl_net_props_v7, device_version, 52);

NCCL_ABI_SIZE(nccl_net_props_v8, 64);
NCCL_ABI_PROPS_HEAD(nccl_net_props_v8);
NCCL_ABI_AT(nccl_net_props_v8, reg_is_global, 28);
NCCL_ABI_PROPS_LINK(nccl_net_props_v8, 32);
NCCL_ABI_AT(nccl_net_props_v8, device_type, 52);
NCCL_ABI_AT(nccl_net_props_v8, device_version, 56);

#define NCCL_ABI_PROPS_V9_ON(type)                                                                 \
	NCCL_ABI_PROPS_HEAD(type);                                                                 \
	NCCL_ABI_AT(type, reg_is_global, 28);                                                      \
	NCCL_ABI_AT(type, force_flush, 32);                                                        \
	NCCL_ABI_PROPS_LINK(type, 36);                                                             \
	NCCL_ABI_AT(type, device_type, 56);                                                        \
	NCCL_ABI_AT(type, device_version, 60);                                                     \
	NCCL_ABI_AT(type, vprops, 64)

NCCL_ABI_SIZE(nccl_net_props_v9, 104);
NCCL_ABI_PROPS_V9_ON(nccl_net_props_v9);
NCCL_ABI_AT(nccl_net_props_v9, max_p2p_bytes, 88);
NCCL_ABI_AT(nccl_net_props_v9, max_coll_bytes, 96);

NCCL_ABI_SIZE(nccl_net_props_v11, 112);
NCCL_ABI_PROPS_V9_ON(nccl_net_props_v11);
NCCL_ABI_AT(nccl_net_props_v11, max_p2p_bytes, 88);
NCCL_ABI_AT(nccl_net_props_v11, max_coll_bytes, 96);
NCCL_ABI_AT(nccl_net_props_v11, max_multi_request, 104);

NCCL_ABI_SIZE(nccl_net_props_v12, 128);
NCCL_ABI_PROPS_V9_ON(nccl_net_props_v12);
NCCL_ABI_AT(nccl_net_props_v12, max_p2p_bytes, 104);
NCCL_ABI_AT(nccl_net_props_v12, max_coll_bytes, 112);
NCCL_ABI_AT(nccl_net_props_v12, max_multi_request, 120);
NCCL_ABI_AT(nccl_net_props_v12, rail_id, 124);
NCCL_ABI_AT(nccl_net_props_v12, plane_id, 126);

/* The table starts with the name; function k (from 1) sits at 8 * k. */
#define NCCL_ABI_FN(type, field, k) NCCL_ABI_AT(type, field, 8 * (k))

#define NCCL_ABI_TABLE(type)                                                                       \
	NCCL_ABI_AT(type, name, 0);                                                                \
	NCCL_ABI_FN(type, init, 1);                                                                \
	NCCL_ABI_FN(type, devices, 2);                                                             \
	NCCL_ABI_FN(type, properties, 3);                                                          \
	NCCL_ABI_FN(type, listen, 4);                                                              \
	NCCL_ABI_FN(type, connect, 5);                                                             \
	NCCL_ABI_FN(type, accept, 6);                                                              \
	NCCL_ABI_FN(type, reg_mr, 7);                                                              \
	NCCL_ABI_FN(type, reg_mr_dmabuf, 8);                                                       \
	NCCL_ABI_FN(type, dereg_mr, 9);                                                            \
	NCCL_ABI_FN(type, isend, 10);                                                              \
	NCCL_ABI_FN(type, irecv, 11);                                                              \
	NCCL_ABI_FN(type, iflush, 12);                                                             \
	NCCL_ABI_FN(type, test, 13);                                                               \
	NCCL_ABI_FN(type, close_send, 14);                                                         \
	NCCL_ABI_FN(type, close_recv, 15);                                                         \
	NCCL_ABI_FN(type, close_listen, 16)

#define NCCL_ABI_TABLE_V7_ON(type)                                                                 \
	NCCL_ABI_TABLE(type);                                                                      \
	NCCL_ABI_FN(type, device_mr, 17);                                                          \
	NCCL_ABI_FN(type, irecv_consumed, 18)

NCCL_ABI_SIZE(nccl_net_v6, 136);
NCCL_ABI_TABLE(nccl_net_v6);
NCCL_ABI_SIZE(nccl_net_v7, 152);
NCCL_ABI_TABLE_V7_ON(nccl_net_v7);
NCCL_ABI_SIZE(nccl_net_v8, 152);
NCCL_ABI_TABLE_V7_ON(nccl_net_v8);
NCCL_ABI_SIZE(nccl_net_v9, 160);
NCCL_ABI_TABLE_V7_ON(nccl_net_v9);
NCCL_ABI_FN(nccl_net_v9, make_vdev, 19);
NCCL_ABI_SIZE(nccl_net_v10, 160);
NCCL_ABI_TABLE_V7_ON(nccl_net_v10);
NCCL_ABI_FN(nccl_net_v10, make_vdev, 19);
NCCL_ABI_SIZE(nccl_net_v11, 176);
NCCL_ABI_TABLE_V7_ON(nccl_net_v11);
NCCL_ABI_FN(nccl_net_v11, make_vdev, 19);
NCCL_ABI_FN(nccl_net_v11, finalize, 20);
NCCL_ABI_FN(nccl_net_v11, set_attr, 21);
NCCL_ABI_SIZE(nccl_net_v12, 176);
NCCL_ABI_TABLE_V7_ON(nccl_net_v12);
NCCL_ABI_FN(nccl_net_v12, make_vdev, 19);
NCCL_ABI_FN(nccl_net_v12, finalize, 20);
NCCL_ABI_FN(nccl_net_v12, set_attr, 21);

#endif
