/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_SIM_CONF_H
#define BRAID_SIM_CONF_H

#include "repair/end.h"
#include "test/sim/rng.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	SIM_FAULTS_MAX = 40,
	SIM_MSGS_MAX = 128,
	SIM_DEPTH_MAX = 20, /* requests a user keeps; more than the window, to find it full */
	SIM_SIZE_MAX = 64 * 1024
};

/** The two ends of the comm, and the directions of a wire, named by the end that sends. */
enum sim_side {
	SIDE_TX,
	SIDE_RX,
	SIDE_COUNT
};

enum fault_kind {
	FAULT_BLACKHOLE,   /* both directions drop everything */
	FAULT_ONEWAY,      /* one direction drops everything */
	FAULT_ACKLOSS,     /* one direction drops hardware acknowledgements only */
	FAULT_HOLD,        /* packets are held, and let go much later */
	FAULT_NIC_DEATH,   /* one HCA stops: places, sends and surfaces nothing any more */
	FAULT_PORT_DOWN,   /* both directions drop, one end's software is told soon */
	FAULT_QP_ERR,      /* one QP goes to ERR by itself */
	FAULT_PORT_GLITCH, /* one end's software is told that its port went down, and it did not */
	FAULT_SPURIOUS,    /* the software is told of a fault that is none */
	FAULT_POST_FAIL,   /* the next post fails */
	FAULT_LARGE_LOSS,  /* one direction drops long packets, small ones pass */
	FAULT_GARBLE,      /* what probes carry in one direction arrives changed */
	FAULT_LINK_LOST,   /* frames wait until the link is back */
	FAULT_LINK_FULL,   /* the link of one end takes no frames for a while */
	FAULT_BLIP,        /* a short black hole that retransmission gets over; no path is lost */
	FAULT_STOP,        /* the host's software stands still for a while */
	FAULT_NAP,         /* the user does not poll for a while */
	FAULT_CLOSE,       /* one end closes, whatever is outstanding */
	FAULT_KILL,        /* one end's process dies */
	FAULT_KIND_COUNT
};

/** When a fault strikes. */
enum fault_when {
	WHEN_BYTES,    /* permille of the run's payload was placed */
	WHEN_AFTER,    /* delay after the fault before it in the list */
	WHEN_BEGIN,    /* an end begins to fence, n-th time */
	WHEN_ANNOUNCE, /* an end sends FENCED, n-th time */
	WHEN_DOWN,     /* an end reconciles, n-th time */
	WHEN_REPLAY,   /* a replayed piece is posted, n-th time */
	WHEN_JOIN,     /* an end connects a new QP, n-th time */
	WHEN_BACK,     /* an end uses a path again, n-th time */
	FAULT_WHEN_COUNT
};

struct fault {
	enum fault_kind kind;
	enum fault_when when;
	uint32_t value; /* permille, count */
	uint64_t delay_ns;
	uint8_t path, side;
	uint32_t draw; /* for details: which wires, how long */
	bool fired;
};

/** What a run must end with. */
enum sim_goal {
	GOAL_FINISH,   /* every message is done at both ends */
	GOAL_NO_PATH,  /* every path may die: done, or failed with NO_PATH at both ends */
	GOAL_UNFENCED, /* a fence is refused: done, or failed with UNFENCED at one end */
	GOAL_LEAVE,    /* one end closes or dies: the other is done, or hears of it in time */
};

/** A run's parameters, all drawn from its seed. */
struct sim_conf {
	uint64_t seed;
	enum sim_goal goal;
	unsigned int path_count, active_count;
	uint32_t msg_count, depth;
	uint32_t size_max;
	uint64_t first_seq;
	struct repair_limits limits;
	uint64_t latency_ns[PATHS_MAX], jitter_ns[PATHS_MAX];
	uint32_t ps_per_byte[PATHS_MAX];
	uint32_t weight[PATHS_MAX];
	uint64_t place_lag_ns, wc_lag_ns; /* at most */
	uint64_t rto_ns;
	uint32_t retry_count; /* 0: for ever */
	bool told; /* somebody reports each lost path; else the ends notice by themselves */
	uint32_t chunk_bytes;
	uint32_t tx_window_wrs, sq_depth_wrs;
	uint64_t link_delay_ns;
	uint32_t link_slow_permille, link_dup_permille;
	uint64_t fence_delay_ns;     /* at most, twice */
	uint32_t no_flush_permille;  /* QPs that do not flush everything */
	uint32_t copy_bytes;         /* a whole message up to this is inline */
	uint32_t no_rounds_permille; /* no rounds for acknowledgements that wait */
	uint64_t poll_delay_ns;
	uint32_t wcs_per_poll;
	uint32_t key_hole_permille; /* buffers that are not registered on a path that may die */
	bool any_order;             /* requests are tested in any order, not oldest first */
	uint64_t pace_ns;           /* the sender's user waits that long between sends, at most */
	bool heals;                 /* what broke works again later, and paths rejoin */
	bool rx_closes;             /* the receiver closes as soon as its last receive is done */
	uint8_t odd_path, odd_side; /* GOAL_UNFENCED: whose fence is refused */
	bool odd_is_cut;            /* the reset is refused, not the move to ERR */
	uint32_t dies_mask;         /* paths that faults may take away */
	uint32_t absent_mask;       /* of them: not connected from the start */
	bool has_sibling;           /* a second comm over the same rails */
	unsigned int fault_count;
	struct fault faults[SIM_FAULTS_MAX];
};

void conf_draw(struct sim_conf *conf, uint64_t seed);
/** The second comm of a run: other traffic over the same rails; the first one's faults hit both. */
void conf_draw_sibling(struct sim_conf *conf, const struct sim_conf *first);
uint32_t conf_send_bytes(const struct sim_conf *conf, uint64_t seq);
uint32_t conf_recv_bytes(const struct sim_conf *conf, uint64_t seq);
/** gen: how often the HCA was opened again. */
uint32_t conf_key_mask(const struct sim_conf *conf, enum sim_side side, uint64_t seq, uint32_t gen);
/** Is the HCA opened again before this attempt to rejoin. */
bool conf_is_replaced(const struct sim_conf *conf, enum sim_side side, unsigned int path,
		      uint32_t epoch);

#endif
