/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_CQ_H
#define BRAID_TEST_FABRIC_CQ_H

#include "test/fabric/ctx.h"

struct fab_cq {
	struct ibv_cq ibv; /* first: the caller's pointer */
	struct fab_ctx *ctx;
	struct fab_cq_slot *slot;
	struct fab_cqe *ring;
	uint32_t size; /* of the ring; as in the slot, whose line is the producers' */
	uint32_t idx;
	_Atomic uint64_t next;     /* position of the entry to come; written under poll_lock */
	pthread_mutex_t poll_lock; /* the consumer's side: head, stuck_since_ns */
	uint64_t stuck_since_ns;   /* the entry at the head is taken but not published since */
	_Atomic uint32_t qp_count; /* QPs that complete here, once for each direction */
	uint32_t notified;         /* completion events written to the channel; under exec */
	uint32_t async_told;       /* events written to async_fd; under the context's lock */
};

struct fab_channel {
	struct ibv_comp_channel ibv; /* first: the caller's pointer */
	int write_fd;
	_Atomic uint32_t cq_count;
};

static inline struct fab_cq *fab_cq_of(struct ibv_cq *cq)
{
	return (struct fab_cq *)(void *)cq;
}

/** What a producer says about one completion; the rest of struct fab_cqe is derived. */
struct fab_completion {
	uint64_t wr_id;
	uint64_t wqe_idx;
	uint32_t status;
	uint32_t opcode;
	uint32_t byte_len;
	uint32_t imm_data;
	uint32_t qpn;
	uint32_t src_qpn;
	uint32_t wc_flags;
	uint32_t qp_idx;
	uint32_t qp_gen;
	bool solicited;
};

/**
 * Appends a completion to queue `cq_idx` of instance `inst`, from any process, without a lock;
 * `producer` is the caller's instance id. A full queue overruns: the entry is dropped and the
 * owner gets CQ_ERR. True when the owner should be rung because it wants an event.
 */
bool fab_cq_push(struct fab_inst *inst, uint32_t cq_idx, uint32_t producer,
		 const struct fab_completion *completion);

/** Writes the events of CQs that fired to their channels; engine thread. */
void fab_cq_notify(struct fab_ctx *ctx);

int fab_cq_poll(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int fab_cq_req_notify(struct ibv_cq *cq, int solicited_only);

#endif
