/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/call.h"
#include "test/fabric/gid.h"
#include "test/fabric/port.h"
#include "test/fabric/qp.h"

#include <errno.h>

/* The RC rows, and with RC_ONLY_MASK taken off the UC rows, of the IB specification's table of QP
 * transitions (11.2.5.2). */
struct transition {
	int legal;
	int required;
	int optional;
};

#define INIT_MASK (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                                                   \
	(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                           \
	 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                                   \
	(IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |                    \
	 IBV_QP_MAX_QP_RD_ATOMIC)
#define LIVE_MASK                                                                                  \
	(IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE |        \
	 IBV_QP_MIN_RNR_TIMER)

/* What a UC QP does not have. */
#define RC_ONLY_MASK                                                                               \
	(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |    \
	 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

static const struct transition transitions[IBV_QPS_UNKNOWN][IBV_QPS_UNKNOWN] = {
	[IBV_QPS_RESET][IBV_QPS_INIT] = {1, INIT_MASK, 0},
	[IBV_QPS_INIT][IBV_QPS_INIT] = {1, 0, INIT_MASK},
	[IBV_QPS_INIT][IBV_QPS_RTR] = {1, RTR_MASK,
				       IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH},
	[IBV_QPS_RTR][IBV_QPS_RTS] = {1, RTS_MASK, LIVE_MASK},
	[IBV_QPS_RTS][IBV_QPS_RTS] = {1, 0, LIVE_MASK},
	[IBV_QPS_RTS][IBV_QPS_SQD] = {1, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	[IBV_QPS_SQD][IBV_QPS_RTS] = {1, 0, LIVE_MASK},
	[IBV_QPS_SQD][IBV_QPS_SQD] = {1, 0,
				      IBV_QP_PKEY_INDEX | IBV_QP_PORT | RTS_MASK | LIVE_MASK |
					      IBV_QP_AV},
};

static int mask_check(const struct fab_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to,
		      int mask)
{
	int known = fab_qp_is_uc(qp) ? ~RC_ONLY_MASK : ~0;
	const struct transition *row;
	int rest = mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE);

	if ((int)to < 0 || to >= IBV_QPS_UNKNOWN) {
		return -EINVAL;
	}
	if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) { /* from anywhere */
		return rest == 0 ? 0 : -EINVAL;
	}
	row = &transitions[from][to];
	if (row->legal == 0 || (~mask & row->required & known) != 0 ||
	    (rest & ~((row->required | row->optional) & known)) != 0) {
		return -EINVAL;
	}
	return 0;
}

/* Is the address one that leaves through the QP's port, from an entry of the table that is in use?
 */
static bool av_is_good(const struct fab_qp *qp, const struct ibv_ah_attr *ah)
{
	if (ah->port_num != 0 && ah->port_num != qp->port_num) {
		return false;
	}
	if (ah->is_global == 0) {
		return !qp->ctx->dev->roce;
	}
	return fab_gid_read(qp->ctx, qp->port_num, ah->grh.sgid_index, NULL, NULL);
}

static int values_check(const struct fab_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_PORT) != 0 && fab_ctx_port(qp->ctx, attr->port_num) == NULL) {
		return -EINVAL;
	}
	if ((mask & IBV_QP_PKEY_INDEX) != 0 && attr->pkey_index != 0) {
		return -EINVAL;
	}
	if ((mask & IBV_QP_PATH_MTU) != 0 &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096)) {
		return -EINVAL;
	}
	if (((mask & IBV_QP_TIMEOUT) != 0 && attr->timeout > 31) ||
	    ((mask & IBV_QP_RETRY_CNT) != 0 && attr->retry_cnt > 7) ||
	    ((mask & IBV_QP_RNR_RETRY) != 0 && attr->rnr_retry > 7) ||
	    ((mask & IBV_QP_MIN_RNR_TIMER) != 0 && attr->min_rnr_timer > 31)) {
		return -EINVAL;
	}
	if ((mask & IBV_QP_AV) != 0 && !av_is_good(qp, &attr->ah_attr)) {
		return -EINVAL;
	}
	return 0;
}

/* An address nobody has: Ethernet has to resolve it and fails, InfiniBand sends into the void. */
static int peer_resolve(struct fab_qp *qp, const struct ibv_qp_attr *attr)
{
	bool roce = qp->ctx->dev->roce;
	int rc = fab_addr_resolve(qp->ctx->lib, roce, &attr->ah_attr, &qp->peer_host,
				  &qp->peer_rail);

	if (roce && (rc != 0 || (qp->ctx->lib->rail_wired && qp->peer_rail != qp->rail))) {
		return -ETIMEDOUT;
	}
	if (rc != 0) {
		qp->peer_host = FAB_MAX_HOSTS - 1;
		qp->peer_rail = FAB_MAX_RAILS - 1;
	}
	return 0;
}

