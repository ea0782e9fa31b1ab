/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_BOOK_H
#define BRAID_REPAIR_BOOK_H

#include "include/frame.h"
#include "include/log.h"
#include "include/wire.h"
#include "repair/plan.h"

#include <stdbool.h>
#include <stdint.h>

/** What has arrived of one message. */
struct book_msg {
	uint64_t seq;        /* 0: slot never used */
	uint64_t room_bytes; /* size of the posted receive buffer */
	uint64_t total_bytes;
	struct plan_cut cut; /* pieces 0: nothing has arrived yet */
	uint32_t wanted;     /* bit per piece of the cut; 0: nothing has arrived yet */
	uint32_t arrived;    /* bit per piece */
};

/**
 * The receiver's book of one comm: the byte ranges that have arrived, one bit per piece of each
 * message in the window. It is the only source of "delivered" (P3): a request is done, and the
 * sender is told so, when its message's bits are complete, and never before.
 *
 * A piece is entered once. A second arrival of a piece, a piece of a message that was not posted or
 * is complete, and a piece whose range does not follow from the cut are protocol violations.
 */
struct book {
	uint64_t next_seq;   /* every message below is complete */
	uint64_t posted_seq; /* next seq to be posted; next_seq <= posted_seq <= next_seq +
				WINDOW_MSGS */
	struct book_msg msgs[WINDOW_MSGS];
	uint64_t bytes_total;
	uint64_t violation_count;
};

void book_init(struct book *book);

/** Post the next receive; returns its seq. At most WINDOW_MSGS may be open. */
uint64_t book_post(struct book *book, uint64_t room_bytes);

/**
 * Enter a message that came whole. seq_low is the immediate's. 0, or -EPROTO (nothing changed;
 * *why is a static text).
 */
int book_enter_whole(struct book *book, uint16_t seq_low, uint32_t len_bytes, const char **why);

/**
 * Enter a piece by its record. imm names slot and piece: both are checked against the record, which
 * was read from memory that the peer writes. 0 or -EPROTO.
 */
int book_enter_record(struct book *book, struct wire_imm imm, const struct wire_record *rec,
		      const char **why);

/** Message of seq; seq must be in the window (the last WINDOW_MSGS posted). */
static inline const struct book_msg *book_msg(const struct book *book, uint64_t seq)
{
	const struct book_msg *msg = &book->msgs[wire_slot(seq)];

	ASSERT(msg->seq == seq);
	return msg;
}

static inline bool book_msg_is_complete(const struct book_msg *msg)
{
	return msg->wanted != 0 && msg->arrived == msg->wanted;
}

static inline bool book_is_complete(const struct book *book, uint64_t seq)
{
	return book_msg_is_complete(book_msg(book, seq));
}

/** Fill next_seq and pieces of a FENCED frame. */
void book_read_out(const struct book *book, struct frame_fenced *out);

/** Resolve the low bits of a seq within the window. False when no open message has them. */
bool book_resolve(const struct book *book, uint16_t seq_low, uint64_t *seq);

#endif
