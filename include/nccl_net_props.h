/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_INCLUDE_NCCL_NET_PROPS_H
#define BRAID_INCLUDE_NCCL_NET_PROPS_H

/* Structures of NCCL's net ABI, properties one struct per layout. Included by nccl_net.h only. */

struct nccl_net_config {
	int traffic_class;
};

struct nccl_net_flow_attr {
	int32_t max_concurrent_peers;
	int32_t min_concurrent_peers;
	int32_t max_flows_per_peer;
	int32_t min_flows_per_peer;
};

struct nccl_net_attr {
	struct nccl_net_flow_attr send;
	struct nccl_net_flow_attr recv;
	uint32_t op;
	uint32_t algo;
	uint32_t proto;
};

/** Devices behind one NCCL device; {1, {dev}} for a plain one. */
struct nccl_net_vprops_v9 {
	int dev_count;
	int devs[NCCL_NET_DEVS_V9_COUNT];
};

struct nccl_net_vprops_v12 {
	int dev_count;
	int devs[NCCL_NET_DEVS_V12_COUNT];
};

/* Properties. Every string must live for ever. Speeds are in Mb/s, latency in microseconds. */

struct nccl_net_props_v6 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
};

struct nccl_net_props_v7 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
	enum nccl_net_device_type device_type;
	int device_version;
};

struct nccl_net_props_v8 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int reg_is_global;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
	enum nccl_net_device_type device_type;
	int device_version;
};

/** v9 and v10. */
struct nccl_net_props_v9 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int reg_is_global;
	int force_flush;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
	enum nccl_net_device_type device_type;
	int device_version;
	struct nccl_net_vprops_v9 vprops;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
};

struct nccl_net_props_v11 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int reg_is_global;
	int force_flush;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
	enum nccl_net_device_type device_type;
	int device_version;
	struct nccl_net_vprops_v9 vprops;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
	int max_multi_request;
};

struct nccl_net_props_v12 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int ptr_support;
	int reg_is_global;
	int force_flush;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
	enum nccl_net_device_type device_type;
	int device_version;
	struct nccl_net_vprops_v12 vprops;
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
	int max_multi_request;
	int16_t rail_id;
	int16_t plane_id;
};

#endif
