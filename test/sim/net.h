/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_SIM_NET_H
#define BRAID_SIM_NET_H

#include "repair/end.h"
#include "test/sim/conf.h"
#include "test/sim/evq.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * A network of reliable connections, one QP pair per path, as the InfiniBand specification has
 * them: requests run in order, an acknowledgement covers everything before it, a lost one makes the
 * requester send again, the responder places nothing twice and places nothing once its QP is in
 * ERR. A write travels in chunks, so it can be half there. Payload is read when it is sent, so a
 * buffer that changes too early is sent changed.
 */
struct sim;

enum {
	NET_SQ_WRS = 1024,
	NET_CQ_WCS = 4096,
	NET_INLINE_BYTES = 128,
	NET_LARGE_BYTES = 64 /* a longer packet may be too long */
};

enum net_tag {
	NET_DATA,   /* part of a piece, a record follows */
	NET_WHOLE,  /* a whole message */
	NET_RECORD, /* a record */
	NET_CTS,
	NET_ACK,
	NET_PROBE, /* zero bytes, or the probe of a rejoin */
};

enum qp_state {
	QP_INIT, /* made, not connected */
	QP_RTS,
	QP_ERR,
	QP_GONE, /* RESET or destroyed */
};

/** What one write is about, for the checks. */
struct net_note {
	uint8_t tag; /* enum net_tag */
	uint8_t piece;
	uint64_t seq;
};

struct net_wr {
	uint64_t wr_id;
	const uint8_t *src; /* NULL: inline */
	uint8_t *dst;
	uint32_t len_bytes, imm, psn;
	uint16_t chunk_count;
	bool has_imm, signalled;
	struct net_note note;
	uint8_t data[NET_INLINE_BYTES];
};

struct net_chunk {
	struct net_note note;
	uint32_t psn, imm, write_len_bytes;
	uint32_t src_qpn, dst_qpn;
	uint32_t gen; /* of the responder, when accepted */
	bool is_last, has_imm, was_held;
	uint8_t *dst;
	uint32_t len_bytes;
	uint8_t data[];
};

struct net_wc {
	uint64_t visible_ns;
	struct repair_wc wc;
};

struct net_qp {
	enum qp_state state;
	uint32_t qpn, peer_qpn; /* numbers are never used twice */
	bool dead;              /* its HCA died */
	bool flushes;           /* false: leaves out some of the completions of a flush */
	/* requester; free-running indices into sq */
	uint32_t una, next, tail;
	uint32_t psn_tail; /* each QP starts at 0: packets are told apart by QP numbers */
	uint32_t resends_left;
	uint64_t progress_ns, free_ns, last_arrive_ns;
	bool timer_on;
	/* responder */
	uint32_t psn_expected;
	uint32_t recvs;
	uint64_t recv_wr_id;
	uint64_t last_place_ns;
	uint32_t gen;
	/* completions of both */
	uint32_t cq_head, cq_tail;
	uint64_t last_visible_ns;
	struct net_wr sq[NET_SQ_WRS];
	struct net_wc cq[NET_CQ_WCS];
};

/** One direction of a path. */
struct net_wire {
	bool drops, drops_acks, drops_large, holds;
	uint64_t release_ns; /* UINT64_MAX: stays as it is */
	uint64_t garbles_ns; /* changes probes until then */
};

struct net_nic {
	bool dead;
	uint32_t gen; /* how often it was opened again: memory has other keys then */
	uint64_t revive_ns;
};

enum {
	NET_ARENA_BYTES = 24 << 20
};

struct net {
	struct net_qp qps[SIDE_COUNT][PATHS_MAX];
	struct net_wire wires[SIDE_COUNT][PATHS_MAX]; /* by sending side */
	struct net_nic nics[SIDE_COUNT][PATHS_MAX];
	uint32_t next_qpn;
	uint32_t arena_used;
	_Alignas(16) uint8_t arena[NET_ARENA_BYTES]; /* chunks and frames of this run */
};

void net_init(struct sim *sim);
/** Memory that lives until the run ends; NULL when there is none left. */
void *net_alloc(struct sim *sim, uint32_t size_bytes);

/** Room for count more WRs in the send queue. */
bool net_has_room(const struct sim *sim, unsigned int side, unsigned int path, uint32_t count);
/** Queue a WR: the fields up to note, and data when src is NULL, are read. */
void net_post(struct sim *sim, unsigned int side, unsigned int path, const struct net_wr *wr);
void net_post_recvs(struct sim *sim, unsigned int side, unsigned int path, uint64_t wr_id,
		    uint32_t count);
/** QP to ERR; the oldest WR gets cause (CAUSE_FLUSH: like the rest). */
void net_qp_error(struct sim *sim, unsigned int side, unsigned int path, enum cause cause);
/** RESET or destroy: what is not visible in the CQ is lost. */
void net_qp_reset(struct sim *sim, unsigned int side, unsigned int path);
/** A new QP in the place of a fenced one; false when the HCA is dead. */
bool net_qp_make(struct sim *sim, unsigned int side, unsigned int path);
/** INIT to RTS. */
bool net_qp_connect(struct sim *sim, unsigned int side, unsigned int path, uint32_t peer_qpn);
/** Everything between the two ends of a path works. */
bool net_is_sound(const struct sim *sim, unsigned int path);
void net_nic_die(struct sim *sim, unsigned int side, unsigned int path);
/** The next visible completion. */
bool net_poll(struct sim *sim, unsigned int side, unsigned int path, struct repair_wc *wc);

void net_on_timer(struct sim *sim, const struct ev *ev);
void net_on_ack(struct sim *sim, const struct ev *ev);
void net_on_arrive(struct sim *sim, const struct ev *ev);
void net_on_place(struct sim *sim, const struct ev *ev);

/* For responder.c. */
void net_push_wc(struct sim *sim, unsigned int side, unsigned int path, struct net_wc wc);

#endif
