/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_SIM_EVQ_H
#define BRAID_SIM_EVQ_H

#include <stdbool.h>
#include <stdint.h>

enum ev_type {
	EV_ARRIVE, /* a chunk reaches the responder; ptr: struct net_chunk */
	EV_PLACE,  /* its bytes reach memory; ptr: struct net_chunk */
	EV_ACK,    /* a hardware acknowledgement reaches the requester; arg: psn */
	EV_TIMER,  /* retransmission timer of a QP */
	EV_HEAL,   /* a wire is as new */
	EV_REVIVE, /* an HCA is reset: new QPs work */
	EV_FAULT,  /* arg: index of the fault */
	/* From here on the host's software is needed: nothing happens while it is stopped. */
	EV_POLL,
	EV_TICK,
	EV_FRAME,      /* ptr: struct link_frame */
	EV_FENCE_ERR,  /* the worker moves the QP to ERR */
	EV_FENCE_DONE, /* arg: enum fence_outcome */
	EV_CUT_DONE,
	EV_BUILT,     /* arg: epoch; the worker made a new QP */
	EV_JOINED,    /* arg: epoch, peer's QP number; the worker connects it */
	EV_HINT,      /* the software hears that the port is up */
	EV_NOTICE,    /* arg: enum cause: the software is told that the path failed */
	EV_ACK_ROUND, /* of the timer for acknowledgements that wait */
	EV_CLOSE,
	EV_KILL,
	EV_GONE, /* the link knows that the peer's process is dead */
	EV_TYPE_COUNT
};

struct ev {
	uint64_t at_ns;
	uint32_t order; /* of pushing; breaks ties, so that a run is reproducible */
	uint8_t type, side, path;
	union {
		void *ptr;
		uint64_t arg;
	};
};

enum {
	EVQ_MAX = 16384
};

/** Priority queue of events, earliest first. */
struct evq {
	uint32_t count, next_order;
	struct ev heap[EVQ_MAX];
};

void evq_init(struct evq *q);
/** False when the queue is full. */
bool evq_push(struct evq *q, struct ev ev);
/** Put an event that was popped back for later; it keeps its place among those of that time. */
bool evq_defer(struct evq *q, struct ev ev);
/** Take the earliest event; false when there is none. */
bool evq_pop(struct evq *q, struct ev *ev);

#endif
