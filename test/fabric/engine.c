/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/event.h"
#include "test/fabric/late.h"
#include "test/fabric/rule.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

/*
 * One thread per opened device. It takes QPs from the run list in turn, a step of up to 256 KiB or
 * 20 us of small ones each, so that they share the rail; a QP that waits for a time sits on the
 * wait list. With nothing to do it sleeps on the instance's doorbell, which peers ring too.
 *
 * At a limited rate most turns find the port booked out, and who comes when it is free gets it. So
 * a QP has a place in the line, which is the order of the run list. It gets the last one when it
 * comes and after each turn, unless all it did there was to find the port busy: then it keeps its
 * place, however often it is woken, for an acknowledgement or by a caller. Who moved is behind all
 * who waited, and nobody gets ahead by asking often.
 */

#define STEPS_NS 20000ull

/* Behind those with lower places: at the end, but for one that kept its place. */
static void run_insert(struct fab_ctx *ctx, struct fab_qp *qp)
{
	struct fab_qp *before = ctx->run_tail;

	while (before != NULL && before->place > qp->place) {
		before = before->prev;
	}
	qp->sched = FAB_SCHED_QUEUED;
	qp->prev = before;
	qp->next = before != NULL ? before->next : ctx->run_head;
	*(before != NULL ? &before->next : &ctx->run_head) = qp;
	*(qp->next != NULL ? &qp->next->prev : &ctx->run_tail) = qp;
}

static void run_remove(struct fab_ctx *ctx, struct fab_qp *qp)
{
	*(qp->prev != NULL ? &qp->prev->next : &ctx->run_head) = qp->next;
	*(qp->next != NULL ? &qp->next->prev : &ctx->run_tail) = qp->prev;
}

static void wait_insert(struct fab_ctx *ctx, struct fab_qp *qp, uint64_t wake_ns)
{
	qp->sched = qp->turn.port_busy ? FAB_SCHED_WAITING_PORT : FAB_SCHED_WAITING;
	qp->wake_ns = wake_ns;
	qp->next = NULL;
	qp->prev = ctx->wait_tail; /* they come by place, mostly, and so they go back */
	*(qp->prev != NULL ? &qp->prev->next : &ctx->wait_head) = qp;
	ctx->wait_tail = qp;
}

static void wait_remove(struct fab_ctx *ctx, struct fab_qp *qp)
{
	*(qp->prev != NULL ? &qp->prev->next : &ctx->wait_head) = qp->next;
	*(qp->next != NULL ? &qp->next->prev : &ctx->wait_tail) = qp->prev;
}

static bool is_waiting(const struct fab_qp *qp)
{
	return qp->sched == FAB_SCHED_WAITING || qp->sched == FAB_SCHED_WAITING_PORT;
}

/* Under queue_lock. */
static void queue(struct fab_ctx *ctx, struct fab_qp *qp)
{
	if (is_waiting(qp)) {
		wait_remove(ctx, qp);
		run_insert(ctx, qp);
	} else if (qp->sched == FAB_SCHED_IDLE) {
		qp->place = ++ctx->places;
		run_insert(ctx, qp);
	}
}

void fab_engine_kick(struct fab_ctx *ctx, struct fab_qp *qp)
{
	pthread_mutex_lock(&ctx->queue_lock);
	queue(ctx, qp);
	qp->kicked = true;
	pthread_mutex_unlock(&ctx->queue_lock);
	fab_inst_ring(ctx->inst);
}

void fab_engine_posted(struct fab_ctx *ctx, struct fab_qp *qp)
{
	bool waits;

	pthread_mutex_lock(&ctx->queue_lock);
	waits = qp->sched == FAB_SCHED_WAITING_PORT;
	if (!waits) {
		queue(ctx, qp);
		qp->posted = true;
	}
	pthread_mutex_unlock(&ctx->queue_lock);
	if (!waits) {
		fab_inst_ring(ctx->inst);
	}
}

void fab_engine_hold(struct fab_ctx *ctx)
{
	atomic_fetch_add_explicit(&ctx->exec_wanted, 1, memory_order_seq_cst);
	pthread_mutex_lock(&ctx->exec);
	atomic_fetch_sub_explicit(&ctx->exec_wanted, 1, memory_order_seq_cst);
}

