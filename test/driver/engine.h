/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_ENGINE_H
#define BRAID_TEST_DRIVER_ENGINE_H

#include "test/driver/rank.h"

/**
 * Move rank->job's data over the active connections until every message was sent and used: the work
 * of NCCL's progress thread and of the GPU, in turns. Returns 0, -EREMOTEIO after an error of the
 * plugin, or -ECANCELED when told to stop (where each connection stands is printed then).
 */
int engine_run(struct rank *rank);

/** One pass over a sending connection; *moved is raised if anything went on. 0 or -EREMOTEIO. */
int send_pass(struct rank *rank, struct conn *conn, unsigned *moved);
/** One pass over a receiving connection, likewise. */
int recv_pass(struct rank *rank, struct conn *conn, unsigned *moved);

/** Staging slot of message idx. */
static inline unsigned char *conn_slot(const struct slots *slots, uint64_t idx)
{
	return slots->buf.data + (slots->step + idx) % FLOW_STEPS * slots->slot_bytes;
}

/** Bytes message msg takes on the wire. */
static inline size_t conn_wire_bytes(const struct conn *conn, const struct msg *msg)
{
	return msg->count * (conn->proto == PROTO_LL ? 8 : 4);
}

/**
 * What *request holds when NCCL calls isend or irecv: the pointer of an earlier request, or 1.
 */
static inline void *conn_stale_request(const struct conn *conn, uint64_t idx)
{
	void *old = conn->requests[idx % FLOW_STEPS];

	return (idx & 1) && old ? old : (void *)(uintptr_t)NCCL_NET_RECV_OPTIONAL;
}

#endif
