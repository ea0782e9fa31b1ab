/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_SIM_SIM_H
#define BRAID_SIM_SIM_H

#include "include/wire.h"
#include "repair/fence.h"
#include "repair/rejoin.h"
#include "repair/rx.h"
#include "repair/tx.h"
#include "test/sim/conf.h"
#include "test/sim/evq.h"
#include "test/sim/mark.h"
#include "test/sim/net.h"
#include "test/sim/trace.h"

#include <stdbool.h>
#include <stdint.h>

/** A frame on its way; the union's large members are not needed here. */
struct link_frame {
	enum frame_type type;
	bool is_copy;
	union {
		struct frame_fence fence;
		struct frame_fenced fenced;
		struct frame_close close;
		struct frame_rejoin rejoin;
		struct frame_probed probed;
	};
};

/** What drives one end: polls, ticks, frames, the fence worker. */
struct host {
	struct sim *sim;
	unsigned int side;
	struct repair_end *end;
	uint64_t poll_ns;    /* of the poll that is due; UINT64_MAX: none */
	uint64_t stopped_ns; /* the software stands still until then */
	uint64_t nap_ns;     /* the user does not look until then */
	uint64_t full_ns;    /* the link takes nothing until then */
	uint64_t next_post_ns;
	uint64_t link_last_ns;
	uint32_t post_fail_mask; /* paths whose next post fails */
	uint32_t seen_fence_mask;
	uint32_t refused_mask; /* types of frames that the full link did not take */
	uint32_t back_mask;    /* paths that came back once */
	bool closed, killed, user_done, told_closed;
	bool has_rounds; /* one for acknowledgements is due */
	enum cause failed;
	const char *failed_detail;
};

struct user_buf {
	uint64_t seq;
	bool open;
	uint32_t size_bytes;
	uint32_t path_mask; /* receiver: paths whose completion brought a piece */
	uint8_t *mem;
};

/** A user as NCCL is one: posts ahead, tests, uses a buffer again once it is done. */
struct user {
	uint64_t next_seq[SIDE_COUNT], done_count[SIDE_COUNT];
	struct user_buf bufs[SIDE_COUNT][SIM_DEPTH_MAX];
	uint64_t total_bytes;                   /* payload of the run */
	uint8_t posts[WINDOW_MSGS][PIECES_MAX]; /* how often each piece of a slot was posted */
	uint32_t placed[WINDOW_MSGS][PIECES_MAX];
	uint32_t completed[WINDOW_MSGS]; /* pieces that completed at the sender */
	uint64_t cts_posted[WINDOW_MSGS];
	uint64_t slot_seq[WINDOW_MSGS]; /* whom these three are about */
	_Alignas(64) uint8_t mem[SIDE_COUNT][SIM_DEPTH_MAX][SIM_SIZE_MAX];
};

struct sim {
	struct sim_conf conf;
	struct sim *sibling; /* the other comm of this run; NULL: none */
	struct rng rng;
	uint64_t now_ns;
	uint64_t disturbed_ns; /* when the last disturbance ends */
	uint64_t link_ns;      /* no frame arrives until then */
	uint64_t placed_bytes;
	uint64_t next_fault_bytes;
	/* since when the receiver owes an acknowledgement beyond this seq (0: it does not) */
	uint64_t owed_seq, owed_ns, looked_ns;
	uint32_t hook_counts[FAULT_WHEN_COUNT];
	uint64_t marks[2];  /* bit set */
	bool failed, quiet; /* quiet: the run is over, only packets still move */
	char failure[320];
	struct trace trace;
	struct host hosts[SIDE_COUNT];
	struct repair_tx tx;
	struct repair_rx rx;
	/* memory that the other end writes */
	_Alignas(64) struct wire_cts cts[WINDOW_MSGS];
	struct wire_ack acks[PATHS_MAX];
	_Alignas(64) struct wire_record records[WIRE_RECORDS];
	struct wire_cts cts_source[WINDOW_MSGS];
	struct repair_share shares[SIDE_COUNT][PATHS_MAX];
	uint8_t probes_in[SIDE_COUNT][PATHS_MAX * WIRE_PROBE_BYTES];
	uint8_t probes_out[SIDE_COUNT][PATHS_MAX * WIRE_PROBE_BYTES];
	struct evq evq;
	struct user user;
	struct net net;
};

/** Run one seed; true when everything held. Two of the large struct, for seeds with two comms:
 * allocate them once. Failure and marks of both are in the first. */
bool sim_run(struct sim sims[2], uint64_t seed);

/** The first failure counts; later ones are dropped. */
void sim_fail(struct sim *sim, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_push(struct sim *sim, struct ev ev);
/** Time passes trouble-free from at_ns on, at the earliest. */
void sim_disturb(struct sim *sim, uint64_t until_ns);

#define SIM_MARK(sim, name) ((sim)->marks[MARK_##name / 64] |= 1ull << MARK_##name % 64)

enum {
	ROUND_NS = 1000000 /* between two for acknowledgements that wait */
};

/* host.c */
void host_init(struct sim *sim, unsigned int side);
void host_wake(struct sim *sim, unsigned int side, uint64_t at_ns);
void host_event(struct sim *sim, const struct ev *ev);

/* ops.c */
extern const struct repair_ops sim_ops;
bool link_is_full(struct host *host);
void link_send(struct sim *sim, unsigned int side, const struct link_frame *frame);

/* user.c */
void user_init(struct sim *sim);
void user_step(struct sim *sim, unsigned int side);
/** It takes its buffers away: nothing may read or write them any more. */
void user_leave(struct sim *sim, unsigned int side);
/** The HCA of the sender reads a buffer. */
void user_on_read(struct sim *sim, const struct net_wr *wr);
/** Bytes are about to be placed at the receiver. */
void user_on_place(struct sim *sim, const struct net_chunk *chunk, unsigned int path);
void user_on_post(struct sim *sim, const struct repair_piece *piece);
/** Is the buffer of seq registered on the HCA of the path as that was opened last, and under which
 * key. */
bool user_key(const struct sim *sim, unsigned int side, uint64_t seq, unsigned int path,
	      uint32_t *rkey);
void user_on_arrived(struct sim *sim, unsigned int path, uint32_t imm);

/* faults.c */
void fault_strike(struct sim *sim, const struct ev *ev);
void fault_on_bytes(struct sim *sim, uint32_t len_bytes);
void fault_hook(struct sim *sim, enum fault_when when);
void fault_heal(struct sim *sim, const struct ev *ev);
void fault_revive(struct sim *sim, const struct ev *ev);

#endif