void fab_engine_release(struct fab_ctx *ctx)
{
	pthread_cond_signal(&ctx->exec_free);
	pthread_mutex_unlock(&ctx->exec);
}

void fab_engine_forget(struct fab_ctx *ctx, struct fab_qp *qp)
{
	pthread_mutex_lock(&ctx->queue_lock);
	if (qp->sched == FAB_SCHED_QUEUED) {
		run_remove(ctx, qp);
	} else if (is_waiting(qp)) {
		wait_remove(ctx, qp);
	}
	qp->sched = FAB_SCHED_IDLE;
	qp->kicked = false;
	qp->posted = false;
	pthread_mutex_unlock(&ctx->queue_lock);
}

/* The next QP to work on, or NULL with the time the next one is due. */
static struct fab_qp *next_qp(struct fab_ctx *ctx, uint64_t now_ns, uint64_t *due_ns)
{
	struct fab_qp *following;
	struct fab_qp *qp;

	*due_ns = UINT64_MAX;
	pthread_mutex_lock(&ctx->queue_lock);
	for (qp = ctx->wait_head; qp != NULL; qp = following) {
		following = qp->next;
		if (qp->wake_ns <= now_ns) {
			wait_remove(ctx, qp);
			run_insert(ctx, qp);
		} else if (qp->wake_ns < *due_ns) {
			*due_ns = qp->wake_ns;
		}
	}
	qp = ctx->run_head;
	if (qp != NULL) {
		run_remove(ctx, qp);
		qp->sched = FAB_SCHED_RUNNING;
		qp->kicked = false;
		qp->posted = false;
	}
	pthread_mutex_unlock(&ctx->queue_lock);
	return qp;
}

static void put_back(struct fab_ctx *ctx, struct fab_qp *qp, uint64_t wake_ns)
{
	const struct fab_turn *turn = &qp->turn;

	pthread_mutex_lock(&ctx->queue_lock);
	if (turn->moved || !turn->port_busy) {
		qp->place = ++ctx->places;
	}
	if (wake_ns == 0 || qp->kicked || (qp->posted && !turn->port_busy)) {
		run_insert(ctx, qp);
	} else if (wake_ns != UINT64_MAX) {
		wait_insert(ctx, qp, wake_ns);
	} else {
		qp->sched = FAB_SCHED_IDLE;
	}
	pthread_mutex_unlock(&ctx->queue_lock);
}

/* A peer broke one of this instance's QPs: let each one that is in ERR flush. */
static void scan_qps(struct fab_ctx *ctx)
{
	if (atomic_exchange_explicit(&ctx->inst->scan_due, 0, memory_order_seq_cst) == 0) {
		return;
	}
	pthread_mutex_lock(&ctx->lock);
	for (uint32_t i = 0; i < atomic_load(&ctx->qp_high); i++) {
		if (ctx->qps[i] != NULL && fab_qp_state(ctx->qps[i]->slot) == IBV_QPS_ERR) {
			fab_engine_kick(ctx, ctx->qps[i]);
		}
	}
	pthread_mutex_unlock(&ctx->lock);
}

/* Steps of one QP: while they are short, a few at a time, so that small messages do not each pay
 * for a round of the engine. Whoever waits for the engine, and a completion event, end it at once;
 * so does what is a turn at a limited rate, since time that a late engine makes up for is for all.
 */
static uint64_t steps(struct fab_ctx *ctx, struct fab_qp *qp, uint64_t now_ns)
{
	uint64_t end_ns = now_ns + STEPS_NS;
	uint64_t wake_ns;

	qp->turn = (struct fab_turn){.bytes = 0};
	wake_ns = fab_qp_step(qp, now_ns);
	while (wake_ns == 0 && !qp->turn.over) {
		now_ns = fab_now_ns();
		if (now_ns >= end_ns ||
		    atomic_load_explicit(&ctx->exec_wanted, memory_order_relaxed) != 0 ||
		    atomic_load_explicit(&ctx->inst->comp_due, memory_order_relaxed) != 0) {
			break;
		}
		wake_ns = fab_qp_step(qp, now_ns);
	}
	return wake_ns;
}

/* A turn of one QP. `other_ns`: when something else is due. Returns the ns to sleep when there
 * was none to work on, else 0. */
