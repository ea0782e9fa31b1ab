/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_CONN_H
#define BRAID_TEST_DRIVER_CONN_H

#include "include/nccl_net.h"
#include "test/driver/flow.h"
#include "test/driver/guarded.h"

enum {
	CONN_STAGED_COUNT = PROTO_LL + 1, /**< protocols with staging slots: simple and ll */
	CONN_SIMPLE_SLOT_BYTES = 512 << 10,
	CONN_LL_SLOT_BYTES = 64 << 10, /**< half of it data */
};

/** Staging memory of one connection and protocol: FLOW_STEPS slots, slot = step modulo that. */
struct slots {
	struct guarded buf;
	void *mh;
	size_t slot_bytes;
	uint64_t step;   /**< messages of earlier iterations */
	size_t used_max; /**< longest message so far, bytes */
};

/**
 * One direction of data to or from one peer, on one channel. Set up and closed by the service
 * thread; the progress thread owns everything from `active` on.
 */
struct conn {
	enum flow_dir dir;
	uint32_t peer;
	uint32_t channel;
	int dev;
	void *comm;
	void *listen_comm;                           /**< receiver, until accepted */
	unsigned char handle[NCCL_NET_HANDLE_BYTES]; /**< sender: the same memory on each retry */
	struct slots staged[CONN_STAGED_COUNT];
	void *mh_in;      /**< sender, direct */
	void *mh_out;     /**< both, direct */
	uint32_t ll_flag; /**< flag of the connection's next ll message, less 1 */

	bool active; /**< carries data in this iteration */
	enum proto_kind proto;
	struct flow flow;
	struct conn *source; /**< sender in a ring: the receiver whose data it passes on */
	/* Messages of this iteration, each counter at most the one before it. */
	uint64_t filled;            /**< sender: ready to send */
	uint64_t posted;            /**< isend or irecv gave a request */
	uint64_t received;          /**< receiver: test said done */
	uint64_t flushed;           /**< receiver: visible to the GPU */
	uint64_t consumed;          /**< receiver: used; ll may be ahead of received */
	uint64_t freed;             /**< slot may be posted again; sender: test said done */
	void *requests[FLOW_STEPS]; /**< never cleared: old pointers stay in, as in NCCL */
	size_t sent_bytes[FLOW_STEPS];
	uint64_t digests[FLOW_STEPS]; /**< ll: of the message when it was used */
	void *flush_request;
	size_t ll_seen; /**< ll: units of message `consumed` whose flag was seen */
};

#endif
