/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/book.h"

#include "include/log.h"

#include <errno.h>
#include <string.h>

static uint32_t full_mask(uint32_t pieces)
{
	return pieces == 32 ? UINT32_MAX : (1u << pieces) - 1;
}

static_assert(PIECES_MAX == 32, "full_mask() and the bit type");

void book_init(struct book *book)
{
	memset(book, 0, sizeof(*book));
	book->next_seq = 1;
	book->posted_seq = 1;
}

uint64_t book_post(struct book *book, uint64_t room_bytes)
{
	uint64_t seq = book->posted_seq;

	ASSERT(seq - book->next_seq < WINDOW_MSGS);
	book->msgs[wire_slot(seq)] = (struct book_msg){.seq = seq, .room_bytes = room_bytes};
	book->posted_seq++;
	return seq;
}

bool book_resolve(const struct book *book, uint16_t seq_low, uint64_t *seq)
{
	uint16_t ahead = (uint16_t)(seq_low - (uint16_t)book->next_seq);

	if (ahead >= book->posted_seq - book->next_seq) {
		return false;
	}
	*seq = book->next_seq + ahead;
	return true;
}

static int violation(struct book *book, const char **why, const char *text)
{
	book->violation_count++;
	*why = text;
	return -EPROTO;
}

/* Set the bits of one piece and move next_seq over what is now complete. */
static void enter(struct book *book, struct book_msg *msg, uint32_t piece, uint32_t len_bytes)
{
	msg->arrived |= 1u << piece;
	book->bytes_total += len_bytes;
	while (book->next_seq < book->posted_seq &&
	       book_msg_is_complete(&book->msgs[wire_slot(book->next_seq)])) {
		book->next_seq++;
	}
}

int book_enter_whole(struct book *book, uint16_t seq_low, uint32_t len_bytes, const char **why)
{
	struct book_msg *msg;
	uint64_t seq;

	if (!book_resolve(book, seq_low, &seq)) {
		return violation(book, why, "whole message for no open receive");
	}
	msg = &book->msgs[wire_slot(seq)];
	if (msg->arrived) {
		return violation(book, why, "whole message arrived twice");
	}
	if (len_bytes > msg->room_bytes) {
		return violation(book, why, "whole message larger than its receive");
	}
	msg->cut = (struct plan_cut){.pieces = 1, .piece_len_bytes = len_bytes};
	msg->wanted = 1;
	msg->total_bytes = len_bytes;
	enter(book, msg, 0, len_bytes);
	return 0;
}

/* The cut follows from the first record of a message; later ones must agree. */
static int check_cut(const struct book_msg *msg, const struct wire_record *rec,
		     struct plan_cut *cut, const char **why)
{
	cut->pieces = rec->pieces;
	if (rec->pieces == 0 || rec->pieces > PIECES_MAX || rec->piece >= rec->pieces) {
		*why = "record with an impossible piece";
		return -EPROTO;
	}
	if (rec->total_bytes > msg->room_bytes) {
		*why = "message larger than its receive";
		return -EPROTO;
	}
	if (msg->cut.pieces &&
	    (msg->cut.pieces != rec->pieces || msg->total_bytes != rec->total_bytes)) {
		*why = "records of one message disagree";
		return -EPROTO;
	}
	if (msg->cut.pieces) {
		*cut = msg->cut;
	} else if (rec->pieces == 1) {
		cut->piece_len_bytes = rec->total_bytes;
	} else {
		/* All but the last have the same length, and the last starts behind them. */
		cut->piece_len_bytes = rec->piece ? rec->offset_bytes / rec->piece : rec->len_bytes;
	}
	return 0;
}

static bool range_fits(struct plan_cut cut, const struct wire_record *rec)
{
	uint64_t before;

	if (__builtin_mul_overflow(cut.piece_len_bytes, (uint64_t)cut.pieces - 1, &before) ||
	    before > rec->total_bytes || rec->total_bytes - before > cut.piece_len_bytes) {
		return false;
	}
	return rec->offset_bytes == plan_piece_offset_bytes(cut, rec->piece) &&
	       rec->len_bytes == plan_piece_len_bytes(cut, rec->total_bytes, rec->piece);
}

int book_enter_record(struct book *book, struct wire_imm imm, const struct wire_record *rec,
		      const char **why)
{
	struct plan_cut cut;
	struct book_msg *msg;
	uint64_t seq;

	if (!book_resolve(book, imm.seq_low, &seq)) {
		return violation(book, why, "record for no open receive");
	}
	if (rec->seq != seq || rec->piece != imm.piece) {
		return violation(book, why, "record does not match its immediate");
	}
	msg = &book->msgs[wire_slot(seq)];
	if (check_cut(msg, rec, &cut, why)) {
		book->violation_count++;
		return -EPROTO;
	}
	if (!range_fits(cut, rec)) {
		return violation(book, why, "record with an impossible range");
	}
	if (msg->arrived >> rec->piece & 1) {
		return violation(book, why, "piece arrived twice");
	}
	msg->cut = cut;
	msg->wanted = full_mask(cut.pieces);
	msg->total_bytes = rec->total_bytes;
	enter(book, msg, rec->piece, rec->len_bytes);
	return 0;
}

void book_read_out(const struct book *book, struct frame_fenced *out)
{
	out->next_seq = book->next_seq;
	memset(out->pieces, 0, sizeof(out->pieces));
	for (uint64_t seq = book->next_seq; seq < book->posted_seq; seq++) {
		out->pieces[seq - book->next_seq] = book_msg(book, seq)->arrived;
	}
}
