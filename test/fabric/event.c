/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/event.h"

#include "test/fabric/srq.h"

#include <errno.h>
#include <unistd.h>

/* The application's pointers for what the event names by number. False: that object is gone. */
static bool event_translate(struct fab_ctx *ctx, const struct fab_event *event,
			    struct ibv_async_event *out)
{
	bool found = false;

	out->event_type = (enum ibv_event_type)event->type;
	if (event->kind == FAB_EVENT_PORT || event->kind == FAB_EVENT_DEVICE) {
		out->element.port_num = (int)event->number;
		return true;
	}
	pthread_mutex_lock(&ctx->lock);
	if (event->kind == FAB_EVENT_CQ && ctx->cqs[event->number] != NULL) {
		out->element.cq = &ctx->cqs[event->number]->ibv;
		found = true;
	}
	if (event->kind == FAB_EVENT_SRQ && ctx->srqs[event->number] != NULL) {
		out->element.srq = &ctx->srqs[event->number]->ibv;
		found = true;
	}
	for (uint32_t i = 0; event->kind == FAB_EVENT_QP && i < atomic_load(&ctx->qp_high); i++) {
		if (ctx->qps[i] != NULL && ctx->qps[i]->ibv.qp_num == event->number) {
			out->element.qp = &ctx->qps[i]->ibv;
			found = true;
			break;
		}
	}
	pthread_mutex_unlock(&ctx->lock);
	return found;
}

uint64_t fab_event_forward(struct fab_ctx *ctx)
{
	uint64_t due_ns;
	struct fab_event event;

	while (fab_inst_take_event(ctx->inst, &event, &due_ns)) {
		struct ibv_async_event out = {.event_type = 0};

		if (event_translate(ctx, &event, &out) &&
		    write(ctx->event_fd, &out, sizeof(out)) != (ssize_t)sizeof(out)) {
			fab_complain("an event was dropped: nobody reads async_fd");
		}
	}
	return due_ns;
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

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event; /* destroying an object with events still unread is allowed here */
}
