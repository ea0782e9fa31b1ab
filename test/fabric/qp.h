/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_QP_H
#define BRAID_TEST_FABRIC_QP_H

#include "test/fabric/cq.h"
#include "test/fabric/mr.h"

/** One posted send. The list follows it, inline data after the list. */
struct fab_swr {
	uint64_t wr_id;
	uint64_t remote_addr;
	uint64_t len_bytes;
	uint64_t compare_add; /* of an atomic operation, as is swap */
	uint64_t swap;
	uint64_t start_ns; /* not sent before: the link's latency */
	uint64_t ack_ns;   /* sent: acknowledged from then on; UINT64_MAX = lost */
	uint32_t opcode;   /* enum ibv_wr_opcode */
	uint32_t flags;    /* IBV_SEND_* */
	uint32_t rkey;
	uint32_t imm_data; /* untouched */
	uint32_t sge_count;
	uint32_t psn;   /* of its first packet */
	uint32_t edges; /* FAB_EDGE_WAS_*: fault rules counted it there already */
	uint32_t pad;
	struct fab_sge sge[];
};

#define FAB_EDGE_WAS_BEGUN  1u
#define FAB_EDGE_WAS_PLACED 2u

enum fab_sched {
	FAB_SCHED_IDLE,
	FAB_SCHED_QUEUED,
	FAB_SCHED_RUNNING,
	FAB_SCHED_WAITING,      /* for a time */
	FAB_SCHED_WAITING_PORT, /* ... until its port's rate lets it send */
};

/** What a QP did in its turn of the engine, see engine.c; under exec. */
struct fab_turn {
	uint64_t bytes;
	bool moved;     /* a message or a part of one */
	bool over;      /* ... as much as a turn at a limited rate may */
	bool port_busy; /* it has more, and its port is booked out */
};

/** What the requester keeps of one QP; touched by the engine, or under fab_engine_hold(). */
struct fab_sender {
	uint64_t pos_bytes; /* of the send at sq_next: on its way so far */
	uint64_t high;      /* sends below it went out at least once */
	uint32_t high_psn;  /* of the first packet of the send at `high` */
	uint32_t psn;       /* ... of the one at sq_next */
	bool doomed;        /* its next packet gets lost */
	bool blocked;       /* nothing gets through: wait for the timer */
	uint32_t tries;
	uint64_t retry_ns; /* the transport timer; 0 = not running */
	uint32_t rnr_tries;
	uint64_t rnr_ns; /* not before, after a receiver-not-ready */
};

struct fab_qp {
	struct ibv_qp ibv; /* first: the caller's pointer */
	struct fab_ctx *ctx;
	struct fab_qp_slot *slot;
	struct fab_cq *send_cq;
	struct fab_cq *recv_cq;
	uint32_t idx;
	uint32_t async_told; /* events written to async_fd; under the context's lock */
	struct ibv_qp_cap cap;
	int sq_sig_all;

	/* Attributes as set by modify; under ibv.mutex, and read by the engine when it holds exec,
	 * for which modify keeps the engine off. */
	struct ibv_ah_attr ah;
	enum ibv_mtu path_mtu;
	uint32_t dest_qpn;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint16_t pkey_index;
	uint8_t port_num;
	struct fab_port *port; /* the one it is bound to; port 1 before */
	uint32_t rail;
	uint32_t peer_host;
	uint32_t peer_rail;

	pthread_mutex_t post_lock; /* posters of sends; of receives */
	pthread_mutex_t recv_lock;
	char *sq;
	uint32_t sq_size;
	uint32_t sq_stride;
	_Atomic uint64_t sq_tail;  /* posted */
	_Atomic uint64_t sq_next;  /* next to send; engine */
	_Atomic uint64_t sq_acked; /* next to complete; engine */
	struct fab_sender tx;
	bool last_told;      /* the event for its last receive; the engine's, with an SRQ */
	uint64_t loss_dice;  /* the engine's */
	uint64_t delay_dice; /* under post_lock */
	uint64_t ack_dice;   /* the engine's */
	uint64_t start_ns;   /* of the newest send; under post_lock */
	struct fab_turn turn;
	uint64_t turns_seen; /* fab_port_turns() when it last moved something; under exec */