static uint64_t work(struct fab_ctx *ctx, uint64_t other_ns)
{
	uint64_t due_ns;
	uint64_t now_ns;
	uint64_t wake_ns;
	uint64_t late_ns;
	struct fab_qp *qp;

	pthread_mutex_lock(&ctx->exec);
	while (atomic_load_explicit(&ctx->exec_wanted, memory_order_seq_cst) != 0) {
		pthread_cond_wait(&ctx->exec_free, &ctx->exec);
	}
	now_ns = fab_now_ns();
	late_ns = fab_late_deliver(ctx, now_ns);
	qp = next_qp(ctx, now_ns, &due_ns);
	due_ns = late_ns < due_ns ? late_ns : due_ns;
	due_ns = other_ns < due_ns ? other_ns : due_ns;
	if (qp != NULL) {
		wake_ns = steps(ctx, qp, now_ns);
		put_back(ctx, qp, wake_ns);
	}
	pthread_mutex_unlock(&ctx->exec);
	if (qp != NULL) {
		return 0;
	}
	now_ns = fab_now_ns();
	wake_ns = atomic_load_explicit(&ctx->lib->root->next_deadline_ns, memory_order_seq_cst);
	due_ns = wake_ns != 0 && wake_ns < due_ns ? wake_ns : due_ns;
	if (due_ns == UINT64_MAX) {
		return UINT64_MAX;
	}
	return due_ns > now_ns ? due_ns - now_ns : 0;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

/* Looks at the doorbell for a while first, FABRIC_SPIN_US: whoever rings meanwhile finds nobody
 * asleep and makes no system call. A shorter wait ends here too. */
static void rest(struct fab_ctx *ctx, uint32_t seen, uint64_t sleep_ns)
{
	uint64_t spin_ns = ctx->lib->spin_ns < sleep_ns ? ctx->lib->spin_ns : sleep_ns;
	uint64_t start_ns = spin_ns != 0 ? fab_now_ns() : 0;
	uint64_t spun_ns = 0;

	while (spun_ns < spin_ns) {
		if (atomic_load_explicit(&ctx->inst->doorbell, memory_order_relaxed) != seen) {
			return;
		}
		relax();
		spun_ns = fab_now_ns() - start_ns;
	}
	if (sleep_ns == UINT64_MAX || sleep_ns > spun_ns) {
		fab_inst_wait(ctx->inst, seen,
			      sleep_ns == UINT64_MAX ? UINT64_MAX : sleep_ns - spun_ns);
	}
}

static void *engine_main(void *arg)
{
	struct fab_ctx *ctx = arg;

	prctl(PR_SET_NAME, "fabric");
	prctl(PR_SET_TIMERSLACK, 1000);
	for (;;) {
		/* First of all, so that whoever rings after a look below cuts the sleep short. */
		uint32_t seen = atomic_load_explicit(&ctx->inst->doorbell, memory_order_seq_cst);
		uint64_t sleep_ns;
		uint64_t event_ns;

		if (atomic_load_explicit(&ctx->stopping, memory_order_acquire) != 0) {
			return NULL;
		}
		fab_rule_tick(ctx->lib->root, ctx->lib->dir, fab_now_ns());
		event_ns = fab_event_forward(ctx);
		fab_cq_notify(ctx);
		scan_qps(ctx);
		sleep_ns = work(ctx, event_ns);
		if (sleep_ns != 0) {
			rest(ctx, seen, sleep_ns);
		}
	}
}

int fab_engine_start(struct fab_ctx *ctx)
{
	sigset_t all;
	sigset_t old;
	int rc;

	pthread_mutex_init(&ctx->exec, NULL);
	pthread_mutex_init(&ctx->queue_lock, NULL);
	pthread_cond_init(&ctx->exec_free, NULL);
	sigfillset(&all); /* the application's signals are for its own threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&ctx->thread, NULL, engine_main, ctx);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -rc;
}

void fab_engine_stop(struct fab_ctx *ctx)
{
	atomic_store_explicit(&ctx->stopping, 1, memory_order_release);
	fab_inst_ring(ctx->inst);
	pthread_join(ctx->thread, NULL);
	fab_late_free(ctx);
	pthread_mutex_destroy(&ctx->exec);
	pthread_mutex_destroy(&ctx->queue_lock);
	pthread_cond_destroy(&ctx->exec_free);
}
