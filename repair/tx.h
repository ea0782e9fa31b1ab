/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_TX_H
#define BRAID_REPAIR_TX_H

#include "repair/end.h"
#include "repair/pace.h"

/** One message at the sender. */
struct repair_tx_msg {
	uint64_t seq; /* 0: slot never used */
	bool open;    /* between send and release */
	bool whole;
	void *cookie;
	uint64_t local_addr, remote_addr, size_bytes;
	uint32_t key_mask; /* paths on which both buffers are registered */
	uint32_t rkeys[PATHS_MAX];
	struct plan_cut cut;
	uint32_t pending;         /* pieces not posted on any path */
	uint32_t sent[PATHS_MAX]; /* pieces posted on path p in its present epoch */
	uint32_t wrs_out;         /* items of this message not yet back */
	struct pace pace;
};

/** Keys of one path that count in place of those in the entries of so many messages. */
struct repair_tx_keys {
	uint64_t first_seq;
	uint32_t count, mask;
	uint32_t keys[WINDOW_MSGS];
};

/**
 * Sender end of a comm. A send is done when the receiver's book covers it (acknowledgement word,
 * clear-to-send entry or FENCED frame) and no WR of it is out: then nothing can read its buffer any
 * more, and the receiver's software is known to have the data (P3).
 *
 * An entry is checked once. It is written once and never changes (repair/rx.h), so when all of it
 * is there it stays, until the entry WINDOW_MSGS later, which the receiver writes when this message
 * is complete.
 */
struct repair_tx {
	struct repair_end end;
	const struct wire_cts *cts;  /* ring of WINDOW_MSGS entries, written by the peer */
	const struct wire_ack *acks; /* PATHS_MAX words, written by the peer */
	uint64_t next_seq;           /* of the next send */
	uint64_t seen_seq;           /* every entry below is in the ring; >= next_seq */
	uint64_t acked_seq;          /* every message below is complete at the receiver */
	uint64_t released_seq;       /* every message below was reported done */
	uint64_t pump_seq;           /* no message below has a piece that waits to be posted */
	uint64_t rekeyed_seq;        /* no message from here on is in any of these */
	struct repair_tx_keys rekeyed[PATHS_MAX]; /* of the last REJOINED */
	struct repair_tx_msg msgs[WINDOW_MSGS];
};

struct repair_send {
	void *cookie;
	uint64_t addr;
	uint64_t size_bytes;
	uint32_t key_mask; /* paths on which the buffer is registered here */
};

void repair_tx_init(struct repair_tx *tx, const struct repair_ops *ops, void *ctx,
		    const struct repair_limits *limits, const struct wire_cts *cts,
		    const struct wire_ack *acks);

/**
 * Send the next message if the receiver is ready for it. The size is clamped to the receive's.
 * 0; -EAGAIN: no clear-to-send or window full, try again; -EIO: the comm has failed.
 */
int repair_tx_send(struct repair_tx *tx, const struct repair_send *send, uint64_t now_ns,
		   uint64_t *seq);

/**
 * Is a send of this size timed (repair/pace.h), so that it needs the exact time? All others may
 * take the end's.
 */
static inline bool repair_tx_wants_time(const struct repair_tx *tx, uint64_t size_bytes)
{
	return size_bytes > tx->end.limits.piece_min_bytes && tx->end.active_count > 1 &&
	       tx->end.paths[0].share;
}

/** Look at the acknowledgement words, and at entries that have come, which acknowledge as well. */
void repair_tx_poll_acks(struct repair_tx *tx);

/** True when message seq is done; *size_bytes is what was sent. */
bool repair_tx_done(const struct repair_tx *tx, uint64_t seq, uint64_t *size_bytes);

/** Free the slot of a done message. */
void repair_tx_release(struct repair_tx *tx, uint64_t seq);

/**
 * The receiver closed: its book at that moment. Sends that it covers are done once their WRs are
 * back, for which the paths are fenced at this end alone; a send that it does not cover fails the
 * comm with PEER_CLOSED, and so does a later one.
 */
void repair_tx_on_close(struct repair_tx *tx, uint64_t next_seq, uint64_t now_ns);

#endif
