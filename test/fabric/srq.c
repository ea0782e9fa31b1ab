/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/srq.h"

#include "test/fabric/event.h"
#include "test/fabric/pipe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WR 16384u

static uint64_t entry_bytes(const struct fab_srq_slot *srq)
{
	return sizeof(struct fab_rqe) + srq->max_sge * sizeof(struct fab_sge);
}

static struct fab_rqe *entry_at(struct fab_inst *inst, const struct fab_srq_slot *srq,
				uint64_t number)
{
	return fab_inst_at(inst, srq->rq_off + number % srq->size * entry_bytes(srq));
}

static void limit_check(struct fab_inst *inst, struct fab_srq_slot *srq, uint64_t left)
{
	uint32_t limit = atomic_load_explicit(&srq->limit, memory_order_seq_cst);
	struct fab_event event = {
		.type = IBV_EVENT_SRQ_LIMIT_REACHED,
		.kind = FAB_EVENT_SRQ,
		.number = (uint32_t)(srq - inst->srqs),
	};

	/* Told once; the owner arms it again. */
	if (left < limit && atomic_compare_exchange_strong(&srq->limit, &limit, 0)) {
		fab_inst_post_event(inst, &event);
	}
}

bool fab_receive_ready(struct fab_inst *inst, struct fab_qp_slot *slot)
{
	uint64_t own = atomic_load_explicit(&slot->rq_tail, memory_order_seq_cst);
	struct fab_srq_slot *srq;
	struct fab_rqe *to;
	uint64_t head;

	if (atomic_load_explicit(&slot->rq_head, memory_order_relaxed) != own) {
		return true;
	}
	if (slot->srq == 0) {
		return false;
	}
	srq = &inst->srqs[slot->srq - 1];
	to = fab_qp_rqe(inst, slot, own);
	head = atomic_load_explicit(&srq->head, memory_order_seq_cst);
	do { /* others take entries too, and a taken one may be overwritten: then the head moved */
		if (head == atomic_load_explicit(&srq->tail, memory_order_seq_cst)) {
			return false;
		}
		memcpy(to, entry_at(inst, srq, head), entry_bytes(srq));
	} while (!atomic_compare_exchange_strong(&srq->head, &head, head + 1));
	atomic_store_explicit(&slot->rq_tail, own + 1, memory_order_seq_cst);
	limit_check(inst, srq, atomic_load_explicit(&srq->tail, memory_order_seq_cst) - (head + 1));
	return true;
}

static int slot_find(struct fab_ctx *ctx, struct fab_srq *srq)
{
	int rc = -ENOMEM;

	pthread_mutex_lock(&ctx->lock);
	for (uint32_t i = 0; i < FAB_MAX_SRQS; i++) {
		if (ctx->srqs[i] == NULL) {
			ctx->srqs[i] = srq;
			srq->idx = i;
			srq->slot = &ctx->inst->srqs[i];
			rc = 0;
			break;
		}
	}
	pthread_mutex_unlock(&ctx->lock);
	return rc;
}

static void slot_free(struct fab_ctx *ctx, const struct fab_srq *srq)
{
	pthread_mutex_lock(&ctx->lock);
	ctx->srqs[srq->idx] = NULL;
	pthread_mutex_unlock(&ctx->lock);
}

