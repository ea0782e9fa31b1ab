/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_PATH_H
#define BRAID_REPAIR_PATH_H

#include "include/cause.h"
#include "include/frame.h"
#include "repair/wrq.h"

#include <stdbool.h>
#include <stdint.h>

/** States of a path at one end. The same names are used in logs and documents. */
#define PATH_STATE_LIST(X)                                                                         \
	X(PARKED)        /* no QPs: the rails have no partner, or one end could not connect */     \
	X(UP)            /* carries traffic */                                                     \
	X(FENCING)       /* own fence under way, the peer's is not known to be done */             \
	X(FENCING_HEARD) /* own fence under way, the peer's is done */                             \
	X(FENCED)        /* own fence done and announced, the peer's is not known to be done */    \
	X(DOWN)          /* both fenced, books compared, the rest handed to other paths */         \
	X(PROBING)       /* new QPs connected at this end, probes of both ends under way */

#define PATH_EVENT_LIST(X)                                                                         \
	X(READY)       /* both ends reached RTS, after a fence also the probes got through */      \
	X(FAULT)       /* this end saw it fail */                                                  \
	X(PEER_FENCE)  /* the peer has begun to fence it */                                        \
	X(SELF_FENCED) /* own QPs in ERR and every WR back */                                      \
	X(PEER_FENCED) /* the peer's FENCED, with its book, is in */                               \
	X(JOINED)      /* new QP of this epoch is in RTS at this end */

enum path_state {
#define PATH_STATE_ENUM(name) PATH_##name,
	PATH_STATE_LIST(PATH_STATE_ENUM)
#undef PATH_STATE_ENUM
	PATH_STATE_COUNT
};

enum path_event {
#define PATH_EVENT_ENUM(name) PATH_EV_##name,
	PATH_EVENT_LIST(PATH_EVENT_ENUM)
#undef PATH_EVENT_ENUM
	PATH_EVENT_COUNT
};

/** What a transition asks for; a set of bits, carried out by repair/fence.c in this order. */
enum path_action {
	PATH_ACT_NONE = 0,
	PATH_ACT_BEGIN = 1,     /* move own QPs to ERR, tell the peer with FENCE */
	PATH_ACT_KEEP = 2,      /* keep the peer's book until both are fenced */
	PATH_ACT_ANNOUNCE = 4,  /* read out the own book, send FENCED */
	PATH_ACT_RECONCILE = 8, /* compare the books, hand over the rest, raise the epoch */
	PATH_ACT_PROBE = 16,    /* post receives, write the probe */
	PATH_ACT_RESUME = 32,   /* carry traffic again */
};

struct path_step {
	bool legal;
	enum path_state next;
	unsigned int actions; /* enum path_action */
};

/** Coming back (repair/rejoin.h). */
struct rejoin_state {
	bool is_busy;    /* a rebuild or join job is under way */
	bool is_offered; /* sender: REJOIN was sent, no answer yet */
	bool was_up;     /* the path has carried traffic in this epoch */
	bool is_probed;  /* own probe was placed */
	bool is_probe_posted;
	uint32_t offer_epoch;  /* receiver: epoch of the last offer, that of peer.qp */
	uint32_t answer_epoch; /* receiver: of the last answer */
	int32_t answer_err;
	uint32_t peer_probed_epoch;
	unsigned int level; /* of the back-off */
	unsigned int flap_count;
	uint64_t try_ns;     /* next attempt */
	uint64_t up_ns;      /* since when UP */
	uint64_t probing_ns; /* since when PROBING */
	struct path_side own, peer;
};

struct repair_share;

/** One path at one end. Owner: the comm's lock. */
struct repair_path {
	enum path_state state;
	uint32_t epoch;  /* agreed with the peer; raised when the path goes DOWN */
	uint32_t weight; /* relative rate, > 0 */
	uint32_t rating; /* measured, as a part of the fastest path's; 0: not known (repair/pace.h)
			  */
	uint64_t below_ns; /* since when that is below a half; 0: it is not */
	uint8_t speed;     /* of what its weight says, in 64ths: less where it is slow */
	bool is_slow;
	bool errored;       /* own QPs were moved to ERR in this epoch */
	bool cutting;       /* reaping took too long, RESET was asked for */
	bool cause_is_peer; /* the peer saw it first */
	uint8_t owed;       /* bit per enum notice that the link has not taken yet */
	enum cause cause;   /* first cause seen in this epoch */
	uint64_t fault_ns;
	uint64_t fence_ns, errored_ns; /* when the HCA was told to fence it, and had done so */
	uint32_t fenced_epoch;         /* of the last FENCED */
	enum cause fenced_cause;       /* that it names */
	uint64_t down_ns;              /* fault that ended its last time UP */
	enum cause down_cause;         /* and why */
	/* since the last tick: something was posted, came back, the wait for it began */
	bool has_posted, has_moved, has_begun;
	uint64_t posted_ns;      /* last post, as of a tick */
	uint64_t progress_ns;    /* last completion, or start of waiting for one */
	uint64_t moved_ns;       /* last completion */
	uint64_t asked_ns;       /* when the peer was asked about a stall first; 0: not */
	uint64_t again_ns;       /* and last */
	uint64_t stalled_ns;     /* when it was first asked about this stall; 0: not */
	uint64_t inflight_bytes; /* posted and not completed */
	uint64_t shared_bytes;   /* of them, those that all comms see (repair/share.h) */
	struct repair_share
		*share;     /* of its rail; NULL: nobody else is there. Set once, at first */
	uint32_t recvs_out; /* receives posted and not completed */
	struct wrq sq;
	struct frame_fenced peer_book; /* valid in FENCING_HEARD */
	struct rejoin_state rejoin;
};

/** The transition for (state, event); illegal ones have legal = false. Pure. */
struct path_step path_step(enum path_state state, enum path_event event);

/**
 * The only writer of path->state. Returns the actions to carry out, or -EPROTO for an illegal pair
 * (state unchanged; the caller fails the comm).
 */
int path_apply(struct repair_path *path, enum path_event event);

/** Re-assert the invariants listed above the table. Debug and simulation. */
void path_check(const struct repair_path *path);

const char *path_state_name(enum path_state state);
const char *path_event_name(enum path_event event);

#endif
