/* SPDX-License-Identifier: Apache-2.0 */
/* Immediates and records as a hostile sender may write them. */
#include "include/log.h"
#include "repair/book.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

struct reader {
	const uint8_t *at;
	size_t left_bytes;
};

static void take(struct reader *reader, void *out, size_t len_bytes)
{
	size_t part = len_bytes < reader->left_bytes ? len_bytes : reader->left_bytes;

	memset(out, 0, len_bytes);
	memcpy(out, reader->at, part);
	reader->at += part;
	reader->left_bytes -= part;
}

/* What the book says is complete must have come in full and fit its buffer. */
static void check(const struct book *book)
{
	if (book->posted_seq - book->next_seq > WINDOW_MSGS) {
		abort();
	}
	for (uint64_t seq = book->next_seq > WINDOW_MSGS ? book->next_seq - WINDOW_MSGS : 1;
	     seq < book->posted_seq; seq++) {
		const struct book_msg *msg = &book->msgs[wire_slot(seq)];

		if (msg->seq == seq && msg->total_bytes > msg->room_bytes) {
			abort();
		}
		if (msg->seq == seq && seq < book->next_seq && !book_is_complete(book, seq)) {
			abort();
		}
	}
}

static void step(struct book *book, struct reader *reader)
{
	struct wire_record rec;
	const char *why;
	uint32_t raw;
	uint8_t kind;

	take(reader, &kind, sizeof(kind));
	take(reader, &raw, sizeof(raw));
	if (kind % 3 == 0) {
		if (book->posted_seq - book->next_seq < WINDOW_MSGS) {
			book_post(book, raw);
		}
	} else if (kind % 3 == 1) {
		(void)book_enter_whole(book, (uint16_t)raw, raw >> 16, &why);
	} else {
		take(reader, &rec, sizeof(rec));
		if (kind & 0x80) { /* mostly right, so that the checks behind are reached */
			rec.seq = book->next_seq;
			raw = wire_imm_pack((struct wire_imm){.kind = WIRE_IMM_RECORD,
							      .piece = (uint8_t)(rec.piece & 0x1f),
							      .seq_low = (uint16_t)rec.seq});
			rec.piece &= 0x1f;
		}
		(void)book_enter_record(book, wire_imm_unpack(raw), &rec, &why);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	struct reader reader = {.at = data, .left_bytes = len_bytes};
	struct book book;

	book_init(&book);
	while (reader.left_bytes > 0) {
		step(&book, &reader);
		check(&book);
	}
	return 0;
}
