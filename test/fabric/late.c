/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/late.h"

#include "test/fabric/gpu.h"

#include <stdlib.h>

#define HOLD_MAX_BYTES (64ull << 20)
#define HOLD_MAX_COUNT 65536u
#define PIECE_MAX      (256ull << 10)
#define BUSY_NS        20000ull
#define ROUND_COUNT    16

/* In order of arrival; packets of one QP never overtake each other. */
static void late_insert(struct fab_ctx *ctx, struct fab_late *late)
{
	struct fab_late **at = &ctx->late_head;
	struct fab_late **place = NULL;

	if (ctx->late_last != NULL && ctx->late_last->due_ns <= late->due_ns) {
		at = &ctx->late_last->next; /* nearly always */
	}
	for (; *at != NULL; at = &(*at)->next) {
		if ((*at)->ghost.ibv.qp_num == late->ghost.ibv.qp_num) {
			late->due_ns = (*at)->due_ns > late->due_ns ? (*at)->due_ns : late->due_ns;
			place = NULL;
		}
		if (place == NULL && (*at)->due_ns > late->due_ns) {
			place = at;
		}
	}
	place = place != NULL ? place : at;
	late->next = *place;
	*place = late;
	if (late->next == NULL) {
		ctx->late_last = late;
	}
	ctx->late_bytes += late->last_bytes - late->first_bytes;
	ctx->late_count++;
}

static struct fab_late *late_make(const struct fab_move *m, uint64_t len)
{
	struct fab_qp *qp = m->qp;
	size_t wr_bytes = sizeof(struct fab_swr) + sizeof(struct fab_sge);
	struct fab_late *late = calloc(1, sizeof(*late) + wr_bytes + len);

	if (late == NULL) {
		return NULL;
	}
	late->number = atomic_load_explicit(&qp->sq_next, memory_order_relaxed);
	late->first_bytes = qp->tx.pos_bytes;
	late->last_bytes = late->first_bytes + len;
	late->qp_gen = atomic_load_explicit(&qp->slot->gen, memory_order_relaxed);
	late->ghost.ctx = qp->ctx;
	late->ghost.idx = qp->idx;
	late->ghost.port = qp->port;
	late->ghost.rail = qp->rail;
	late->ghost.ibv.qp_num = qp->ibv.qp_num;
	late->ghost.ibv.qp_type = qp->ibv.qp_type;
	late->ghost.dest_qpn = qp->dest_qpn;
	late->ghost.path_mtu = qp->path_mtu;
	late->ghost.peer_host = qp->peer_host;
	late->ghost.peer_rail = qp->peer_rail;
	late->ghost.tx.psn = qp->tx.psn;
	late->ghost.tx.pos_bytes = qp->tx.pos_bytes;
	late->wr = (struct fab_swr *)(void *)(late + 1);
	*late->wr = *m->wr;
	late->wr->flags |= IBV_SEND_INLINE;
	late->wr->sge_count = len > 0 ? 1 : 0;
	late->wr->sge[0].addr = (uint64_t)(uintptr_t)late->wr + wr_bytes;
	late->wr->sge[0].len_bytes = (uint32_t)len;
	return late;
}

uint64_t fab_late_hold(struct fab_move *m, uint64_t late_ns)
{
	struct fab_ctx *ctx = m->qp->ctx;
	struct fab_sender *tx = &m->qp->tx;
	uint64_t left = m->wr->len_bytes - tx->pos_bytes;
	uint64_t len = left < PIECE_MAX ? left : PIECE_MAX;
	struct fab_list list = {m->wr->sge, m->wr->sge_count, tx->pos_bytes};
	struct fab_late *late = NULL;

	if (ctx->late_bytes + len <= HOLD_MAX_BYTES && ctx->late_count < HOLD_MAX_COUNT) {
		late = late_make(m, len);
	}
	if (late != NULL) { /* else that much is simply lost */
		if (!fab_gpu_gather(m, &list, len, (void *)(uintptr_t)late->wr->sge[0].addr)) {
			free(late);
			return fab_move_answer(m, FAB_LOCAL_PROT);
		}
		late->due_ns = m->now_ns + late_ns;
		late_insert(ctx, late);
		atomic_fetch_add_explicit(&m->path.own_port->late_held, 1, memory_order_relaxed);
	}
	tx->pos_bytes += len;
	fab_move_book(m, len);
	if (tx->pos_bytes == m->wr->len_bytes) {
		tx->psn = (tx->psn + fab_wr_packets(m->qp, m->wr)) & FAB_PSN_MASK;
		fab_send_held(m->qp, m->now_ns);
	}
	return 0;
}

