/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/wrq.h"

#include "include/log.h"

#include <assert.h>

static_assert((WRQ_ITEMS & (WRQ_ITEMS - 1)) == 0, "free-running indices need a power of two");

void wrq_push(struct wrq *q, struct wrq_item item)
{
	ASSERT(wrq_out(q) < WRQ_ITEMS);
	ASSERT(item.kind < WRQ_KIND_COUNT);
	q->items[q->posted % WRQ_ITEMS] = item;
	q->posted++;
	q->signalled_out += item.signalled;
}

bool wrq_knows(const struct wrq *q, uint32_t idx)
{
	return idx - q->done < wrq_out(q);
}

struct wrq_item wrq_pop(struct wrq *q)
{
	struct wrq_item item = q->items[q->done % WRQ_ITEMS];

	ASSERT(wrq_out(q) > 0);
	q->done++;
	q->signalled_out -= item.signalled;
	return item;
}