static int queue_make(struct fab_ctx *ctx, struct fab_srq *srq, const struct ibv_srq_attr *attr)
{
	struct fab_srq_slot *slot = srq->slot;

	srq->max_wr = attr->max_wr;
	slot->size = attr->max_wr;
	slot->max_sge = attr->max_sge > 0 ? attr->max_sge : 1;
	atomic_store_explicit(&slot->tail, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->head, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->limit, 0, memory_order_relaxed);
	slot->rq_off = fab_heap_alloc(ctx, slot->size * entry_bytes(slot));
	return slot->rq_off != 0 ? 0 : -ENOMEM;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct fab_ctx *ctx = fab_ctx_of(pd->context);
	struct fab_srq *srq = NULL;
	int rc = fab_ctx_dead(ctx) ? -EIO : -EINVAL;

	if (rc == -EIO || attr->attr.max_wr < 1 || attr->attr.max_wr > MAX_WR ||
	    attr->attr.max_sge > FAB_MAX_SGE) {
		goto fail;
	}
	rc = -ENOMEM;
	srq = calloc(1, sizeof(*srq));
	if (srq == NULL || slot_find(ctx, srq) != 0) {
		goto free_srq;
	}
	rc = queue_make(ctx, srq, &attr->attr);
	if (rc != 0) {
		goto free_slot;
	}
	srq->ctx = ctx;
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = attr->srq_context;
	srq->ibv.pd = pd;
	srq->ibv.handle = srq->idx;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	pthread_mutex_init(&srq->post_lock, NULL);
	attr->attr.max_sge = srq->slot->max_sge;
	atomic_fetch_add(&fab_pd_of(pd)->use_count, 1);
	fab_ctx_object_add(ctx);
	return &srq->ibv;

free_slot:
	slot_free(ctx, srq);
free_srq:
	free(srq);
fail:
	errno = -rc;
	return NULL;
}

int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int attr_mask)
{
	struct fab_srq *srq = fab_srq_of(ibv);

	if (fab_ctx_dead(srq->ctx)) {
		return EIO;
	}
	if ((attr_mask & IBV_SRQ_MAX_WR) != 0) {
		return fab_unsupported("ibv_modify_srq with IBV_SRQ_MAX_WR");
	}
	if ((attr_mask & IBV_SRQ_LIMIT) != 0) {
		if (attr->srq_limit > srq->max_wr) {
			return EINVAL;
		}
		atomic_store_explicit(&srq->slot->limit, attr->srq_limit, memory_order_seq_cst);
	}
	return 0;
}

int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct fab_srq *srq = fab_srq_of(ibv);

	if (fab_ctx_dead(srq->ctx)) {
		return EIO;
	}
	attr->max_wr = srq->max_wr;
	attr->max_sge = srq->slot->max_sge;
	attr->srq_limit = atomic_load_explicit(&srq->slot->limit, memory_order_seq_cst);
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *ibv)
{
	struct fab_srq *srq = fab_srq_of(ibv);
	struct fab_ctx *ctx = srq->ctx;

	if (atomic_load(&srq->qp_count) != 0) {
		return EBUSY;
	}
	fab_heap_free(ctx, srq->slot->rq_off, srq->slot->size * entry_bytes(srq->slot));
	slot_free(ctx, srq);
	fab_event_withdraw(ctx, ibv, &srq->async_told);
	fab_pipe_wait_acked(&ibv->mutex, &ibv->cond, &ibv->events_completed, srq->async_told);
	atomic_fetch_sub(&fab_pd_of(ibv->pd)->use_count, 1);
	pthread_mutex_destroy(&srq->ibv.mutex);
	pthread_cond_destroy(&srq->ibv.cond);
	pthread_mutex_destroy(&srq->post_lock);
	free(srq);
	fab_ctx_object_del(ctx);
	return 0;
}

static int recv_one(struct fab_srq *srq, const struct ibv_recv_wr *wr)
{
	struct fab_srq_slot *slot = srq->slot;
	uint64_t tail = atomic_load_explicit(&slot->tail, memory_order_relaxed);

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > slot->max_sge) {
		return EINVAL;
	}
	if (tail - atomic_load_explicit(&slot->head, memory_order_seq_cst) >= srq->max_wr) {
		return ENOMEM;
	}
	fab_rqe_fill(entry_at(srq->ctx->inst, slot, tail), wr);
	atomic_store_explicit(&slot->tail, tail + 1, memory_order_seq_cst);
	return 0;
}

int fab_srq_post_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct fab_srq *srq = fab_srq_of(ibv);
	int rc = 0;

	pthread_mutex_lock(&srq->post_lock);
	while (wr != NULL && rc == 0) {
		rc = recv_one(srq, wr);
		if (rc != 0) {
			*bad_wr = wr;
		}
		wr = wr->next;
	}
	pthread_mutex_unlock(&srq->post_lock);
	return rc;
}
