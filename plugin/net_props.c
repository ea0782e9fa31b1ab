/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/core.h"
#include "plugin/net_adapt.h"
#include "plugin/result.h"

/* What every version has, by the same field names. NCCL reads the strings only. */
#define PROPS_COPY(to, from)                                                                       \
	do {                                                                                       \
		(to)->name = (char *)(uintptr_t)(from)->name;                                      \
		(to)->pci_path = (char *)(uintptr_t)(from)->pci_path;                              \
		(to)->guid = (from)->guid;                                                         \
		(to)->ptr_support = (from)->ptr_support;                                           \
		(to)->speed_mbps = (from)->speed_mbps;                                             \
		(to)->port = (from)->port;                                                         \
		(to)->latency_us = (from)->latency_us;                                             \
		(to)->max_comms = (from)->max_comms;                                               \
		(to)->max_recvs = NET_RECVS_MAX_COUNT;                                             \
	} while (0)

/* From v7 on. A host device: NCCL's proxy drives it, there is nothing for GPU code to call. */
#define PROPS_COPY_DEVICE(to)                                                                      \
	do {                                                                                       \
		(to)->device_type = NCCL_NET_DEVICE_HOST;                                          \
		(to)->device_version = NCCL_NET_DEVICE_VERSION_NONE;                               \
	} while (0)

/* From v9 on. The device stands for itself alone. */
#define PROPS_COPY_V9(to, from, dev)                                                               \
	do {                                                                                       \
		PROPS_COPY(to, from);                                                              \
		PROPS_COPY_DEVICE(to);                                                             \
		(to)->reg_is_global = (from)->reg_is_global;                                       \
		(to)->force_flush = (from)->force_flush;                                           \
		(to)->vprops.dev_count = 1;                                                        \
		(to)->vprops.devs[0] = (dev);                                                      \
		(to)->max_p2p_bytes = (from)->max_p2p_bytes;                                       \
		(to)->max_coll_bytes = (from)->max_coll_bytes;                                     \
	} while (0)

enum nccl_result net_props_v6(int dev, struct nccl_net_props_v6 *props)
{
	struct plugin_props from;
	int rc = plugin_device_props(dev, &from);

	if (rc == 0) {
		PROPS_COPY(props, &from);
	}
	return result_from_errno(rc);
}

enum nccl_result net_props_v7(int dev, struct nccl_net_props_v7 *props)
{
	struct plugin_props from;
	int rc = plugin_device_props(dev, &from);

	if (rc == 0) {
		PROPS_COPY(props, &from);
		PROPS_COPY_DEVICE(props);
	}
	return result_from_errno(rc);
}

enum nccl_result net_props_v8(int dev, struct nccl_net_props_v8 *props)
{
	struct plugin_props from;
	int rc = plugin_device_props(dev, &from);

	if (rc == 0) {
		PROPS_COPY(props, &from);
		PROPS_COPY_DEVICE(props);
		props->reg_is_global = from.reg_is_global;
	}
	return result_from_errno(rc);
}

enum nccl_result net_props_v9(int dev, struct nccl_net_props_v9 *props)
{
	struct plugin_props from;
	int rc = plugin_device_props(dev, &from);

	if (rc == 0) {
		PROPS_COPY_V9(props, &from, dev);
	}
	return result_from_errno(rc);
}

enum nccl_result net_props_v11(int dev, struct nccl_net_props_v11 *props)
{
	struct plugin_props from;
	int rc = plugin_device_props(dev, &from);

	if (rc == 0) {
		PROPS_COPY_V9(props, &from, dev);
		props->max_multi_request = from.max_multi_request;
	}
	return result_from_errno(rc);
}

enum nccl_result net_props_v12(int dev, struct nccl_net_props_v12 *props)
{
	struct plugin_props from;
	int rc = plugin_device_props(dev, &from);

	if (rc == 0) {
		PROPS_COPY_V9(props, &from, dev);
		props->max_multi_request = from.max_multi_request;
		props->rail_id = from.rail_id;
		props->plane_id = from.plane_id;
	}
	return result_from_errno(rc);
}