static void ah_store(struct fab_qp *qp, const struct ibv_ah_attr *ah)
{
	qp->ah.grh.dgid = ah->grh.dgid;
	qp->ah.grh.flow_label = ah->grh.flow_label;
	qp->ah.grh.sgid_index = ah->grh.sgid_index;
	qp->ah.grh.hop_limit = ah->grh.hop_limit;
	qp->ah.grh.traffic_class = ah->grh.traffic_class;
	qp->ah.dlid = ah->dlid;
	qp->ah.sl = ah->sl;
	qp->ah.src_path_bits = ah->src_path_bits;
	qp->ah.static_rate = ah->static_rate;
	qp->ah.is_global = ah->is_global;
	qp->ah.port_num = ah->port_num;
}

static void rtr_store(struct fab_qp *qp, const struct ibv_qp_attr *attr)
{
	ah_store(qp, &attr->ah_attr);
	qp->path_mtu = attr->path_mtu;
	qp->dest_qpn = attr->dest_qp_num & FAB_PSN_MASK;
	qp->rq_psn = attr->rq_psn & FAB_PSN_MASK;
	qp->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	qp->slot->dest_qpn = qp->dest_qpn;
	qp->slot->peer_host = qp->peer_host;
	qp->slot->peer_rail = qp->peer_rail;
	qp->slot->epsn = qp->rq_psn;
	qp->slot->eoff = 0;
	qp->slot->mtu_bytes = fab_mtu_bytes(qp->path_mtu);
}

static void rts_store(struct fab_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_SQ_PSN) != 0) {
		qp->sq_psn = attr->sq_psn & FAB_PSN_MASK;
		qp->tx = (struct fab_sender){
			.psn = qp->sq_psn,
			.high = atomic_load_explicit(&qp->sq_next, memory_order_relaxed),
			.high_psn = qp->sq_psn,
		};
	}
	if ((mask & IBV_QP_TIMEOUT) != 0) {
		qp->timeout = attr->timeout;
	}
	if ((mask & IBV_QP_RETRY_CNT) != 0) {
		qp->retry_cnt = attr->retry_cnt;
	}
	if ((mask & IBV_QP_RNR_RETRY) != 0) {
		qp->rnr_retry = attr->rnr_retry;
	}
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) {
		qp->max_rd_atomic = attr->max_rd_atomic;
	}
}

static void attr_store(struct fab_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_PKEY_INDEX) != 0) {
		qp->pkey_index = attr->pkey_index;
	}
	if ((mask & IBV_QP_PORT) != 0) {
		qp->port_num = attr->port_num;
		qp->port = fab_ctx_port(qp->ctx, attr->port_num);
		qp->rail = qp->ctx->rail + attr->port_num - 1;
		qp->slot->own_rail = qp->rail;
	}
	if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
		qp->slot->access = attr->qp_access_flags;
	}
	if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) {
		qp->min_rnr_timer = attr->min_rnr_timer;
		qp->slot->min_rnr_timer = attr->min_rnr_timer;
	}
	if ((mask & IBV_QP_AV) != 0 && (mask & IBV_QP_DEST_QPN) != 0) {
		rtr_store(qp, attr);
	}
	rts_store(qp, attr, mask);
}

/* All work requests and their completions vanish; then as fresh from ibv_create_qp. */
static void reset_queues(struct fab_qp *qp)
{
	struct fab_qp_slot *slot = qp->slot;

	atomic_fetch_add_explicit(&slot->gen, 1, memory_order_seq_cst);
	atomic_store_explicit(&qp->sq_tail, 0, memory_order_relaxed);
	atomic_store_explicit(&qp->sq_next, 0, memory_order_relaxed);
	atomic_store_explicit(&qp->sq_acked, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->sq_polled, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->rq_tail, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->rq_head, 0, memory_order_relaxed);
	atomic_store_explicit(&slot->rq_polled, 0, memory_order_relaxed);
	qp->tx = (struct fab_sender){.psn = 0};
	qp->last_told = false;
	slot->access = 0;
	slot->eoff = 0;
	slot->unfenced = 0;
}

static void state_store(struct fab_qp *qp, enum ibv_qp_state state)
{
	atomic_store_explicit(&qp->slot->state, (uint32_t)state, memory_order_seq_cst);
	qp->ibv.state = state;
}

