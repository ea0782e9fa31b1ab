/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_BENCH_SINGLE_RAIL_H
#define BRAID_TEST_BENCH_SINGLE_RAIL_H

#include "include/nccl_net.h"

#include <infiniband/verbs.h>

#include <stdint.h>

/*
 * The baseline: a plain net plugin that binds each connection to one HCA with one RC queue pair, as
 * NCCL's built-in IB transport does with one QP per connection. No failover, no flush, HOST memory
 * only. Posted and polled by NCCL's progress thread, no lock, no thread of its own.
 */

enum {
	SR_SLOTS = NCCL_NET_REQUESTS_COUNT,
	SR_SEND_WRS = 2 * SR_SLOTS, /* two per send, one clear-to-send per receive */
	SR_DEVICES_MAX = 16,
	SR_WRITE_ALONE_BYTES = 8192, /* above: the data apart from the immediate, on InfiniBand */
	SR_POLL_BATCH = 4,
};

/** One clear-to-send entry, written by the receiver; `idx` counts from 1 and comes last. */
struct sr_cts {
	uint64_t addr;
	uint64_t size_bytes;
	uint32_t rkey;
	uint32_t pad[9];
	uint64_t idx;
};

enum sr_kind {
	SR_FREE,
	SR_SEND,
	SR_RECV,
};

struct sr_request {
	struct sr_comm *comm;
	enum sr_kind kind;
	int size_bytes;
	int is_done;
};

/** What both ends tell each other over TCP. */
struct sr_hello {
	uint32_t qpn;
	uint32_t rkey; /* of the sender's ring */
	uint64_t addr;
	uint16_t lid;
	uint16_t mtu;
	union ibv_gid gid;
};

enum sr_state {
	SR_HELLO, /* the peer's hello is due */
	SR_READY, /* the sender: the receiver's word that it can receive is due */
	SR_UP,
};

struct sr_device {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	char name[64];
	uint64_t guid;
	union ibv_gid gid;
	int gid_idx;
	uint16_t lid;
	int mtu;
	int is_ib;
	int speed_mbps;
};

struct sr_comm {
	struct sr_device *dev;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *ring_mr;
	struct sr_cts ring[SR_SLOTS] __attribute__((aligned(64)));
	struct sr_request requests[SR_SLOTS];
	uint64_t head; /* messages so far */
	uint64_t peer_addr;
	uint32_t peer_rkey;
	uint32_t inline_max_bytes;
	enum sr_state state;
	int is_sender;
	int fd;
};

/** single_rail_setup.c: devices and connections. Service thread. */
enum nccl_result sr_init(nccl_logger_fn logger);
enum nccl_result sr_devices(int *count);
enum nccl_result sr_properties(int dev, struct nccl_net_props_v8 *props);
enum nccl_result sr_listen(int dev, void *handle, void **listen_comm);
enum nccl_result sr_connect(int dev, void *handle, void **send_comm,
			    struct nccl_net_device_handle **dev_handle);
enum nccl_result sr_accept(void *listen_comm, void **recv_comm,
			   struct nccl_net_device_handle **dev_handle);
enum nccl_result sr_close(void *comm);
enum nccl_result sr_close_listen(void *comm);

#endif
