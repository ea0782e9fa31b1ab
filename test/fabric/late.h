/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_LATE_H
#define BRAID_TEST_FABRIC_LATE_H

#include "test/fabric/move.h"

/**
 * Packets of one message that the fabric holds back, with the bytes they had when they were sent.
 * They belong to the context, not to the QP: they arrive after it failed, was reset or destroyed.
 * Engine thread only.
 */
struct fab_late {
	struct fab_late *next;
	uint64_t due_ns;
	uint64_t number; /* of the send they come from */
	uint64_t first_bytes;
	uint64_t last_bytes; /* behind the last one */
	uint32_t qp_gen;     /* of the requester, when they were sent */
	bool over;           /* all placed, and told if the message ends here */
	struct fab_qp ghost; /* what the requester was then */
	struct fab_swr *wr;  /* ... and the send, its list naming the copy behind it */
};

/** Sends one step of m->wr into the void, to arrive after `late_ns`. As fab_send_move() returns. */
uint64_t fab_late_hold(struct fab_move *m, uint64_t late_ns);

/** Lets arrive what is due. Returns when the next is, UINT64_MAX when none is held. Under exec. */
uint64_t fab_late_deliver(struct fab_ctx *ctx, uint64_t now_ns);
/** Drops all. After the engine ended. */
void fab_late_free(struct fab_ctx *ctx);

/** How many bytes of a late move are still to place. */
static inline uint64_t fab_late_left(const struct fab_move *m)
{
	return m->late->last_bytes > m->qp->tx.pos_bytes ? m->late->last_bytes - m->qp->tx.pos_bytes
							 : 0;
}

/** Has the responder got all of it, from a repetition that was faster? */
static inline bool fab_late_passed(const struct fab_move *m)
{
	return m->qp->tx.pos_bytes >= m->late->last_bytes && m->late->last_bytes < m->wr->len_bytes;
}

/** The message is executed: its requester may still want to hear of it. */
void fab_late_executed(struct fab_move *m);

#endif