/* ERR or RESET: nobody may place any more when this returns, and no placement is under way. */
static void fence(struct fab_qp *qp, enum ibv_qp_state to)
{
	struct fab_ctx *ctx = qp->ctx;

	fab_engine_hold(ctx); /* the own engine is between two steps: it reads no more memory */
	if (ctx->lib->broken_fence && to == IBV_QPS_ERR && fab_qp_state(qp->slot) >= IBV_QPS_RTR) {
		qp->slot->unfenced = 1;
	}
	state_store(qp, to);
	fab_engine_release(ctx);
	fab_claim_drain(ctx->lib->root, ctx->inst, qp->slot);
	if (to == IBV_QPS_RESET) {
		fab_engine_hold(ctx);
		fab_engine_forget(ctx, qp);
		reset_queues(qp);
		fab_engine_release(ctx);
	} else {
		fab_engine_kick(ctx, qp);
	}
}

static int modify_locked(struct fab_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct fab_ctx *ctx = qp->ctx;
	enum ibv_qp_state from = fab_qp_state(qp->slot);
	enum ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : from;
	uint32_t expected = (uint32_t)from;
	int rc = mask_check(qp, from, to, mask);

	if (rc == 0 && (mask & IBV_QP_CUR_STATE) != 0 && attr->cur_qp_state != from) {
		rc = -EINVAL;
	}
	if (rc == 0) {
		rc = values_check(qp, attr, mask);
	}
	if (rc == 0 && (mask & IBV_QP_AV) != 0) {
		rc = peer_resolve(qp, attr);
	}
	if (rc != 0) {
		return rc;
	}
	if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) {
		fence(qp, to);
		return 0;
	}
	fab_engine_hold(ctx);
	attr_store(qp, attr, mask);
	/* A peer may have broken the QP meanwhile; then the new state must not hide it. */
	if (atomic_compare_exchange_strong(&qp->slot->state, &expected, (uint32_t)to)) {
		qp->ibv.state = to;
	} else {
		rc = -EINVAL;
	}
	fab_engine_release(ctx);
	fab_engine_kick(ctx, qp);
	return rc;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int attr_mask)
{
	struct fab_qp *qp = fab_qp_of(ibv);
	int rc = fab_call_begin(qp->ctx->port, FAB_CALL_MODIFY_QP);

	if (rc != 0) {
		errno = -rc;
		return -rc;
	}
	if (fab_ctx_dead(qp->ctx)) {
		return EIO;
	}
	pthread_mutex_lock(&ibv->mutex);
	rc = modify_locked(qp, attr, attr_mask);
	pthread_mutex_unlock(&ibv->mutex);
	if (rc != 0) {
		errno = -rc;
	}
	return -rc;
}

/* Field by field: the caller's structs may be shorter than this library's. */
int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int attr_mask,
		 struct ibv_qp_init_attr *init_attr)
{
	struct fab_qp *qp = fab_qp_of(ibv);

	(void)attr_mask;
	if (fab_ctx_dead(qp->ctx)) {
		return EIO;
	}
	pthread_mutex_lock(&ibv->mutex);
	attr->qp_state = fab_qp_state(qp->slot);
	attr->cur_qp_state = attr->qp_state;
	attr->path_mtu = qp->path_mtu;
	attr->rq_psn = qp->rq_psn;
	attr->sq_psn = qp->tx.psn;
	attr->dest_qp_num = qp->dest_qpn;
	attr->qp_access_flags = qp->slot->access;
	attr->cap = qp->cap;
	attr->ah_attr = qp->ah;
	attr->pkey_index = qp->pkey_index;
	attr->port_num = qp->port_num;
	attr->timeout = qp->timeout;
	attr->retry_cnt = qp->retry_cnt;
	attr->rnr_retry = qp->rnr_retry;
	attr->max_rd_atomic = qp->max_rd_atomic;
	attr->max_dest_rd_atomic = qp->max_dest_rd_atomic;
	attr->min_rnr_timer = qp->min_rnr_timer;
	init_attr->qp_context = ibv->qp_context;
	init_attr->send_cq = ibv->send_cq;
	init_attr->recv_cq = ibv->recv_cq;
	init_attr->srq = ibv->srq;
	init_attr->cap = qp->cap;
	init_attr->qp_type = ibv->qp_type;
	init_attr->sq_sig_all = qp->sq_sig_all;
	pthread_mutex_unlock(&ibv->mutex);
	ibv->state = attr->qp_state;
	return 0;
}
