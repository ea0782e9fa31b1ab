/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/cq.h"

#include "test/fabric/call.h"
#include "test/fabric/event.h"
#include "test/fabric/pipe.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define CQE_MAX (1 << 20)

static uint32_t ring_size(int cqe)
{
	uint32_t size = 1;

	while (size < (uint32_t)cqe) {
		size <<= 1;
	}
	return size;
}

static int slot_find(struct fab_ctx *ctx, struct fab_cq *cq)
{
	int rc = -ENOMEM;

	pthread_mutex_lock(&ctx->lock);
	for (uint32_t i = 0; i < FAB_MAX_CQS; i++) {
		if (ctx->cqs[i] == NULL) {
			ctx->cqs[i] = cq;
			cq->idx = i;
			if (i >= atomic_load(&ctx->cq_high)) {
				atomic_store(&ctx->cq_high, i + 1);
			}
			rc = 0;
			break;
		}
	}
	pthread_mutex_unlock(&ctx->lock);
	return rc;
}

static void slot_free(struct fab_ctx *ctx, const struct fab_cq *cq)
{
	pthread_mutex_lock(&ctx->lock);
	ctx->cqs[cq->idx] = NULL;
	pthread_mutex_unlock(&ctx->lock);
}

static int ring_make(struct fab_ctx *ctx, struct fab_cq *cq, uint32_t size)
{
	uint64_t offset = fab_heap_alloc(ctx, (uint64_t)size * sizeof(struct fab_cqe));

	if (offset == 0) {
		return -ENOMEM;
	}
	cq->slot = &ctx->inst->cqs[cq->idx];
	cq->slot->size = size;
	cq->slot->ring_off = offset;
	atomic_store_explicit(&cq->slot->tail, 0, memory_order_relaxed);
	atomic_store_explicit(&cq->slot->head, 0, memory_order_relaxed);
	atomic_store_explicit(&cq->slot->armed, FAB_CQ_UNARMED, memory_order_relaxed);
	atomic_store_explicit(&cq->slot->fired, 0, memory_order_relaxed);
	atomic_store_explicit(&cq->slot->overrun, 0, memory_order_relaxed);
	cq->ring = fab_inst_at(ctx->inst, offset);
	cq->size = size;
	return 0;
}

static void ibv_cq_fill(struct fab_cq *cq, struct fab_ctx *ctx, struct ibv_comp_channel *channel,
			void *cq_context)
{
	cq->ctx = ctx;
	cq->ibv.context = &ctx->verbs.context;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.handle = cq->idx;
	cq->ibv.cqe = (int)cq->slot->size;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	pthread_mutex_init(&cq->poll_lock, NULL);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	struct fab_ctx *ctx = fab_ctx_of(context);
	struct fab_cq *cq = NULL;
	int rc = fab_call_begin(ctx->port, FAB_CALL_CREATE_CQ);

	if (rc != 0) {
		goto fail;
	}
	rc = -EINVAL;
	if (cqe < 1 || cqe > CQE_MAX || comp_vector < 0 ||
	    comp_vector >= context->num_comp_vectors) {
		goto fail;
	}
	rc = -EIO;
	if (fab_ctx_dead(ctx)) {
		goto fail;
	}
	rc = -ENOMEM;
	cq = calloc(1, sizeof(*cq));
	if (cq == NULL || slot_find(ctx, cq) != 0) {
		goto free_cq;
	}
	rc = ring_make(ctx, cq, ring_size(cqe));
	if (rc != 0) {
		goto free_slot;
	}
	ibv_cq_fill(cq, ctx, channel, cq_context);
	if (channel != NULL) {
		atomic_fetch_add(&((struct fab_channel *)(void *)channel)->cq_count, 1);
	}
	fab_ctx_object_add(ctx);
	return &cq->ibv;

free_slot:
	slot_free(ctx, cq);
free_cq:
	free(cq);
fail:
	errno = -rc;
	return NULL;
}