	/* Under the context's queue_lock. */
	enum fab_sched sched;
	bool kicked; /* since its turn began */
	bool posted; /* ... */
	uint64_t wake_ns;
	uint64_t place; /* lower ones go first; kept while it only waits for the port */
	struct fab_qp *next;
	struct fab_qp *prev;
};

static inline struct fab_qp *fab_qp_of(struct ibv_qp *qp)
{
	return (struct fab_qp *)(void *)qp;
}

/** Unreliable: no acknowledgements, no repetitions; what is lost is lost. */
static inline bool fab_qp_is_uc(const struct fab_qp *qp)
{
	return qp->ibv.qp_type == IBV_QPT_UC;
}

static inline struct fab_swr *fab_qp_swr(const struct fab_qp *qp, uint64_t number)
{
	return (struct fab_swr *)(void *)(qp->sq + (number % qp->sq_size) * qp->sq_stride);
}

static inline void *fab_qp_inline(const struct fab_qp *qp, struct fab_swr *wr)
{
	return &wr->sge[qp->cap.max_send_sge];
}

/** What was posted, as the requester's engine reads it; the caller knows that the entry is free and
 * has room for the list. */
static inline void fab_rqe_fill(struct fab_rqe *rqe, const struct ibv_recv_wr *wr)
{
	rqe->wr_id = wr->wr_id;
	rqe->sge_count = (uint64_t)wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++) {
		rqe->sge[i].addr = wr->sg_list[i].addr;
		rqe->sge[i].len_bytes = wr->sg_list[i].length;
		rqe->sge[i].lkey = wr->sg_list[i].lkey;
	}
}

static inline struct fab_rqe *fab_qp_rqe(struct fab_inst *inst, struct fab_qp_slot *slot,
					 uint64_t number)
{
	uint64_t stride = sizeof(struct fab_rqe) + slot->rq_max_sge * sizeof(struct fab_sge);

	return fab_inst_at(inst, slot->rq_off + number % slot->rq_size * stride);
}

static inline enum ibv_qp_state fab_qp_state(struct fab_qp_slot *slot)
{
	return (enum ibv_qp_state)atomic_load_explicit(&slot->state, memory_order_seq_cst);
}

static inline uint32_t fab_mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << (unsigned int)mtu;
}

/** Destroys a QP that was alive when its context is closed: waits for no event's acknowledgement.
 */
void fab_qp_drop(struct fab_qp *qp);

int fab_qp_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);
int fab_qp_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr);

static inline uint32_t fab_wr_packets(const struct fab_qp *qp, const struct fab_swr *wr)
{
	uint64_t mtu = fab_mtu_bytes(qp->path_mtu);

	return wr->len_bytes == 0 ? 1 : (uint32_t)((wr->len_bytes + mtu - 1) / mtu);
}

/** One turn of the engine on this QP. Returns when it wants the next: 0 = soon, UINT64_MAX = when
 * kicked, else CLOCK_MONOTONIC ns. Under exec. */
uint64_t fab_qp_step(struct fab_qp *qp, uint64_t now_ns);

/** A send's completion, if it asked for one or went wrong; moves sq_acked past it. */
void fab_send_complete(struct fab_qp *qp, enum ibv_wc_status status);
/** Ends the send at sq_acked with an error and the QP with it. */
void fab_send_fail(struct fab_qp *qp, enum ibv_wc_status status);
/** Flushes what a QP in ERR still holds. True when all is out. */
bool fab_qp_flush(struct fab_qp *qp);
/** Completes receive `number` in the responder's CQ. The caller has the claim, finishing. True when
 * the owner should be rung. */
bool fab_recv_complete(struct fab_inst *inst, struct fab_qp_slot *slot, uint32_t qp_idx,
		       uint32_t producer, struct fab_completion *completion);

#endif
