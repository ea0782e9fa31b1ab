/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/gid.h"
#include "ib/qp.h"
#include "ib/verbs.h"

#include <string.h>

enum {
	MODIFY_TRIES = 4,
	HOP_LIMIT = 255,
	MIN_RNR_TIMER = 12, /* 0.64 ms */
	RNR_RETRY = 7       /* endless: a peer that is slow to post is not a dead rail */
};

/*
 * Resolving the peer's link address is part of the step on Ethernet and may time out when the first
 * request of it is lost.
 */
static int modify_patient(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int rc = -ETIMEDOUT;

	for (int tries = 0; tries < MODIFY_TRIES && rc == -ETIMEDOUT; tries++) {
		rc = ib_verbs_modify_qp(qp, attr, mask);
	}
	return rc;
}

static int pick_traffic_class(const struct braid_config *cfg, int traffic_class)
{
	if (traffic_class < 0) {
		traffic_class = cfg->ib_tc;
	}
	return traffic_class < 0 ? 0 : traffic_class & 0xff;
}

/* As NCCL: without a level of its own, the communicator's traffic class is taken for one. */
static uint8_t pick_service_level(const struct braid_config *cfg, int traffic_class)
{
	int level = cfg->ib_sl >= 0 ? cfg->ib_sl : traffic_class;

	return level >= 0 && level <= 15 ? (uint8_t)level : 0;
}

/* One try: both ends as they are now. */
struct route {
	struct ib_rail_addr local;
	const struct rail_desc *peer_rail;
	const struct qp_addr *peer;
	int traffic_class;
	uint8_t service_level;
};

static void set_grh(const struct route *route, struct ibv_ah_attr *ah)
{
	ah->is_global = 1;
	memcpy(ah->grh.dgid.raw, route->peer_rail->gid, sizeof(ah->grh.dgid.raw));
	ah->grh.sgid_index = (uint8_t)route->local.gid_index;
	ah->grh.hop_limit = HOP_LIMIT;
	ah->grh.traffic_class = (uint8_t)route->traffic_class;
}

/* InfiniBand addresses by LID; beyond the subnet by GID, and by FLID where routers have one. */
static struct ibv_ah_attr make_ah(const struct ib_rail *rail, const struct route *route)
{
	struct ibv_ah_attr ah = {.port_num = rail->port, .sl = route->service_level};
	union ibv_gid peer_gid;

	if (rail->link_layer == RAIL_LINK_ETHERNET) {
		set_grh(route, &ah);
		return ah;
	}
	ah.dlid = route->peer_rail->lid;
	memcpy(peer_gid.raw, route->peer_rail->gid, sizeof(peer_gid.raw));
	if (memcmp(route->local.gid.raw, peer_gid.raw, 8) != 0) {
		set_grh(route, &ah);
		if (ib_gid_flid(&peer_gid) != 0) {
			ah.dlid = ib_gid_flid(&peer_gid);
		}
	}
	return ah;
}

static int to_rtr(struct ib_qp *qp, const struct route *route)
{
	uint8_t mtu =
		route->peer_rail->mtu < route->local.mtu ? route->peer_rail->mtu : route->local.mtu;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)mtu,
		.rq_psn = route->peer->psn,
		.dest_qp_num = route->peer->qpn,
		.ah_attr = make_ah(qp->rail, route),
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = MIN_RNR_TIMER,
	};

	return modify_patient(qp->qp, &attr,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct ib_qp *qp, const struct braid_config *cfg)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = qp->psn,
		.max_rd_atomic = 1,
		.timeout = (uint8_t)cfg->ib_timeout,
		.retry_cnt = (uint8_t)cfg->ib_retry_count,
		.rnr_retry = RNR_RETRY,
	};

	return modify_patient(qp->qp, &attr,
			      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static void log_failed(const struct ib_qp *qp, const struct route *route, const char *step, int rc)
{
	const struct rail_desc *there = route->peer_rail;
	const struct ib_rail_addr *here = &route->local;
	char local[GID_TEXT_MAX_BYTES], remote[GID_TEXT_MAX_BYTES];
	union ibv_gid peer_gid;

	memcpy(peer_gid.raw, there->gid, sizeof(peer_gid.raw));
	LOG_WARN("rail %s: QP 0x%x cannot go to %s towards %.*s:%u: %s (GID %d %s MTU %u LID %u, "
		 "there GID %s MTU %u LID %u)",
		 qp->rail->label, qp->qpn, step, RAIL_NAME_MAX, there->name, there->port,
		 strerror(-rc), here->gid_index, ib_gid_text(&here->gid, local), 128u << here->mtu,
		 here->lid, ib_gid_text(&peer_gid, remote), 128u << there->mtu, there->lid);
}

int ib_qp_connect(struct ib_qp *qp, const struct rail_desc *peer_rail, const struct qp_addr *peer,
		  const struct braid_config *cfg, int traffic_class)
{
	struct route route = {.peer_rail = peer_rail,
			      .peer = peer,
			      .traffic_class = pick_traffic_class(cfg, traffic_class),
			      .service_level = pick_service_level(cfg, traffic_class)};
	int rc;

	/* from the wire: nothing that verbs would be handed unchecked */
	if (peer_rail->link_layer != qp->rail->link_layer || peer_rail->mtu < IBV_MTU_256 ||
	    peer_rail->mtu > IBV_MTU_4096 || peer->qpn == 0 || peer->qpn > 0xffffff ||
	    peer->psn > 0xffffff) {
		LOG_WARN("rail %s: the peer's rail %.*s:%u does not fit (link layer %u, MTU %u, "
			 "QP 0x%x)",
			 qp->rail->label, RAIL_NAME_MAX, peer_rail->name, peer_rail->port,
			 peer_rail->link_layer, peer_rail->mtu, peer->qpn);
		return -EINVAL;
	}
	ib_rail_addr_get(qp->rail, &route.local);
	rc = to_rtr(qp, &route);
	if (rc != 0) {
		log_failed(qp, &route, "RTR", rc);
		return rc;
	}
	rc = to_rts(qp, cfg);
	if (rc != 0) {
		log_failed(qp, &route, "RTS", rc);
	}
	return rc;
}
