/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_LAYOUT_INST_H
#define BRAID_TEST_FABRIC_LAYOUT_INST_H

#include "test/fabric/layout_root.h"

/*
 * FABRIC_DIR/inst-N.shm, one for each opened device: what a peer's engine must reach without the
 * owner's help. QPs, receive queues, completion queues, memory regions, events. Sparse.
 */

#define FAB_INST_BYTES  (512ull << 20)
#define FAB_MAX_QPS     16384u
#define FAB_MAX_CQS     8192u
#define FAB_MAX_MRS     65536u
#define FAB_MAX_SGE     32u
#define FAB_MAX_SRQS    256u
#define FAB_EVENT_COUNT 256u

/** One memory region. `key` is 0 while the entry is free; lkey and rkey are the same number. */
struct fab_mr_slot {
	_Atomic uint32_t key;
	uint32_t access;
	uint32_t pd;
	uint32_t use_count; /* the part of the key that changes */
	uint64_t iova;
	uint64_t len_bytes;
	uint64_t addr;
};

/*
 * One completion. `ctl` orders it: producer's inst id << 48 | lap << 2 | phase, lap being how often
 * the ring was gone round. A producer takes the slot with FREE -> TAKEN and publishes it with
 * TAKEN -> VALID; the consumer frees it for the next lap. All zero is an empty ring.
 */
#define FAB_CQE_FREE  0ull
#define FAB_CQE_TAKEN 1ull
#define FAB_CQE_VALID 2ull

struct fab_cqe {
	_Atomic uint64_t ctl;
	uint64_t wr_id;
	uint64_t wqe_idx; /* running number of the WR in its queue */
	uint32_t status;
	uint32_t opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data; /* as the sender gave it */
	uint32_t qpn;
	uint32_t src_qpn;
	uint32_t wc_flags;
	uint32_t qp_idx;
	uint32_t qp_gen;
};

struct fab_cq_slot {
	_Atomic uint64_t tail;
	_Atomic uint64_t head;
	_Atomic uint32_t armed; /* enum fab_cq_arm */
	_Atomic uint32_t fired; /* a completion event is due; the owner's engine clears it */
	_Atomic uint32_t overrun;
	uint32_t size; /* a power of two */
	uint64_t ring_off;
} __attribute__((aligned(64)));

enum fab_cq_arm {
	FAB_CQ_UNARMED,
	FAB_CQ_SOLICITED,
	FAB_CQ_ANY,
};

struct fab_sge {
	uint64_t addr;
	uint32_t len_bytes;
	uint32_t lkey;
};

struct fab_rqe {
	uint64_t wr_id;
	uint64_t sge_count;
	struct fab_sge sge[]; /* rq_max_sge of them */
};

/*
 * A shared receive queue. Whoever holds the claim of a QP on it takes an entry by moving the head
 * and puts it into that QP's own queue, of which it is the only one.
 */
struct fab_srq_slot {
	_Atomic uint64_t tail; /* posted; owner */
	_Atomic uint64_t head; /* taken */
	_Atomic uint32_t limit;
	uint32_t size;
	uint32_t max_sge;
	uint32_t pad;
	uint64_t rq_off;
} __attribute__((aligned(64)));

/*
 * The responder half of a QP. `claim` is the right to place into it, see claim.h.
 * Fields without _Atomic are written by the owner while it has made the QP unreachable (state below
 * RTR and claim 0), and read by a peer's engine only while it holds the claim and saw RTR or above.
 * epsn, eoff and rq_head are written by the claim holder.
 */
struct fab_qp_slot {
	_Atomic uint64_t claim;
	_Atomic uint64_t claim_done; /* the claim whose bytes are all placed; arrives with them */
	_Atomic uint32_t state;      /* enum ibv_qp_state */
	_Atomic uint32_t qpn;        /* 0 = slot free */
	_Atomic uint32_t gen;        /* raised by RESET and destroy: older completions vanish */
	uint32_t type;               /* enum ibv_qp_type */
	uint32_t dest_qpn;
	uint32_t own_rail; /* of the port it is bound to */
	uint32_t peer_host;
	uint32_t peer_rail;
	uint32_t access;
	uint32_t pd;
	uint32_t epsn;
	uint32_t unfenced; /* FABRIC_BROKEN=fence: goes on accepting in ERR */
	uint64_t eoff;     /* bytes of the message at epsn that are placed */
	uint32_t mtu_bytes;
	uint32_t min_rnr_timer;
	uint32_t recv_cq_idx;
	uint32_t srq; /* index + 1; 0 = own receive queue only */
	uint32_t rq_size;
	uint32_t rq_max_sge;
	uint64_t rq_off;
	_Atomic uint64_t rq_tail;   /* posted; owner */
	_Atomic uint64_t rq_head;   /* consumed; claim holder */
	_Atomic uint64_t rq_polled; /* up to here the owner took completions from its CQ */
	_Atomic uint64_t sq_polled;
} __attribute__((aligned(128)));

enum fab_event_kind {
	FAB_EVENT_PORT,
	FAB_EVENT_DEVICE,
	FAB_EVENT_QP,
	FAB_EVENT_CQ,
	FAB_EVENT_SRQ,
};

struct fab_event {
	uint32_t type; /* enum ibv_event_type */
	uint32_t kind;
	uint32_t number; /* port, QPN or index of the CQ or SRQ */
	uint32_t pad;
	uint64_t due_ns; /* not told before */
};

struct fab_inst {
	uint32_t magic;
	uint32_t id;
	uint32_t host;
	uint32_t rail;       /* of port 1; port P is rail + P - 1 */
	uint32_t rail_count; /* ports of the device */
	uint32_t pid;
	uint32_t dead_count; /* fab_root_deaths() of its rails at open */
	uint32_t pull_count; /* fab_root_pulls() */
	uint64_t base;       /* where the owner has this file mapped */
	_Atomic uint32_t doorbell;
	_Atomic uint32_t sleeping;
	_Atomic uint32_t scan_due;   /* a QP of this instance was put into ERR by a peer */
	_Atomic uint32_t comp_due;   /* some CQ has `fired` set */
	pthread_mutex_t event_lock;  /* robust */
	pthread_mutex_t atomic_lock; /* robust; held around each atomic operation on its memory */
	_Atomic uint32_t event_tail;
	_Atomic uint32_t event_head;
	struct fab_event events[FAB_EVENT_COUNT];
	struct fab_mr_slot mrs[FAB_MAX_MRS];
	struct fab_cq_slot cqs[FAB_MAX_CQS];
	struct fab_srq_slot srqs[FAB_MAX_SRQS];
	struct fab_qp_slot qps[FAB_MAX_QPS];
	uint64_t heap[]; /* receive queues and completion rings, up to FAB_INST_BYTES */
};

#endif
