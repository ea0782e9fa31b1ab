/* SPDX-License-Identifier: Apache-2.0 */
#include "test/sim/evq.h"

static bool before(const struct ev *a, const struct ev *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

void evq_init(struct evq *q)
{
	q->count = 0;
	q->next_order = 0;
}

bool evq_push(struct evq *q, struct ev ev)
{
	ev.order = q->next_order++;
	return evq_defer(q, ev);
}

bool evq_defer(struct evq *q, struct ev ev)
{
	uint32_t i = q->count;

	if (i == EVQ_MAX) {
		return false;
	}
	q->count++;
	while (i > 0 && before(&ev, &q->heap[(i - 1) / 2])) {
		q->heap[i] = q->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	q->heap[i] = ev;
	return true;
}

bool evq_pop(struct evq *q, struct ev *ev)
{
	struct ev last;
	uint32_t i = 0;

	if (q->count == 0) {
		return false;
	}
	*ev = q->heap[0];
	last = q->heap[--q->count];
	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= q->count) {
			break;
		}
		if (child + 1 < q->count && before(&q->heap[child + 1], &q->heap[child])) {
			child++;
		}
		if (!before(&q->heap[child], &last)) {
			break;
		}
		q->heap[i] = q->heap[child];
		i = child;
	}
	q->heap[i] = last;
	return true;
}