void fab_late_executed(struct fab_move *m)
{
	struct fab_ctx *ctx = m->qp->ctx;
	struct fab_qp *qp;

	if (fab_qp_is_uc(m->qp) || !fab_port_ack_open(m->path.own_port, m->path.peer_port)) {
		return;
	}
	pthread_mutex_lock(&ctx->lock); /* keeps the QP from being freed */
	qp = ctx->qps[m->qp->idx];
	if (qp != NULL && qp->ibv.qp_num == m->qp->ibv.qp_num &&
	    fab_qp_state(qp->slot) == IBV_QPS_RTS &&
	    atomic_load_explicit(&qp->slot->gen, memory_order_relaxed) == m->late->qp_gen) {
		fab_send_acked(qp, &m->path, m->late->number + 1, m->now_ns);
		fab_engine_kick(ctx, qp);
	}
	pthread_mutex_unlock(&ctx->lock);
}

/* One step of the oldest. Returns false when another engine is at that QP, or its owner cannot
 * help. */
static bool late_step(struct fab_late *late, uint64_t now_ns)
{
	struct fab_move m = {.qp = &late->ghost, .wr = late->wr, .late = late, .now_ns = now_ns};
	struct fab_port *own = late->ghost.port;
	enum fab_verdict verdict = FAB_LOST;

	if (fab_path_find(&late->ghost, &m.path)) {
		fab_move_aim(&m);
		m.claim = fab_claim_begin(m.path.slot, late->ghost.ctx->inst->id);
		if (m.claim == 0) {
			return false;
		}
		fab_gate_enter(&m.gate);
		verdict = fab_move_run(&m);
		fab_gate_leave(&m.gate);
		(void)fab_move_answer(&m, verdict);
		fab_claim_end(m.path.slot, m.claim);
	}
	if (verdict == FAB_BUSY) {
		return false;
	}
	if (m.ring) {
		fab_inst_ring(m.path.peer);
	}
	if (verdict != FAB_GO_ON) {
		atomic_fetch_add_explicit(&own->late_dropped, 1, memory_order_relaxed);
		late->over = true;
	} else if (late->over) {
		atomic_fetch_add_explicit(&own->late_landed, 1, memory_order_relaxed);
	}
	return true;
}

static void late_pop(struct fab_ctx *ctx)
{
	struct fab_late *late = ctx->late_head;

	ctx->late_head = late->next;
	ctx->late_last = late->next == NULL ? NULL : ctx->late_last;
	ctx->late_bytes -= late->last_bytes - late->first_bytes;
	ctx->late_count--;
	free(late);
}

uint64_t fab_late_deliver(struct fab_ctx *ctx, uint64_t now_ns)
{
	for (int i = 0; i < ROUND_COUNT && ctx->late_head != NULL; i++) {
		struct fab_late *late = ctx->late_head;

		if (late->due_ns > now_ns) {
			break;
		}
		if (!late_step(late, now_ns)) {
			return now_ns + BUSY_NS;
		}
		if (late->over) {
			late_pop(ctx);
		}
	}
	return ctx->late_head != NULL ? ctx->late_head->due_ns : UINT64_MAX;
}

void fab_late_free(struct fab_ctx *ctx)
{
	while (ctx->late_head != NULL) {
		late_pop(ctx);
	}
}
