/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_RX_H
#define BRAID_REPAIR_RX_H

#include "include/log.h"
#include "repair/ack.h"
#include "repair/book.h"
#include "repair/end.h"

/** One posted receive, beside its entry in the book. */
struct repair_rx_slot {
	uint64_t seq;
	bool open;          /* between recv and release */
	bool cts_wanted;    /* the clear-to-send entry has to be posted (again) */
	int8_t cts_path;    /* path of the last post; -1: none, or known to have arrived */
	uint32_t path_mask; /* paths that brought pieces: all of them are flushed for GPU memory */
	void *cookie;       /* of the receive */
};

/**
 * Receiver end of a comm: posts clear-to-send entries, keeps the book, acknowledges.
 *
 * Reuse of a CTS slot. The entry of seq n + WINDOW_MSGS overwrites that of seq n, so no write of
 * the old entry may land later. An entry is written again only when both ends have fenced its path
 * and the sender's FENCED says that its ring lacks it: of all writes of n at most one ever lands.
 * Once n is complete the sender has seen it, so it has landed, and RC does not execute it twice.
 *
 * Acknowledgements. Each clear-to-send entry carries one, of the moment it was filled; what none is
 * likely to carry soon is written as a word. Each path has its own word at the sender, and words
 * only grow: a late write on one path can't take back what another path said. An acknowledgement
 * that is lost with its path, as word or entry, need not be said again: FENCED of that path, which
 * the sender waits for, is read out later and says more.
 */
struct repair_rx {
	struct repair_end end;
	struct book book;
	struct wire_cts *cts;              /* own copy of the ring, source of the writes */
	const struct wire_record *records; /* ring of WIRE_RECORDS, written by the peer */
	uint64_t released_seq;             /* every message below was reported done */
	uint64_t acked_seq;                /* last value posted as acknowledgement */
	uint64_t cts_seq;                  /* no entry below is wanted */
	struct ack_pace pace;
	struct repair_rx_slot slots[WINDOW_MSGS];
};

struct repair_recv {
	void *cookie; /* names the local memory registration; NULL: empty */
	uint64_t addr;
	uint64_t size_bytes;
	uint32_t key_mask; /* paths on which the buffer is registered */
	uint32_t rkeys[PATHS_MAX];
};

void repair_rx_init(struct repair_rx *rx, const struct repair_ops *ops, void *ctx,
		    const struct repair_limits *limits, struct wire_cts *cts,
		    const struct wire_record *records);

/** Post a receive. 0; -EAGAIN: window full, try again; -EIO: the comm has failed. */
int repair_rx_recv(struct repair_rx *rx, const struct repair_recv *recv, uint64_t now_ns,
		   uint64_t *seq);

/**
 * After ops->ack_later() took this end: posts what has waited since the last round or, where
 * is_last says that nobody may call for long, whatever waits. False: nothing waits any more, no
 * further rounds until ops->ack_later().
 */
bool repair_rx_ack_round(struct repair_rx *rx, bool is_last, uint64_t now_ns);

/** May what is complete and not acknowledged wait for an entry? */
static inline bool repair_rx_ack_may_wait(const struct repair_rx *rx)
{
	return rx->book.next_seq - rx->acked_seq < rx->pace.count_max;
}

/** True when the book has all of message seq; *size_bytes is what came, *path_mask who brought it.
 */
static inline bool repair_rx_done(const struct repair_rx *rx, uint64_t seq, uint64_t *size_bytes,
				  uint32_t *path_mask)
{
	if (!book_is_complete(&rx->book, seq)) {
		return false;
	}
	*size_bytes = book_msg(&rx->book, seq)->total_bytes;
	*path_mask = rx->slots[wire_slot(seq)].path_mask;
	return true;
}

/**
 * Nothing for the pump after completions were entered: no entry is wanted, and what is to be
 * acknowledged may wait. Receives are posted as they complete.
 */
static inline bool repair_rx_is_calm(const struct repair_rx *rx)
{
	return rx->cts_seq >= rx->book.posted_seq &&
	       (rx->book.next_seq == rx->acked_seq ||
		(rx->pace.is_listed && repair_rx_ack_may_wait(rx)));
}

/** Free the slot of a done message. */
static inline void repair_rx_release(struct repair_rx *rx, uint64_t seq)
{
	ASSERT(rx->slots[wire_slot(seq)].seq == seq);
	rx->slots[wire_slot(seq)].open = false;
	while (rx->released_seq < rx->book.posted_seq &&
	       !rx->slots[wire_slot(rx->released_seq)].open) {
		rx->released_seq++;
	}
}

#endif
