/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/call.h"
#include "test/fabric/event.h"
#include "test/fabric/pipe.h"
#include "test/fabric/port.h"
#include "test/fabric/srq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WR     16384u
#define MAX_INLINE 1024u

/* QPs' life; modify and query are in qp_modify.c. */

static int init_check(struct fab_ctx *ctx, const struct ibv_qp_init_attr *attr)
{
	if (fab_ctx_dead(ctx)) {
		return -EIO;
	}
	if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UC) {
		return -fab_unsupported(attr->qp_type == IBV_QPT_UD
						? "ibv_create_qp with IBV_QPT_UD"
						: "ibv_create_qp with a type other than RC and UC");
	}
	if (attr->send_cq == NULL || attr->recv_cq == NULL || attr->cap.max_send_wr > MAX_WR ||
	    attr->cap.max_recv_wr > MAX_WR || attr->cap.max_send_sge > FAB_MAX_SGE ||
	    attr->cap.max_recv_sge > FAB_MAX_SGE || attr->cap.max_inline_data > MAX_INLINE) {
		return -EINVAL;
	}
	return 0;
}

static int slot_find(struct fab_ctx *ctx, struct fab_qp *qp)
{
	int rc = -ENOMEM;

	pthread_mutex_lock(&ctx->lock);
	for (uint32_t i = 0; i < FAB_MAX_QPS; i++) {
		if (ctx->qps[i] == NULL) {
			ctx->qps[i] = qp;
			qp->idx = i;
			qp->slot = &ctx->inst->qps[i];
			if (i >= atomic_load(&ctx->qp_high)) {
				atomic_store(&ctx->qp_high, i + 1);
			}
			rc = 0;
			break;
		}
	}
	pthread_mutex_unlock(&ctx->lock);
	return rc;
}

static void slot_free(struct fab_ctx *ctx, const struct fab_qp *qp)
{
	pthread_mutex_lock(&ctx->lock);
	ctx->qps[qp->idx] = NULL;
	pthread_mutex_unlock(&ctx->lock);
}

static uint64_t rq_bytes(const struct fab_qp_slot *slot)
{
	return (uint64_t)slot->rq_size *
	       (sizeof(struct fab_rqe) + slot->rq_max_sge * sizeof(struct fab_sge));
}

/* Numbers go round through 24 bits, so one comes back only after 16 million others. */
static uint32_t qpn_take(struct fab_root *root)
{
	uint32_t qpn;

	do {
		qpn = atomic_fetch_add(&root->next_qpn, 1) & FAB_PSN_MASK;
	} while (qpn < FAB_QPN_FIRST);
	return qpn;
}

static void caps_grant(struct fab_qp *qp, const struct ibv_qp_init_attr *attr)
{
	qp->cap.max_send_wr = attr->cap.max_send_wr;
	qp->cap.max_recv_wr = attr->cap.max_recv_wr;
	qp->cap.max_send_sge = attr->cap.max_send_sge > 0 ? attr->cap.max_send_sge : 1;
	qp->cap.max_recv_sge = attr->cap.max_recv_sge > 0 ? attr->cap.max_recv_sge : 1;
	if (attr->srq != NULL) { /* room for the one taken from there */
		qp->cap.max_recv_wr = 0;
		qp->cap.max_recv_sge = fab_srq_of(attr->srq)->slot->max_sge;
	}
	qp->cap.max_inline_data = (attr->cap.max_inline_data + 15) & ~15u;
	qp->sq_sig_all = attr->sq_sig_all;
}

static int queues_make(struct fab_ctx *ctx, struct fab_qp *qp)
{
	struct fab_qp_slot *slot = qp->slot;

	qp->sq_size = qp->cap.max_send_wr > 0 ? qp->cap.max_send_wr : 1;
	qp->sq_stride =
		(uint32_t)(sizeof(struct fab_swr) + qp->cap.max_send_sge * sizeof(struct fab_sge) +
			   qp->cap.max_inline_data);
	qp->sq = calloc(qp->sq_size, qp->sq_stride);
	slot->rq_size = qp->cap.max_recv_wr > 0 ? qp->cap.max_recv_wr : 1;
	slot->rq_max_sge = qp->cap.max_recv_sge;
	slot->rq_off = qp->sq != NULL ? fab_heap_alloc(ctx, rq_bytes(slot)) : 0;
	if (slot->rq_off == 0) {
		free(qp->sq);
		return -ENOMEM;
	}
	return 0;
}

/* What gets lost or delayed on a QP depends on the seed, the rail and the QP's place among those of
 * its device: not on time, nor on other processes. */
static void dice_seed(struct fab_qp *qp)
{
	uint64_t seed = qp->ctx->lib->seed ^ (uint64_t)qp->ctx->host << 40 ^
			(uint64_t)qp->ctx->rail << 32 ^ qp->idx;

	qp->loss_dice = fab_dice_roll(&seed);
	qp->delay_dice = fab_dice_roll(&seed);
	qp->ack_dice = fab_dice_roll(&seed);
}

