/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/ctx.h"

#include <string.h>

/* Size classes are powers of two from 64 bytes on, each with its own chain of free blocks. */
static uint32_t heap_order(uint64_t size_bytes)
{
	uint32_t order = 0;

	while ((64ull << order) < size_bytes) {
		order++;
	}
	return order;
}

uint64_t fab_heap_alloc(struct fab_ctx *ctx, uint64_t size_bytes)
{
	uint32_t order = heap_order(size_bytes);
	uint64_t offset = 0;

	if (order >= FAB_HEAP_CLASSES) {
		return 0;
	}
	pthread_mutex_lock(&ctx->lock);
	if (ctx->heap_next == 0) {
		ctx->heap_next = (sizeof(struct fab_inst) + 4095) & ~4095ull;
	}
	offset = ctx->heap_free[order];
	if (offset != 0) {
		void *block = fab_inst_at(ctx->inst, offset);

		memcpy(&ctx->heap_free[order], block, sizeof(uint64_t));
		memset(block, 0, size_bytes);
	} else if (ctx->heap_next + (64ull << order) <= FAB_INST_BYTES) {
		offset = ctx->heap_next;
		ctx->heap_next += 64ull << order;
	}
	pthread_mutex_unlock(&ctx->lock);
	return offset; /* fresh space is a hole in the file: zero already */
}

void fab_heap_free(struct fab_ctx *ctx, uint64_t offset, uint64_t size_bytes)
{
	uint32_t order = heap_order(size_bytes);

	if (offset == 0) {
		return;
	}
	pthread_mutex_lock(&ctx->lock);
	memcpy(fab_inst_at(ctx->inst, offset), &ctx->heap_free[order], sizeof(uint64_t));
	ctx->heap_free[order] = offset;
	pthread_mutex_unlock(&ctx->lock);
}

void fab_ctx_object_add(struct fab_ctx *ctx)
{
	pthread_mutex_lock(&ctx->lock);
	ctx->object_count++;
	pthread_mutex_unlock(&ctx->lock);
}

void fab_ctx_object_del(struct fab_ctx *ctx)
{
	pthread_mutex_lock(&ctx->lock);
	ctx->object_count--;
	pthread_mutex_unlock(&ctx->lock);
}
