/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/queue.h"

#include "oob/codec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int oob_queue_item_create(const struct frame *frame, struct oob_queue_item **out)
{
	uint8_t bytes[OOB_FRAME_MAX_BYTES];
	struct oob_queue_item *item;
	size_t len_bytes;
	int err = oob_codec_put(frame, bytes, &len_bytes);

	if (err != 0) {
		return err;
	}
	item = malloc(sizeof(*item) + len_bytes);
	if (item == NULL) {
		return -ENOMEM;
	}
	item->next = NULL;
	item->len_bytes = len_bytes;
	memcpy(item->bytes, bytes, len_bytes);
	*out = item;
	return 0;
}

bool oob_queue_has_room(const struct oob_queue *queue, size_t len_bytes)
{
	return queue->held_bytes + len_bytes <= OOB_QUEUE_MAX_BYTES;
}

void oob_queue_push(struct oob_queue *queue, struct oob_queue_item *item)
{
	item->seq = ++queue->last_seq;
	if (queue->head == NULL) {
		queue->head = item;
	} else {
		queue->tail->next = item;
	}
	queue->tail = item;
	if (queue->next == NULL) {
		queue->next = item;
	}
	queue->held_bytes += item->len_bytes;
}

int oob_queue_ack(struct oob_queue *queue, uint64_t ack)
{
	if (ack > queue->last_seq) {
		return -EPROTO;
	}
	while (queue->head != NULL && queue->head->seq <= ack) {
		struct oob_queue_item *item = queue->head;

		/* acknowledged on an older connection before it was sent again on this one */
		if (queue->next == item) {
			queue->next = item->next;
		}
		queue->head = item->next;
		queue->held_bytes -= item->len_bytes;
		free(item);
	}
	if (ack > queue->acked_seq) {
		queue->acked_seq = ack;
	}
	return 0;
}

void oob_queue_rewind(struct oob_queue *queue)
{
	queue->next = queue->head;
}

void oob_queue_clear(struct oob_queue *queue)
{
	while (queue->head != NULL) {
		struct oob_queue_item *item = queue->head;

		queue->head = item->next;
		free(item);
	}
	queue->next = NULL;
	queue->tail = NULL;
	queue->held_bytes = 0;
}
