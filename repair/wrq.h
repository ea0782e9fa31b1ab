/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_WRQ_H
#define BRAID_REPAIR_WRQ_H

#include "include/log.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/** Items one path may have posted and not completed; an item is a chain of one or two WRs. */
enum {
	WRQ_ITEMS = 256,
	WRQ_WRS = 2 * WRQ_ITEMS
};

enum wrq_kind {
	WRQ_PIECE,  /* data (and its record) of (slot, piece) */
	WRQ_COPY,   /* data that was copied when it was posted: nobody waits for it */
	WRQ_CTS,    /* clear-to-send entry of a slot */
	WRQ_ACK,    /* acknowledgement word */
	WRQ_MARKER, /* zero bytes: a probe, or the last of a QP in ERR, flushed behind everything */
	WRQ_PROBE,  /* of a path that comes back */
	WRQ_KIND_COUNT
};

struct wrq_item {
	uint8_t kind; /* enum wrq_kind */
	uint8_t slot;
	uint8_t piece;
	bool signalled; /* its success makes a completion */
	uint32_t len_bytes;
};

/**
 * The sender's book of one send queue: what was posted and has not come back, in order. Indices run
 * freely; RC completes in order, so a success for index i retires everything up to i.
 */
struct wrq {
	uint32_t posted, done;  /* free-running */
	uint32_t signalled_out; /* of the items that are out */
	struct wrq_item items[WRQ_ITEMS];
};

static inline uint32_t wrq_out(const struct wrq *q)
{
	return q->posted - q->done;
}

/** Room for one more item, one place always kept for the marker. */
static inline bool wrq_has_room(const struct wrq *q)
{
	return wrq_out(q) < WRQ_ITEMS - 1;
}

/** Index the next item will get. */
static inline uint32_t wrq_next(const struct wrq *q)
{
	return q->posted;
}

static_assert((WRQ_ITEMS & (WRQ_ITEMS - 1)) == 0, "free-running indices need a power of two");

/* Inline: once or more for each message. */

/** Record an item as posted. There must be room (the marker may use the last place). */
static inline void wrq_push(struct wrq *q, struct wrq_item item)
{
	ASSERT(wrq_out(q) < WRQ_ITEMS);
	ASSERT(item.kind < WRQ_KIND_COUNT);
	q->items[q->posted % WRQ_ITEMS] = item;
	q->posted++;
	q->signalled_out += item.signalled;
}

/** True when idx is posted and not done: anything else is a completion we do not know. */
static inline bool wrq_knows(const struct wrq *q, uint32_t idx)
{
	return idx - q->done < wrq_out(q);
}

/** Take the oldest item off. There must be one. */
static inline struct wrq_item wrq_pop(struct wrq *q)
{
	struct wrq_item item = q->items[q->done % WRQ_ITEMS];

	ASSERT(wrq_out(q) > 0);
	q->done++;
	q->signalled_out -= item.signalled;
	return item;
}

#endif