static bool event_is_of(const void *entry, const void *cq)
{
	return *(const uintptr_t *)entry == (uintptr_t)cq;
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct fab_channel *channel = (struct fab_channel *)(void *)ibv->channel;
	struct fab_cq *cq = fab_cq_of(ibv);
	struct fab_ctx *ctx = cq->ctx;

	if (atomic_load(&cq->qp_count) != 0) {
		return EBUSY;
	}
	/* The engine may be writing this queue's event. What nobody read is taken back; what was
	 * read has to be acknowledged first. */
	fab_engine_hold(ctx);
	slot_free(ctx, cq);
	if (channel != NULL) {
		cq->notified -= fab_pipe_remove(channel->ibv.fd, channel->write_fd, sizeof(ibv),
						event_is_of, ibv);
	}
	fab_engine_release(ctx);
	fab_pipe_wait_acked(&ibv->mutex, &ibv->cond, &ibv->comp_events_completed, cq->notified);
	fab_event_withdraw(ctx, ibv, &cq->async_told);
	fab_pipe_wait_acked(&ibv->mutex, &ibv->cond, &ibv->async_events_completed, cq->async_told);
	fab_heap_free(ctx, cq->slot->ring_off, (uint64_t)cq->slot->size * sizeof(struct fab_cqe));
	if (channel != NULL) {
		atomic_fetch_sub(&channel->cq_count, 1);
	}
	pthread_mutex_destroy(&cq->poll_lock);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	free(cq);
	fab_ctx_object_del(ctx);
	return 0;
}

int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
	/* The ring is a power of two and was rounded up: growing inside it is free. */
	return cqe >= 1 && cqe <= ibv->cqe ? 0 : fab_unsupported("ibv_resize_cq");
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct fab_channel *channel = calloc(1, sizeof(*channel));
	int rc;

	if (channel == NULL) {
		return NULL;
	}
	rc = fab_pipe_open(&channel->ibv.fd, &channel->write_fd);
	if (rc != 0) {
		free(channel);
		errno = -rc;
		return NULL;
	}
	channel->ibv.context = context;
	fab_ctx_object_add(fab_ctx_of(context));
	return &channel->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct fab_channel *channel = (struct fab_channel *)(void *)ibv;

	if (atomic_load(&channel->cq_count) != 0) {
		return EBUSY;
	}
	close(channel->ibv.fd);
	close(channel->write_fd);
	fab_ctx_object_del(fab_ctx_of(ibv->context));
	free(channel);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	uintptr_t got;
	ssize_t len = read(channel->fd, &got, sizeof(got));

	if (len != (ssize_t)sizeof(got)) {
		errno = len < 0 ? errno : EIO;
		return -1;
	}
	*cq = (struct ibv_cq *)got; /* fab_cq_notify() wrote it */
	*cq_context = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *ibv, unsigned int count)
{
	pthread_mutex_lock(&ibv->mutex);
	ibv->comp_events_completed += count;
	pthread_cond_broadcast(&ibv->cond);
	pthread_mutex_unlock(&ibv->mutex);
}

void fab_cq_notify(struct fab_ctx *ctx)
{
	if (atomic_exchange_explicit(&ctx->inst->comp_due, 0, memory_order_acq_rel) == 0) {
		return;
	}
	fab_engine_hold(ctx); /* keeps CQs from being destroyed meanwhile */
	for (uint32_t i = 0; i < atomic_load(&ctx->cq_high); i++) {
		struct fab_cq *cq = ctx->cqs[i];
		struct fab_channel *channel;
		uintptr_t ibv;

		if (cq == NULL ||
		    atomic_exchange_explicit(&cq->slot->fired, 0, memory_order_acq_rel) == 0) {
			continue;
		}
		channel = (struct fab_channel *)(void *)cq->ibv.channel;
		ibv = (uintptr_t)&cq->ibv;
		if (channel != NULL &&
		    write(channel->write_fd, &ibv, sizeof(ibv)) == (ssize_t)sizeof(ibv)) {
			cq->notified++;
		}
	}
	fab_engine_release(ctx);
}
