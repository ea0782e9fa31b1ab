/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/qp.h"

#include "ib/random.h"
#include "ib/verbs.h"

#include <string.h>

static int check_depths(const struct ib_qp *qp)
{
	const struct ibv_device_attr *attr = &qp->device->attr;
	uint32_t wrs_max = (uint32_t)attr->max_qp_wr;

	if (qp->send_wrs_max > wrs_max || qp->recv_wrs_max > wrs_max) {
		LOG_WARN("rail %s: a queue of %u sends and %u receives is wanted, the device "
			 "allows %u",
			 qp->rail->label, qp->send_wrs_max, qp->recv_wrs_max, wrs_max);
		return -EINVAL;
	}
	if (qp->send_wrs_max + qp->recv_wrs_max > (uint32_t)attr->max_cqe) {
		LOG_WARN("rail %s: a completion queue of %u entries is wanted, the device allows "
			 "%d",
			 qp->rail->label, qp->send_wrs_max + qp->recv_wrs_max, attr->max_cqe);
		return -EINVAL;
	}
	return 0;
}

/* With as much inline data as the device takes, down to none: that is only a shortcut. */
static int create_rc(struct ib_qp *qp, uint32_t inline_bytes)
{
	for (;;) {
		struct ibv_qp_init_attr attr = {
			.send_cq = qp->cq,
			.recv_cq = qp->cq,
			.cap = {.max_send_wr = qp->send_wrs_max,
				.max_recv_wr = qp->recv_wrs_max,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = inline_bytes},
			.qp_type = IBV_QPT_RC,
		};
		int rc = ib_verbs_create_qp(qp->device->pd, &attr, &qp->qp);

		if (rc == 0) {
			qp->inline_max_bytes = attr.cap.max_inline_data;
			return 0;
		}
		qp->qp = NULL;
		if ((rc != -EINVAL && rc != -ENOMEM) || inline_bytes == 0) {
			LOG_WARN("rail %s: cannot create a queue pair (%u sends, %u receives): %s",
				 qp->rail->label, qp->send_wrs_max, qp->recv_wrs_max,
				 strerror(-rc));
			return rc;
		}
		inline_bytes /= 2;
	}
}

static int to_init(struct ib_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = qp->rail->pkey_index,
		.port_num = qp->rail->port,
		.qp_access_flags =
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	int rc = ib_verbs_modify_qp(qp->qp, &attr,
				    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					    IBV_QP_ACCESS_FLAGS);

	if (rc != 0) {
		LOG_WARN("rail %s: cannot move QP 0x%x to INIT: %s", qp->rail->label, qp->qpn,
			 strerror(-rc));
	}
	return rc;
}

int ib_qp_create(struct ib_rail *rail, const struct ib_qp_opts *opts, struct ib_qp *out)
{
	struct ib_qp qp = {.rail = rail,
			   .send_wrs_max = opts->send_wrs_max,
			   .recv_wrs_max = opts->recv_wrs_max};
	int cqe_count = (int)(opts->send_wrs_max + opts->recv_wrs_max);
	int rc;

	qp.device = ib_rail_device_get(rail);
	rc = ib_device_is_used(qp.device) ? check_depths(&qp) : -EIO;
	if (rc != 0) {
		goto put_device;
	}
	rc = ib_verbs_create_cq(qp.device->ctx, cqe_count > 0 ? cqe_count : 1, &qp.cq);
	if (rc != 0) {
		LOG_WARN("rail %s: cannot create a completion queue of %d entries: %s", rail->label,
			 cqe_count, strerror(-rc));
		goto put_device;
	}
	rc = create_rc(&qp, opts->inline_bytes);
	if (rc != 0) {
		goto destroy_cq;
	}
	qp.qpn = qp.qp->qp_num;
	qp.psn = ib_random_u32() & 0xffffff;
	/* for ib_rail_event_next(): whose CQ it is, without a pointer into what may move */
	qp.cq->cq_context = (void *)(uintptr_t)qp.qpn;
	rc = to_init(&qp);
	if (rc != 0) {
		goto destroy_qp;
	}
	*out = qp;
	return 0;

destroy_qp:
	(void)ib_verbs_destroy_qp(qp.qp);
destroy_cq:
	(void)ib_verbs_destroy_cq(qp.cq);
put_device:
	ib_device_put(qp.device);
	return rc;
}

static int to_state(struct ib_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = {.qp_state = state};

	return ib_verbs_modify_qp(qp->qp, &attr, IBV_QP_STATE);
}

int ib_qp_fence(struct ib_qp *qp)
{
	ASSERT(qp->qp != NULL);
	return to_state(qp, IBV_QPS_ERR);
}

int ib_qp_reset(struct ib_qp *qp)
{
	ASSERT(qp->qp != NULL);
	return to_state(qp, IBV_QPS_RESET);
}

void ib_qp_destroy(struct ib_qp *qp)
{
	int rc = 0;

	if (qp == NULL) {
		return;
	}
	if (qp->qp != NULL) {
		rc = ib_verbs_destroy_qp(qp->qp);
	}
	if (qp->cq != NULL) {
		int cq_rc = ib_verbs_destroy_cq(qp->cq);

		rc = rc != 0 ? rc : cq_rc;
	}
	if (rc != 0) {
		LOG_INFO("rail %s: destroying QP 0x%x: %s", qp->rail->label, qp->qpn,
			 strerror(-rc));
	}
	ib_device_put(qp->device);
	memset(qp, 0, sizeof(*qp));
}
