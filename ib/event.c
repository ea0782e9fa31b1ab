/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/rail.h"
#include "ib/verbs.h"

#include <string.h>

static void set_fields(struct ib_event *event, enum ib_event_kind kind, enum cause cause)
{
	event->kind = kind;
	event->cause = cause;
}

static void translate(const struct ibv_async_event *raw, struct ib_event *out)
{
	switch (raw->event_type) {
	case IBV_EVENT_PORT_ERR:
		set_fields(out, IB_EVENT_PORT_DOWN, CAUSE_PORT_DOWN);
		out->port = (uint8_t)raw->element.port_num;
		break;
	case IBV_EVENT_PORT_ACTIVE:
		set_fields(out, IB_EVENT_PORT_UP, CAUSE_NONE);
		out->port = (uint8_t)raw->element.port_num;
		break;
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
		/* either way the port's address may be another one */
		set_fields(out, IB_EVENT_GID_CHANGE, CAUSE_GID_CHANGED);
		out->port = (uint8_t)raw->element.port_num;
		break;
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		out->port = (uint8_t)raw->element.port_num;
		break;
	case IBV_EVENT_DEVICE_FATAL:
		set_fields(out, IB_EVENT_DEVICE_FATAL, CAUSE_DEVICE_FATAL);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_PATH_MIG_ERR:
		set_fields(out, IB_EVENT_QP_FATAL, CAUSE_QP_FATAL);
		out->qpn = raw->element.qp->qp_num;
		break;
	case IBV_EVENT_QP_REQ_ERR:
		set_fields(out, IB_EVENT_QP_FATAL, CAUSE_REM_INV_REQ);
		out->qpn = raw->element.qp->qp_num;
		break;
	case IBV_EVENT_QP_ACCESS_ERR:
		set_fields(out, IB_EVENT_QP_FATAL, CAUSE_LOC_ACCESS);
		out->qpn = raw->element.qp->qp_num;
		break;
	case IBV_EVENT_CQ_ERR:
		/* one CQ, one QP: ib_qp_create() left its number here */
		set_fields(out, IB_EVENT_QP_FATAL, CAUSE_QP_FATAL);
		out->qpn = (uint32_t)(uintptr_t)raw->element.cq->cq_context;
		break;
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		out->qpn = raw->element.qp->qp_num;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
	case IBV_EVENT_WQ_FATAL:
	default: /* newer than the header this was built with */
		break;
	}
}

/* The event is the device's: every rail on it. Late ones of a device that was replaced are of none.
 */
static void update_rails(struct ib_rails *rails, struct ib_device *device,
			 const struct ib_event *event)
{
	/* release, here and below: pairs with those who ask whether the rail can be used */
	if (event->kind == IB_EVENT_DEVICE_FATAL) {
		atomic_store_explicit(&device->is_fatal, true, memory_order_release);
	}
	for (unsigned int i = 0; i < rails->count; i++) {
		struct ib_rail *other = &rails->rails[i];

		if (!ib_rail_device_is(other, device)) {
			continue;
		}
		if (event->kind == IB_EVENT_DEVICE_FATAL) {
			atomic_store_explicit(&other->port_up, false, memory_order_release);
		} else if (event->port == other->port && event->kind == IB_EVENT_PORT_DOWN) {
			atomic_store_explicit(&other->port_up, false, memory_order_release);
		} else if (event->port == other->port && event->kind == IB_EVENT_PORT_UP &&
			   atomic_load_explicit(&other->is_read, memory_order_acquire)) {
			/* else its address is not known: ib_rail_refresh() does it */
			atomic_store_explicit(&other->port_up, true, memory_order_release);
		}
	}
}

int ib_rail_event_next(struct ib_rails *rails, struct ib_device *device, struct ib_event *out)
{
	struct ib_event event = {.kind = IB_EVENT_OTHER, .cause = CAUSE_NONE};
	struct ibv_async_event raw;
	int rc;

	memset(&raw, 0, sizeof(raw));
	rc = ib_verbs_get_event(device->ctx, &raw);
	if (rc == -EAGAIN || rc == -EINTR) {
		return 0;
	}
	if (rc != 0) {
		return rc;
	}
	translate(&raw, &event);
	event.text = ib_verbs_event_name(raw.event_type);
	/* only after the last look at the QP: destroying it waits for this */
	ib_verbs_ack_event(&raw);
	update_rails(rails, device, &event);
	*out = event;
	return 1;
}
