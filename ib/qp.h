/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_QP_H
#define BRAID_IB_QP_H

#include "ib/rail.h"
#include "include/cause.h"
#include "include/rail_desc.h"

#include <stdint.h>

/**
 * One RC queue pair with its own completion queue (send and receive). Posting and polling: one
 * thread at a time (the comm's lock); ib_qp_fence may run beside them on another thread.
 */
struct ib_qp {
	struct ib_rail *rail;
	struct ib_device *device; /* it was made with; a reference */
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	uint32_t qpn;
	uint32_t psn; /* random first PSN of this end */
	uint32_t send_wrs_max, recv_wrs_max;
	uint32_t inline_max_bytes; /* granted */
};

struct ib_qp_opts {
	uint32_t send_wrs_max, recv_wrs_max, inline_bytes;
};

/**
 * Create CQ and QP and go to INIT. Blocks as verbs do: worker or service thread only. 0, -EIO: the
 * device is reported fatal or given up, -ENOMEM (or -EAGAIN..., whatever verbs said).
 * ibv_create_qp(3), ibv_modify_qp(3).
 */
int ib_qp_create(struct ib_rail *rail, const struct ib_qp_opts *opts, struct ib_qp *out);

/**
 * INIT -> RTR -> RTS towards the peer's QP on its rail. timeout, retry count, traffic class,
 * service level from the configuration; path MTU is the smaller of both; rnr_retry 7, min_rnr_timer
 * 12; max_rd_atomic 1. traffic_class < 0: from the configuration. Blocks: worker only. 0 or -errno.
 */
int ib_qp_connect(struct ib_qp *qp, const struct rail_desc *peer_rail, const struct qp_addr *peer,
		  const struct braid_config *cfg, int traffic_class);

/**
 * Fence: move to ERR. When it returns 0 no packet that arrives later is placed, and no posted WR
 * reads or writes memory once its flush completion was reaped. May block long on a sick HCA: worker
 * only. 0, or -errno (then the QP must be taken as unfenced unless the device is reported fatal).
 */
int ib_qp_fence(struct ib_qp *qp);

/** Move to RESET: drops every WR without completions. For a QP in ERR that does not flush in time.
 */
int ib_qp_reset(struct ib_qp *qp);

/** Destroy QP and CQ. Zeroed or half-built object is fine. Blocks: worker only. */
void ib_qp_destroy(struct ib_qp *qp);

/** Post n empty receives with the same wr_id, chained in batches. 0 or -errno; *posted on error. */
int ib_qp_post_recvs(struct ib_qp *qp, uint64_t wr_id, unsigned int count, unsigned int *posted);

/** A completion with the three libibverbs conventions ironed out. */
struct ib_wc {
	uint64_t wr_id;
	enum cause cause; /* CAUSE_NONE: success. From the status; nothing below is valid on error
			     but status, vendor_err */
	bool is_recv;     /* success: RECV_RDMA_WITH_IMM; on error use wr_id */
	uint32_t imm;     /* host order; receives */
	uint32_t len_bytes;
	int status; /* enum ibv_wc_status */
	uint32_t vendor_err;
};

/** Poll up to max completions. Count, or -errno. */
int ib_qp_poll(struct ib_qp *qp, struct ib_wc *wcs, unsigned int max);

/** Cause of a completion status; every enum ibv_wc_status has an entry. */
enum cause ib_wc_cause(int status);

#endif
