/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_END_H
#define BRAID_REPAIR_END_H

#include "include/cause.h"
#include "include/frame.h"
#include "include/log.h"
#include "include/wire.h"
#include "include/wr_id.h"
#include "repair/path.h"
#include "repair/plan.h"
#include "repair/share.h"
#include "repair/stall.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/**
 * One end of a comm: what sender (repair/tx.h) and receiver (repair/rx.h) have in common. It
 * decides and acts only through the operations it is given; time is an argument. The caller holds
 * the comm's lock around every call. Operations are called with that lock held, must not block and
 * must not call back into repair/.
 */
struct repair_end;

/** Work for the sender's rails: piece of a message, with its record unless whole. */
struct repair_piece {
	unsigned int path;
	uint64_t wr_id;      /* of the last WR of the chain, signalled unless REPAIR_COPIED */
	uint64_t part_wr_id; /* of the data write before the record */
	void *cookie;        /* of the send: names the local memory registration */
	uint64_t local_addr, remote_addr;
	uint32_t len_bytes;
	uint32_t rkey;
	uint32_t imm;
	bool whole;                /* one write with immediate; no record */
	bool needs_signal;         /* also when it is REPAIR_COPIED */
	unsigned int record_idx;   /* place in the receiver's record ring */
	struct wire_record record; /* valid unless whole; seq and piece always. No pad */
};

/* The post itself has taken the bytes (inline), so no WR reads the buffer; signalled on demand. */
enum {
	REPAIR_COPIED = 1
};

enum repair_report_kind {
	REPAIR_REPORT_FAULT,   /* a path was given up; cause, who saw it */
	REPAIR_REPORT_DOWN,    /* both ends fenced, the rest handed over */
	REPAIR_REPORT_NO_PATH, /* the last path is gone, holding */
	REPAIR_REPORT_FAILED,  /* the comm failed for good */
	/* a path carries traffic again, or at last; took_ns: since its fault, or the beginning */
	REPAIR_REPORT_BACK,
	REPAIR_REPORT_STILL_DOWN, /* an attempt to rejoin failed */
	REPAIR_REPORT_SLOW,       /* a path is much slower than others and gets less */
	REPAIR_REPORT_SOUND,      /* and no longer so */
};

struct repair_report {
	enum repair_report_kind kind;
	unsigned int path; /* PATHS_MAX: none in particular */
	enum cause cause;
	bool cause_is_peer;
	uint32_t epoch;
	uint64_t replay_bytes;  /* DOWN at the sender: handed to other paths */
	uint32_t replay_pieces; /* DOWN at the sender */
	uint32_t again_count;   /* DOWN at the receiver: clear-to-send entries issued again */
	uint64_t took_ns;       /* DOWN: from the fault to here */
	unsigned int up_count;  /* paths still up */
	unsigned int percent;   /* SLOW: of what it should carry */
	const char *detail;     /* FAILED: static text or NULL */
};

struct repair_ops {
	/* Posting: 0; -EAGAIN: queue full, nothing was posted; other -errno: the path is broken.
	 * Of a whole piece also REPAIR_COPIED. */
	int (*post_piece)(void *ctx, const struct repair_piece *piece);
	int (*post_cts)(void *ctx, unsigned int path, unsigned int slot, uint64_t wr_id,
			bool signalled);
	int (*post_ack)(void *ctx, unsigned int path, uint64_t next_seq, uint64_t wr_id,
			bool signalled);
	/* An acknowledgement waits (repair/ack.h): call repair_rx_ack_round() every so often from
	 * now on, while it returns true. False: nobody would, so it is posted at once. */
	bool (*ack_later)(void *ctx);
	/* Zero bytes, signalled, to anywhere valid: probes a path, or is the last of a QP in ERR.
	 */
	int (*post_marker)(void *ctx, unsigned int path, uint64_t wr_id);
	/* The path's part of probes_out into the peer's memory, signalled. */
	int (*post_probe)(void *ctx, unsigned int path, uint64_t wr_id);
	/* *posted is set on error too */
	int (*post_recvs)(void *ctx, unsigned int path, uint64_t wr_id, unsigned int count,
			  unsigned int *posted);
	/* Move the path's QP to ERR elsewhere, then call repair_fence_errored. */
	void (*fence)(void *ctx, unsigned int path);
	/* The QP does not flush: enter what its CQ holds, RESET it, then call repair_fence_cut. */
	void (*cut)(void *ctx, unsigned int path);
	/* Make a new QP for the path, of a rail read anew, whose HCA may be opened again for it,
	 * then call repair_rejoin_built. */
	void (*rebuild)(void *ctx, unsigned int path, uint32_t epoch);
	/* Connect it, then call repair_rejoin_joined. */
	void (*join)(void *ctx, unsigned int path, uint32_t epoch, const struct path_side *peer);
	/* Is the memory that the cookie of a send or receive names (NULL: none) registered on the
	 * path now? Then *rkey is its key for the peer. */
	bool (*key)(void *ctx, unsigned int path, void *cookie, uint32_t *rkey);
	/* To the peer. 0; -ENOBUFS, -ENOMEM: not taken, it is told again (repair/notice.h) */
	int (*send)(void *ctx, const struct frame *frame);
	/* Ask the peer's process for a sign of life over the link, then call repair_end_answered.
	 * 0, or -errno when it could not be asked. */
	int (*ask)(void *ctx);
	void (*report)(void *ctx, const struct repair_report *report);
};

