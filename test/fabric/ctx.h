/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_CTX_H
#define BRAID_TEST_FABRIC_CTX_H

#include "test/fabric/claim.h"
#include "test/fabric/lib.h"

#include <pthread.h>
#include <stddef.h>

struct fab_qp;
struct fab_cq;
struct fab_gpu;
struct fab_late;
struct fab_srq;

#define FAB_HEAP_CLASSES 30u

/** An opened device. */
struct fab_ctx {
	struct verbs_context verbs; /* its `context` is the caller's pointer */
	struct fab_lib *lib;
	struct fab_inst *inst;
	struct fab_port *port; /* port 1 */
	const struct fab_dev *dev;
	uint32_t host;
	uint32_t rail; /* of port 1 */
	int event_fd;  /* the engine's end of the pipe behind async_fd */

	pthread_mutex_t lock; /* the tables below and the heap; then only queue_lock may be taken */
	uint64_t heap_next;
	uint64_t heap_free[FAB_HEAP_CLASSES]; /* offset of the first free block per size class */
	uint32_t mr_next;
	_Atomic uint32_t qp_high; /* slots of the QP table ever used */
	_Atomic uint32_t cq_high; /* ... of the CQ table */
	uint32_t pd_next;
	uint32_t object_count; /* PDs, CQs, QPs, MRs and channels alive */
	struct fab_cq *cqs[FAB_MAX_CQS];
	struct fab_qp *qps[FAB_MAX_QPS];
	struct fab_srq *srqs[FAB_MAX_SRQS];

	/* The engine. exec: held while it works on a QP, and by calls that must keep it off. */
	pthread_t thread;
	pthread_mutex_t exec;
	pthread_cond_t exec_free;
	_Atomic uint32_t exec_wanted;
	pthread_mutex_t queue_lock; /* the two lists and sched fields of QPs; innermost */
	struct fab_qp *run_head;
	struct fab_qp *run_tail;
	struct fab_qp *wait_head; /* in no order that counts; few */
	struct fab_qp *wait_tail;
	uint64_t places; /* given out so far, see struct fab_qp */
	_Atomic uint32_t stopping;

	_Atomic(struct fab_gpu *) gpu; /* NULL until GPU memory is registered; gpu.h */

	/* Packets held back, by arrival; the engine's. */
	struct fab_late *late_head;
	struct fab_late *late_last;
	uint64_t late_bytes;
	uint32_t late_count;
};

static inline struct fab_ctx *fab_ctx_of(struct ibv_context *context)
{
	return (struct fab_ctx *)(void *)((char *)context -
					  offsetof(struct fab_ctx, verbs.context));
}

/** Dead by nic_death, now or before: the adapter does nothing any more for this context. */
static inline bool fab_ctx_dead(const struct fab_ctx *ctx)
{
	return fab_root_deaths(ctx->lib->root, ctx->host, ctx->rail, ctx->dev->port_count) !=
	       ctx->inst->dead_count;
}

/** The rail behind port `port_num`, from 1 on; NULL when the device has no such port. */
static inline struct fab_port *fab_ctx_port(const struct fab_ctx *ctx, uint32_t port_num)
{
	return port_num - 1 < ctx->dev->port_count
		       ? fab_root_port(ctx->lib->root, ctx->host, ctx->rail + port_num - 1)
		       : NULL;
}

/** Space in the instance file, zeroed, 64-byte aligned; 0 when it is full. */
uint64_t fab_heap_alloc(struct fab_ctx *ctx, uint64_t size_bytes);
void fab_heap_free(struct fab_ctx *ctx, uint64_t offset, uint64_t size_bytes);

void fab_ctx_object_add(struct fab_ctx *ctx);
void fab_ctx_object_del(struct fab_ctx *ctx);

int fab_engine_start(struct fab_ctx *ctx);
void fab_engine_stop(struct fab_ctx *ctx);
/** Something changed for this QP: the engine looks at it soon. */
void fab_engine_kick(struct fab_ctx *ctx, struct fab_qp *qp);
/** Sends were posted to it. As a kick, but one that waits for its turn at the port goes on waiting:
 * it has something to send already. */
void fab_engine_posted(struct fab_ctx *ctx, struct fab_qp *qp);
/** Keeps the engine off all QPs of the context until fab_engine_release(). */
void fab_engine_hold(struct fab_ctx *ctx);
void fab_engine_release(struct fab_ctx *ctx);
/** Takes the QP off the engine's lists. Under fab_engine_hold(). */
void fab_engine_forget(struct fab_ctx *ctx, struct fab_qp *qp);

#endif
