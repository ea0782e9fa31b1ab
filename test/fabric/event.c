/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/event.h"

#include "test/fabric/pipe.h"
#include "test/fabric/srq.h"

#include <errno.h>
#include <unistd.h>

/* The application's pointers for what the event names by number, and where its object counts them.
 * False: that object is gone. Under the context's lock. */
static bool event_translate(struct fab_ctx *ctx, const struct fab_event *event,
			    struct ibv_async_event *out, uint32_t **told)
{
	out->event_type = (enum ibv_event_type)event->type;
	if (event->kind == FAB_EVENT_PORT || event->kind == FAB_EVENT_DEVICE) {
		out->element.port_num = (int)event->number;
		return true;
	}
	if (event->kind == FAB_EVENT_CQ && ctx->cqs[event->number] != NULL) {
		out->element.cq = &ctx->cqs[event->number]->ibv;
		*told = &ctx->cqs[event->number]->async_told;
		return true;
	}
	if (event->kind == FAB_EVENT_SRQ && ctx->srqs[event->number] != NULL) {
		out->element.srq = &ctx->srqs[event->number]->ibv;
		*told = &ctx->srqs[event->number]->async_told;
		return true;
	}
	for (uint32_t i = 0; event->kind == FAB_EVENT_QP && i < atomic_load(&ctx->qp_high); i++) {
		if (ctx->qps[i] != NULL && ctx->qps[i]->ibv.qp_num == event->number) {
			out->element.qp = &ctx->qps[i]->ibv;
			*told = &ctx->qps[i]->async_told;
			return true;
		}
	}
	return false;
}

uint64_t fab_event_forward(struct fab_ctx *ctx)
{
	uint64_t due_ns;
	struct fab_event event;

	while (fab_inst_take_event(ctx->inst, &event, &due_ns)) {
		struct ibv_async_event out = {.event_type = 0};
		uint32_t ports_told = 0;
		uint32_t *told = &ports_told;

		/* In one piece, so that an object that goes away finds what was written of it. */
		pthread_mutex_lock(&ctx->lock);
		if (event_translate(ctx, &event, &out, &told)) {
			if (write(ctx->event_fd, &out, sizeof(out)) == (ssize_t)sizeof(out)) {
				(*told)++;
			} else {
				fab_complain("an event was dropped: nobody reads async_fd");
			}
		}
		pthread_mutex_unlock(&ctx->lock);
	}
	return due_ns;
}

/* Whose event it is: one of the three, by its type; NULL for a port's or the device's. */
static void *event_object(const struct ibv_async_event *event)
{
	switch ((int)event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
		return event->element.qp;
	default:
		return NULL;
	}
}

static bool event_is_of(const void *entry, const void *object)
{
	return event_object(entry) == object;
}

void fab_event_withdraw(struct fab_ctx *ctx, const void *object, uint32_t *told)
{
	pthread_mutex_lock(&ctx->lock);
	*told -= fab_pipe_remove(ctx->verbs.context.async_fd, ctx->event_fd,
				 sizeof(struct ibv_async_event), event_is_of, object);
	pthread_mutex_unlock(&ctx->lock);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct ibv_async_event got;
	ssize_t len;

	do {
		len = read(context->async_fd, &got, sizeof(got));
	} while (len < 0 && errno == EINTR);
	if (len != (ssize_t)sizeof(got)) {
		errno = len < 0 ? errno : EIO;
		return -1;
	}
	event->element = got.element;
	event->event_type = got.event_type;
	return 0;
}

static void count_acked(pthread_mutex_t *lock, pthread_cond_t *changed, uint32_t *acked)
{
	pthread_mutex_lock(lock);
	(*acked)++;
	pthread_cond_broadcast(changed);
	pthread_mutex_unlock(lock);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	if (event_object(event) == NULL) {
		return;
	}
	if (event->event_type == IBV_EVENT_CQ_ERR) {
		struct ibv_cq *cq = event->element.cq;

		count_acked(&cq->mutex, &cq->cond, &cq->async_events_completed);
	} else if (event->event_type == IBV_EVENT_SRQ_ERR ||
		   event->event_type == IBV_EVENT_SRQ_LIMIT_REACHED) {
		struct ibv_srq *srq = event->element.srq;

		count_acked(&srq->mutex, &srq->cond, &srq->events_completed);
	} else {
		struct ibv_qp *qp = event->element.qp;

		count_acked(&qp->mutex, &qp->cond, &qp->events_completed);
	}
}