/** What differs between sender and receiver; const tables in tx.c and rx.c. */
struct repair_role {
	bool offers; /* this end begins a rejoin */
	void (*arrived)(struct repair_end *end, unsigned int path, uint32_t imm,
			uint32_t len_bytes);
	/* an item is back: in state UP it has succeeded, in any other it may be on its way yet */
	void (*retire)(struct repair_end *end, unsigned int path, struct wrq_item item);
	void (*read_out)(const struct repair_end *end, struct frame_fenced *out);
	/* fills replay_bytes, replay_pieces, again_count */
	void (*reconcile)(struct repair_end *end, unsigned int path,
			  const struct frame_fenced *peer, struct repair_report *report);
	void (*pump)(struct repair_end *end);
	/* receiver: of every receive that is not complete, into REJOINED; sender: out of it */
	void (*tell_keys)(const struct repair_end *end, unsigned int path,
			  struct frame_rejoin *out);
	void (*take_keys)(struct repair_end *end, unsigned int path,
			  const struct frame_rejoin *frame);
	/* true: something waits and no UP path can carry it */
	bool (*starved)(const struct repair_end *end);
	/* true: the peer owes something, so silence on a path is to be looked into */
	bool (*waits)(const struct repair_end *end);
	/* post something signalled on a path that has nothing signalled out */
	void (*probe)(struct repair_end *end, unsigned int path);
};

struct repair_limits {
	uint64_t small_bytes;     /* a message up to this goes as one write with immediate */
	uint64_t piece_min_bytes; /* smallest piece, multiple of PIECE_ALIGN_BYTES */
	uint64_t window_bytes;    /* outstanding bytes per path, where there are several */
	uint64_t alone_bytes;     /* the same where there is one path to go */
	bool uncut_whole;         /* a larger message of one piece goes like a small one */
	uint32_t large_bytes;     /* items from here on are told to other comms (repair/share.h) */
	uint64_t ack_large_bytes; /* fewer larger messages are unacknowledged (repair/ack.h) */
	uint32_t reap_ms;         /* a QP in ERR that has not flushed by then is RESET */
	uint32_t fence_ms;      /* an HCA that has not answered by then fails the comm; 0: never */
	uint32_t no_path_ms;    /* hold this long without any path, while the peer answers */
	uint32_t stall_ms;      /* no completion for this long: ask the peer; 0: never */
	uint32_t rejoin_min_ms; /* first attempt to rejoin; 0: never */
	uint32_t rejoin_max_ms; /* longest pause between attempts */
	uint32_t salt;          /* spreads the attempts of different comms */
};

/** While nothing can move (repair/hold.h). */
struct repair_hold {
	uint64_t since_ns; /* moved on by the time that the peer was silent; 0: something can */
	uint64_t asked_ns; /* first question without an answer yet; 0: none */
	uint64_t said_ns;  /* last question */
};

struct repair_end {
	const struct repair_role *role;
	const struct repair_ops *ops;
	void *ctx;
	struct repair_limits limits;
	unsigned int path_count;
	unsigned int active_count; /* paths that share the load while they are UP */
	uint32_t weight_max;       /* of all paths */
	struct repair_path paths[PATHS_MAX];
	enum cause failed;        /* CAUSE_NONE: alive; sticky */
	const uint8_t *probes_in; /* WIRE_PROBE_BYTES a path, written by the peer */
	uint8_t *probes_out;      /* the same, source of the own probes */
	bool peer_closed;
	bool closing;             /* this end is being closed: errors are expected */
	unsigned int timed_count; /* messages that are timed: the time has to be exact then */
	uint64_t rate;            /* of one path as they had it, a slow mean; 0: not known */
	uint64_t piece_bytes;     /* that suits it, where a message is cut to be shared */
	struct repair_hold hold;
	uint64_t now_ns;  /* of the call in progress */
	uint64_t tick_ns; /* last tick */
};

