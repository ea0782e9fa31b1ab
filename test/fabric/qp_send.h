/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_QP_SEND_H
#define BRAID_TEST_FABRIC_QP_SEND_H

#include "test/fabric/gate.h"
#include "test/fabric/port.h"
#include "test/fabric/qp.h"

/** The two ends of a connected QP, as its requester sees them. */
struct fab_path {
	struct fab_port *own_port;
	struct fab_port *peer_port;
	struct fab_inst *peer;
	struct fab_qp_slot *slot; /* the responder; NULL when there is none at that address */
	uint32_t slot_idx;
};

/** Fills `path`. False when no QP answers there: wrong number, closed, not reachable by wiring. */
bool fab_path_find(struct fab_qp *qp, struct fab_path *path);

/** Moves one step of the send at sq_next. Returns when to come back, as fab_qp_step() does. */
uint64_t fab_send_move(struct fab_qp *qp, uint64_t now_ns);

/** The packet under way, or its answer, is lost: the timer runs, nothing is sent before it ends. */
void fab_send_lost(struct fab_qp *qp, uint64_t now_ns);
enum fab_ack {
	FAB_ACK_IF_OPEN,
	FAB_ACK_FORCED, /* sent just before the fault */
};

/** The send at sq_next was executed by the responder; moves to the next. */
void fab_send_sent(struct fab_qp *qp, const struct fab_path *path, uint64_t now_ns,
		   enum fab_ack ack);
/** A part of it was placed. */
void fab_send_moved(struct fab_qp *qp, const struct fab_path *path, uint64_t now_ns);
/** All of it went out and is held back: the timer runs, and the next one may go. */
void fab_send_held(struct fab_qp *qp, uint64_t now_ns);
/** An acknowledgement of all sends before number `upto` is under way. */
void fab_send_acked(struct fab_qp *qp, const struct fab_path *path, uint64_t upto, uint64_t now_ns);

/** Is the send at sq_next the oldest one without an answer? */
static inline bool fab_send_is_oldest(const struct fab_qp *qp)
{
	return atomic_load_explicit(&qp->sq_acked, memory_order_relaxed) ==
	       atomic_load_explicit(&qp->sq_next, memory_order_relaxed);
}
/** The responder's answer to the send at sq_next is an error; it acknowledges those before. */
void fab_send_fail_at_next(struct fab_qp *qp, enum ibv_wc_status status);

#endif
