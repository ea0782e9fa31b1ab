/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_SRQ_H
#define BRAID_TEST_FABRIC_SRQ_H

#include "test/fabric/qp.h"

struct fab_srq {
	struct ibv_srq ibv; /* first: the caller's pointer */
	struct fab_ctx *ctx;
	struct fab_srq_slot *slot;
	uint32_t idx;
	uint32_t max_wr;
	uint32_t async_told; /* events written to async_fd; under the context's lock */
	pthread_mutex_t post_lock;
	_Atomic uint32_t qp_count;
};

static inline struct fab_srq *fab_srq_of(struct ibv_srq *srq)
{
	return (struct fab_srq *)(void *)srq;
}

/** Has the QP a receive to use? Takes one from its shared queue if it has to. Under its claim. */
bool fab_receive_ready(struct fab_inst *inst, struct fab_qp_slot *slot);

int fab_srq_post_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

#endif
