/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_POST_H
#define BRAID_IB_POST_H

#include "ib/qp.h"
#include "ib/verbs.h"
#include "include/log.h"

#include <arpa/inet.h>
#include <errno.h>

/*
 * Posting writes, three times per message: in the header, so that a caller that knows count and
 * flags gets the few stores that are left, and no struct ib_write is ever built in memory.
 */

enum ib_write_flags {
	IB_WRITE_SIGNALED = 1,
	IB_WRITE_INLINE = 2,
	IB_WRITE_WITH_IMM = 4
};

struct ib_write {
	uint64_t wr_id;
	uint64_t local_addr;
	uint64_t remote_addr;
	uint32_t lkey, rkey;
	uint32_t len_bytes; /* 0 allowed: no gather entry */
	uint32_t imm;       /* host order here; put on the wire in network order */
	uint32_t flags;     /* enum ib_write_flags */
};

enum {
	IB_WRITES_MAX = 4
};

/**
 * Post count (1..IB_WRITES_MAX) RDMA writes as one chain, one doorbell. All or nothing is not
 * guaranteed by verbs: on error *posted says how many were taken. -ENOMEM: queue full.
 */
static inline int ib_qp_post_writes(struct ib_qp *qp, const struct ib_write *writes,
				    unsigned int count, unsigned int *posted);

/* Only what a write uses is set: verbs providers look at nothing else for these two opcodes. */
static inline __attribute__((always_inline)) void
ib_write_fill(const struct ib_write *write, struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	bool imm = (write->flags & IB_WRITE_WITH_IMM) != 0;

	sge->addr = write->local_addr;
	sge->length = write->len_bytes;
	sge->lkey = write->lkey;
	wr->wr_id = write->wr_id;
	wr->next = NULL;
	wr->sg_list = sge;
	wr->num_sge = write->len_bytes > 0;
	wr->opcode = imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
	wr->send_flags = ((write->flags & IB_WRITE_SIGNALED) != 0 ? IBV_SEND_SIGNALED : 0u) |
			 ((write->flags & IB_WRITE_INLINE) != 0 ? IBV_SEND_INLINE : 0u);
	wr->imm_data = imm ? htonl(write->imm) : 0;
	wr->wr.rdma.remote_addr = write->remote_addr;
	wr->wr.rdma.rkey = write->rkey;
}

/** Post a chain of `count`, one doorbell; *posted says how many were taken when it fails. */
static inline __attribute__((always_inline)) int ib_qp_post_chain(struct ib_qp *qp,
								  struct ibv_send_wr *wrs,
								  unsigned int count,
								  unsigned int *posted)
{
	struct ibv_send_wr *bad = NULL;
	int rc = ib_verbs_post_send(qp->qp, wrs, &bad);

	*posted = count;
	if (__builtin_expect(rc != 0, 0)) {
		*posted = bad >= wrs && bad < wrs + count ? (unsigned int)(bad - wrs) : 0;
	}
	return rc;
}

static inline int ib_qp_post_writes(struct ib_qp *qp, const struct ib_write *writes,
				    unsigned int count, unsigned int *posted)
{
	struct ibv_send_wr wrs[IB_WRITES_MAX];
	struct ibv_sge sges[IB_WRITES_MAX];

	ASSERT(count >= 1 && count <= IB_WRITES_MAX);
	*posted = 0;
	for (unsigned int i = 0; i < count; i++) {
		if ((writes[i].flags & IB_WRITE_INLINE) != 0 &&
		    writes[i].len_bytes > qp->inline_max_bytes) {
			return -EINVAL;
		}
		ib_write_fill(&writes[i], &wrs[i], &sges[i]);
		if (i > 0) {
			wrs[i - 1].next = &wrs[i];
		}
	}
	return ib_qp_post_chain(qp, wrs, count, posted);
}

#endif
