/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_WIRE_H
#define BRAID_WIRE_H

#include "include/limits.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/**
 * Layouts that one end RDMA-writes into the other end's memory. Host byte order: both ends are
 * little-endian, the OPEN frame says so and a peer of the other order is refused.
 *
 * Sequence numbers count the messages of a comm from 1, so zeroed memory never looks valid.
 *
 *  receiver -> sender   CTS ring   WINDOW_MSGS entries, entry of seq n at n % WINDOW_MSGS
 *  receiver -> sender   ack words  one per path, so that each word only ever grows
 *  sender -> receiver   records    entry of (seq, piece) at (seq % WINDOW_MSGS) * PIECES_MAX +
 * piece
 */

/** One clear-to-send line; a whole line is believed only when its check matches. */
struct wire_cts_line0 {
	uint64_t addr;       /* receive buffer */
	uint64_t size_bytes; /* its size */
	uint32_t rkeys[8];   /* of paths 0..7 */
	uint16_t key_mask;   /* bit p: the buffer is registered on path p */
	uint16_t behind;     /* an acknowledgement too: see wire_cts_acks() */
	uint32_t check;      /* wire_line_check() of the line with check = 0 */
	uint64_t seq;
};

struct wire_cts_line1 {
	uint32_t rkeys[8]; /* of paths 8..15; written only when the comm has more than 8 paths */
	uint32_t reserved[5];
	uint32_t check;
	uint64_t seq;
};

/**
 * Entry for one posted receive. For a given seq it never changes, so writing it again over another
 * path is harmless; the slot is used for seq + WINDOW_MSGS only when no write of the old entry can
 * still land (see repair/rx.c).
 */
struct wire_cts {
	struct wire_cts_line0 l0;
	struct wire_cts_line1 l1;
};

/**
 * What an entry acknowledges: every message with seq < the value was complete in the receiver's
 * book when the entry was filled, which never changes after. More may be by now, never less.
 */
static inline uint64_t wire_cts_acks(const struct wire_cts_line0 *line)
{
	return line->seq - line->behind;
}

static_assert(sizeof(struct wire_cts_line0) == 64, "one cache line");
static_assert(WINDOW_MSGS <= UINT16_MAX, "behind");
static_assert(sizeof(struct wire_cts_line1) == 64, "one cache line");
static_assert(offsetof(struct wire_cts_line0, check) == 52, "same place in every line");
static_assert(offsetof(struct wire_cts_line1, check) == 52, "same place in every line");
static_assert(offsetof(struct wire_cts_line0, seq) == 56, "same place in every line");
static_assert(offsetof(struct wire_cts_line1, seq) == 56, "same place in every line");
static_assert(PATHS_MAX == 16, "two lines of eight keys");

/** What travels behind a large piece, and proves by RC order that the piece is there. */
struct wire_record {
	uint64_t seq;
	uint64_t total_bytes; /* of the message */
	uint64_t offset_bytes;
	uint32_t len_bytes;
	uint32_t epoch; /* of the path that carries it */
	uint16_t piece;
	uint16_t pieces; /* of the message */
	uint32_t reserved;
	uint64_t pad[3];
};

static_assert(sizeof(struct wire_record) == 64, "one cache line");
enum {
	WIRE_RECORD_BYTES = offsetof(struct wire_record, pad),
	WIRE_RECORDS = WINDOW_MSGS * PIECES_MAX
};

/** Payload of a probe of a rejoining path: as long as the largest MTU, so that a smaller one shows.
 */
enum {
	WIRE_PROBE_BYTES = 4096
};

/** One acknowledgement word: every message with seq < value is complete in the receiver's book. */
struct wire_ack {
	uint64_t next_seq;
};

/**
 * Immediate data, 32 bits, host order on both sides of the verbs call (callers convert):
 *
 *   31  30 29        22 21        16 15              0
 *  +------+------------+------------+-----------------+
 *  | kind | epoch low 8|   piece    |   seq low 16    |
 *  +------+------------+------------+-----------------+
 *
 * WHOLE: the write was a complete one-piece message; its length is the completion's byte count.
 * RECORD: the write was a struct wire_record for (seq, piece).
 */
enum wire_imm_kind {
	WIRE_IMM_WHOLE = 1,
	WIRE_IMM_RECORD = 2
};

enum {
	WIRE_IMM_SEQ_BITS = 16,
	WIRE_IMM_PIECE_BITS = 6,
	WIRE_IMM_EPOCH_BITS = 8,
	WIRE_IMM_KIND_BITS = 2,
};

static_assert(WIRE_IMM_SEQ_BITS + WIRE_IMM_PIECE_BITS + WIRE_IMM_EPOCH_BITS + WIRE_IMM_KIND_BITS ==
		      32,
	      "the immediate has 32 bits");
static_assert(PIECES_MAX <= (1 << WIRE_IMM_PIECE_BITS), "piece must fit");
static_assert(WINDOW_MSGS < (1 << (WIRE_IMM_SEQ_BITS - 1)), "seq must resolve within the window");

struct wire_imm {
	enum wire_imm_kind kind;
	uint8_t epoch_low;
	uint8_t piece;
	uint16_t seq_low;
};

static inline uint32_t wire_imm_pack(struct wire_imm imm)
{
	return (uint32_t)imm.kind << 30 | (uint32_t)imm.epoch_low << 22 |
	       (uint32_t)(imm.piece & 0x3f) << 16 | imm.seq_low;
}

/** Any 32-bit value decodes; the caller checks kind, piece and seq against its book. */
static inline struct wire_imm wire_imm_unpack(uint32_t raw)
{
	return (struct wire_imm){.kind = (enum wire_imm_kind)(raw >> 30),
				 .epoch_low = (uint8_t)(raw >> 22),
				 .piece = (uint8_t)(raw >> 16 & 0x3f),
				 .seq_low = (uint16_t)raw};
}

static inline uint64_t wire_mix(uint64_t sum, uint64_t word)
{
	return (sum << 7 | sum >> 57) ^ word;
}

/** Check word over a 64-byte line, leaving out the check itself (bytes 52 to 55). */
static inline uint32_t wire_line_check(const void *line)
{
	uint64_t sum = 0x9e3779b97f4a7c15u;
	uint64_t words[8];

	/* Copied out: the line is written through its fields, which a uint64_t may not alias. */
	memcpy(words, line, sizeof(words));
	/* Written out: compilers do not unroll it at -O2, and both ends do it for each message. */
	sum = wire_mix(sum, words[0]);
	sum = wire_mix(sum, words[1]);
	sum = wire_mix(sum, words[2]);
	sum = wire_mix(sum, words[3]);
	sum = wire_mix(sum, words[4]);
	sum = wire_mix(sum, words[5]);
	sum = wire_mix(sum, words[6] & UINT32_MAX);
	sum = wire_mix(sum, words[7]);
	/* Not folded: the keys in both halves of a word change alike from entry to entry. */
	return (uint32_t)(sum * 0x9e3779b97f4a7c15u >> 32);
}

static inline unsigned int wire_slot(uint64_t seq)
{
	return (unsigned int)(seq % WINDOW_MSGS);
}

static inline unsigned int wire_record_idx(uint64_t seq, unsigned int piece)
{
	return wire_slot(seq) * PIECES_MAX + piece;
}

#endif