/** A completion as repair/ needs it. */
struct repair_wc {
	uint64_t wr_id;
	enum cause cause; /* CAUSE_NONE: success */
	uint32_t imm;
	uint32_t len_bytes;
};

/**
 * Time of the call in progress. It never runs backwards, or a path would look silent for ages: a
 * caller may have taken its time before something that failed had the clock read again.
 */
static inline void repair_end_at(struct repair_end *end, uint64_t now_ns)
{
	if (now_ns > end->now_ns) {
		end->now_ns = now_ns;
	}
}

/** Path p is up on both ends with epoch 1. Weight > 0. The receiver posts its receives here. */
void repair_end_ready(struct repair_end *end, unsigned int path, uint32_t weight, uint64_t now_ns);

/** Path p could not be connected, as both ends know: DOWN with epoch 1, and it tries to rejoin. */
void repair_end_absent(struct repair_end *end, unsigned int path, uint32_t weight, uint64_t now_ns);

/** One completion of a path's CQ. */
void repair_end_completed(struct repair_end *end, const struct repair_wc *wc, uint64_t now_ns);

/** This end saw path p fail (event, failed verbs call). Class PATH fences, class SOFT fails the
 * comm. */
void repair_end_fault(struct repair_end *end, unsigned int path, enum cause cause, uint64_t now_ns)
	__attribute__((cold));

/** Time passes: bounds of reaping, of silence, of holding without a path. What the CQs hold has
 * been entered before: a process that was stopped must not take its own sleep for a path's. */
void repair_end_tick(struct repair_end *end, uint64_t now_ns);

/** The peer's process answered the last ask. What the CQs hold has been entered before. */
void repair_end_answered(struct repair_end *end, uint64_t now_ns);

/** Post what can be posted. Called at the end of a poll round and after irecv and isend. */
void repair_end_pump(struct repair_end *end, uint64_t now_ns);

/** Fail the comm for good; the first cause wins. */
void repair_end_fail(struct repair_end *end, enum cause cause, unsigned int path,
		     const char *detail) __attribute__((cold));

/** Frames of the peer. Any values: the sizes and ranges are checked here. */
void repair_end_on_fence(struct repair_end *end, const struct frame_fence *frame, uint64_t now_ns);
void repair_end_on_fenced(struct repair_end *end, const struct frame_fenced *frame,
			  uint64_t now_ns);

/** Nothing is posted any more, nor waited for: what is outstanding is no load on the rails. */
void repair_end_forget(struct repair_end *end);

unsigned int repair_end_up_count(const struct repair_end *end);
uint32_t repair_end_up_mask(const struct repair_end *end);
/** True while a fence is under way, or the link owes the peer a frame: the caller ticks faster and
 * polls. */
bool repair_end_is_repairing(const struct repair_end *end);

/* For tx.c and rx.c, and rejoin.c. */
void repair_end_weigh(struct repair_end *end, unsigned int p, uint32_t weight);
void repair_end_init(struct repair_end *end, const struct repair_role *role,
		     const struct repair_ops *ops, void *ctx, const struct repair_limits *limits);

/* Inline: for each piece, clear-to-send entry and acknowledgement. */

enum {
	SIGNAL_EVERY = 16, /* items that need no completion between two that have one */
};

static_assert(SIGNAL_EVERY < WRQ_ITEMS / 2,
	      "a signalled write must come back before the queue is full");

static inline bool repair_end_signal_due(const struct repair_path *path)
{
	return wrq_next(&path->sq) % SIGNAL_EVERY == SIGNAL_EVERY - 1;
}

static inline uint64_t repair_end_wr_id(const struct repair_end *end, unsigned int p,
					enum wr_kind kind)
{
	const struct repair_path *path = &end->paths[p];

	return wr_id_pack((struct wr_id){.kind = kind,
					 .path = (uint8_t)p,
					 .epoch_low = (uint16_t)path->epoch,
					 .idx = kind == WR_KIND_RECV ? 0 : wrq_next(&path->sq)});
}

/** Account for a posting attempt: 0 pushes the item, an error other than -EAGAIN faults the path.
 */
static inline int repair_end_posted(struct repair_end *end, unsigned int p, struct wrq_item item,
				    int rc)
{
	struct repair_path *path = &end->paths[p];

	if (rc == -EAGAIN) {
		return rc;
	}
	stall_note_post(path, item.signalled);
	/* On an error a part of the chain may be in the queue: it counts as posted until flushed.
	 */
	wrq_push(&path->sq, item);
	share_post(path, item.len_bytes, end->limits.large_bytes);
	if (rc) {
		repair_end_fault(end, p, CAUSE_POST_FAILED, end->now_ns);
	}
	return 0;
}

#endif
