/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/flow.h"

#include "test/driver/data.h"

enum {
	ALIGN = 32 /**< elements: message boundaries at multiples of 128 bytes */
};

static size_t div_up(size_t a, size_t b)
{
	return (a + b - 1) / b;
}

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t chunk_of(size_t count, uint32_t ranks)
{
	return div_up(div_up(count, ranks), ALIGN) * ALIGN;
}

/** Elements all ranks' chunks hold in one ring loop. */
static size_t loop_span(const struct flow *flow)
{
	return flow->rank_count * flow->slices * flow->cap;
}

void flow_cut(struct flow *flow, size_t min_slice)
{
	size_t messages = div_up(flow->count, flow->cap);

	flow->slices = 1;
	if (flow->kind == FLOW_RING) {
		size_t chunk = chunk_of(flow->count, flow->rank_count);

		flow->slices = min_size(div_up(chunk, min_slice), FLOW_STEPS);
		flow->slices = flow->slices ? flow->slices : 1;
		size_t loops = div_up(flow->count, loop_span(flow));

		messages = (loops ? loops : 1) * 2 * (flow->rank_count - 1) * flow->slices;
	}
	flow->total = messages ? messages : 1;
}

static struct msg ring_msg(const struct flow *flow, uint64_t idx)
{
	uint32_t ranks = flow->rank_count;
	uint64_t steps = 2 * ((uint64_t)ranks - 1);
	uint64_t slice_idx = idx % flow->slices;
	uint32_t step = (uint32_t)(idx / flow->slices % steps);
	size_t start = (size_t)(idx / flow->slices / steps) * loop_span(flow);
	size_t left = min_size(flow->count - start, loop_span(flow));
	size_t chunk = chunk_of(left, ranks);
	size_t slice = chunk_of(chunk, (uint32_t)flow->slices);
	uint32_t back = flow->dir == FLOW_SEND ? step : step + 1;
	uint32_t chunk_idx = (flow->rank + 2 * ranks - back) % ranks;
	/* Cut the slice at the end of its chunk, and the chunk at the end of the loop. */
	size_t from = min_size(slice_idx * slice, chunk);
	size_t to = min_size(from + slice, chunk);
	size_t chunk_at = chunk_idx * chunk;

	from = min_size(chunk_at + from, left);
	to = min_size(chunk_at + to, left);
	return (struct msg){
		.off = flow->base + start + from,
		.count = to - from,
		.from_in = step == 0,
		.reduce = step + 1 < ranks,
		.has_dep = step > 0,
		.dep = idx - (step > 0 ? flow->slices : 0),
		.key_first = chunk_idx,
		.key_count = step + 1 < ranks ? step + 1 : ranks,
	};
}

struct msg flow_msg(const struct flow *flow, uint64_t idx)
{
	if (flow->kind == FLOW_RING) {
		return ring_msg(flow, idx);
	}
	size_t from = min_size((size_t)idx * flow->cap, flow->count);

	return (struct msg){
		.off = flow->base + from,
		.count = min_size(flow->cap, flow->count - from),
		.from_in = true,
		.key_count = 1,
	};
}

uint32_t flow_element(const struct flow *flow, const struct msg *msg, size_t i)
{
	uint32_t idx = (uint32_t)(msg->off + i - flow->idx_base);
	uint32_t sum = 0;

	for (uint32_t k = 0; k < msg->key_count; k++) {
		sum += data_element(flow->keys[(msg->key_first + k) % flow->rank_count], idx);
	}
	return sum;
}
