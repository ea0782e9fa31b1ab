/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_QUEUE_H
#define BRAID_OOB_QUEUE_H

#include "include/frame.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Frames of one direction of a link, so that none is lost and none is applied twice although the
 * TCP connection below may be replaced at any byte:
 *
 * - Each frame of a user, and GOODBYE, gets the next number of its direction, from 1. Numbers live
 * as long as the link, not the connection. HELLO, REFUSED in answer to HELLO, and bare acks have 0.
 * - The receiver applies exactly the frame numbered one above the last one it applied, drops
 *   repeated ones, and treats a gap as a broken connection. Every frame it sends, HELLO included,
 *   carries the number of the last one applied as `ack`; when it has nothing to send, a bare ack
 *   goes out after each batch of arrivals.
 * - The sender keeps a frame until an ack covers it. On a new connection the ack in the peer's
 *   HELLO says where to begin; everything kept above it is sent again.
 *
 * Not locked: the link's lock does that.
 */
struct oob_queue_item {
	struct oob_queue_item *next;
	uint64_t seq;
	size_t len_bytes;
	uint8_t bytes[]; /* encoded, sealed only when it is put on a connection */
};

struct oob_queue {
	struct oob_queue_item *head, *tail;
	struct oob_queue_item *next;  /* first one not yet put on the present connection */
	uint64_t last_seq, acked_seq; /* newest number given out, newest one acknowledged */
	size_t held_bytes;
};

enum {
	OOB_QUEUE_MAX_BYTES = 4 << 20
};

/** Encode a frame. 0, -ENOMEM, or -EINVAL. */
int oob_queue_item_create(const struct frame *frame, struct oob_queue_item **out);

/** Would an item of len_bytes stay within OOB_QUEUE_MAX_BYTES? */
bool oob_queue_has_room(const struct oob_queue *queue, size_t len_bytes);

/** Append an item and number it; the queue owns it from here. Bound or not: GOODBYE always fits. */
void oob_queue_push(struct oob_queue *queue, struct oob_queue_item *item);

/** Drop what an ack covers. -EPROTO when it names a frame that was never sent. */
int oob_queue_ack(struct oob_queue *queue, uint64_t ack);

/** A new connection: begin again with the oldest frame kept. */
void oob_queue_rewind(struct oob_queue *queue);

void oob_queue_clear(struct oob_queue *queue);

#endif