static void slot_open(struct fab_qp *qp, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fab_qp_slot *slot = qp->slot;
	struct fab_root *root = qp->ctx->lib->root;
	uint32_t qpn = qpn_take(root);

	qp->send_cq = fab_cq_of(attr->send_cq);
	qp->recv_cq = fab_cq_of(attr->recv_cq);
	slot->pd = fab_pd_of(pd)->id;
	slot->recv_cq_idx = qp->recv_cq->idx;
	slot->srq = attr->srq != NULL ? fab_srq_of(attr->srq)->idx + 1 : 0;
	slot->unfenced = 0;
	slot->type = attr->qp_type;
	slot->own_rail = qp->rail;
	dice_seed(qp);
	atomic_store_explicit(&slot->claim, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->rq_tail, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->rq_head, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->rq_polled, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->sq_polled, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->state, IBV_QPS_RESET, memory_order_seq_cst);
	atomic_store_explicit(&slot->qpn, qpn, memory_order_seq_cst);
	atomic_store_explicit(&root->qpns[qpn], (uint64_t)qp->ctx->inst->id << 32 | (qp->idx + 1),
			      memory_order_release);
	qp->ibv.context = pd->context;
	qp->ibv.qp_context = attr->qp_context;
	qp->ibv.pd = pd;
	qp->ibv.send_cq = attr->send_cq;
	qp->ibv.recv_cq = attr->recv_cq;
	qp->ibv.srq = attr->srq;
	if (attr->srq != NULL) {
		atomic_fetch_add(&fab_srq_of(attr->srq)->qp_count, 1);
	}
	qp->ibv.handle = qp->idx;
	qp->ibv.qp_num = qpn;
	qp->ibv.state = IBV_QPS_RESET;
	qp->ibv.qp_type = attr->qp_type;
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);
	pthread_mutex_init(&qp->post_lock, NULL);
	pthread_mutex_init(&qp->recv_lock, NULL);
	atomic_fetch_add(&qp->send_cq->qp_count, 1);
	atomic_fetch_add(&qp->recv_cq->qp_count, 1);
	atomic_fetch_add(&fab_pd_of(pd)->use_count, 1);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fab_ctx *ctx = fab_ctx_of(pd->context);
	struct fab_qp *qp = NULL;
	int rc = fab_call_begin(ctx->port, FAB_CALL_CREATE_QP);

	rc = rc != 0 ? rc : init_check(ctx, attr);
	if (rc != 0) {
		goto fail;
	}
	rc = -ENOMEM;
	qp = calloc(1, sizeof(*qp));
	if (qp == NULL || slot_find(ctx, qp) != 0) {
		goto free_qp;
	}
	qp->ctx = ctx;
	qp->port = ctx->port;
	qp->rail = ctx->rail;
	caps_grant(qp, attr);
	rc = queues_make(ctx, qp);
	if (rc != 0) {
		goto free_slot;
	}
	slot_open(qp, pd, attr);
	attr->cap.max_send_wr = qp->cap.max_send_wr;
	attr->cap.max_recv_wr = qp->cap.max_recv_wr;
	attr->cap.max_send_sge = qp->cap.max_send_sge;
	attr->cap.max_recv_sge = qp->cap.max_recv_sge;
	attr->cap.max_inline_data = qp->cap.max_inline_data;
	fab_ctx_object_add(ctx);
	return &qp->ibv;

free_slot:
	slot_free(ctx, qp);
free_qp:
	free(qp);
fail:
	errno = -rc;
	return NULL;
}

/* Off the wire first, then wait for who is placing, then off the engine and the tables. */
static void unplug(struct fab_qp *qp)
{
	struct fab_ctx *ctx = qp->ctx;
	struct fab_qp_slot *slot = qp->slot;

	atomic_store_explicit(&ctx->lib->root->qpns[qp->ibv.qp_num], 0, memory_order_seq_cst);
	atomic_store_explicit(&slot->state, IBV_QPS_RESET, memory_order_seq_cst);
	fab_claim_drain(ctx->lib->root, ctx->inst, slot);
	fab_engine_hold(ctx);
	/* Nor is a look for broken QPs (scan_qps) under way, which may have found this one before
	 * it left ERR, and would put it back on the list. */
	pthread_mutex_lock(&ctx->lock);
	fab_engine_forget(ctx, qp);
	pthread_mutex_unlock(&ctx->lock);
	fab_engine_release(ctx);
	atomic_store_explicit(&slot->qpn, 0, memory_order_seq_cst);
	atomic_fetch_add_explicit(&slot->gen, 1, memory_order_seq_cst);
	fab_heap_free(ctx, slot->rq_off, rq_bytes(slot));
	slot_free(ctx, qp);
}

static void qp_free(struct fab_qp *qp)
{
	struct ibv_qp *ibv = &qp->ibv;

	if (ibv->srq != NULL) {
		atomic_fetch_sub(&fab_srq_of(ibv->srq)->qp_count, 1);
	}
	atomic_fetch_sub(&qp->send_cq->qp_count, 1);
	atomic_fetch_sub(&qp->recv_cq->qp_count, 1);
	atomic_fetch_sub(&fab_pd_of(ibv->pd)->use_count, 1);
	pthread_mutex_destroy(&ibv->mutex);
	pthread_cond_destroy(&ibv->cond);
	pthread_mutex_destroy(&qp->post_lock);
	pthread_mutex_destroy(&qp->recv_lock);
	fab_ctx_object_del(qp->ctx);
	free(qp->sq);
	free(qp);
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct fab_qp *qp = fab_qp_of(ibv);

	(void)fab_call_begin(qp->ctx->port, FAB_CALL_DESTROY_QP);
	unplug(qp);
	fab_event_withdraw(qp->ctx, ibv, &qp->async_told);
	fab_pipe_wait_acked(&ibv->mutex, &ibv->cond, &ibv->events_completed, qp->async_told);
	qp_free(qp);
	return 0;
}

void fab_qp_drop(struct fab_qp *qp)
{
	unplug(qp);
	qp_free(qp);
}
