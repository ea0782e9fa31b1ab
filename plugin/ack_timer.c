/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/ack_timer.h"

#include "include/clock.h"
#include "include/log.h"
#include "plugin/comm.h"
#include "plugin/runtime.h"

#include <stddef.h>

enum {
	BEGIN_COUNT = 8, /* refused in one tick: with less there is nothing to save */
	END_ROUNDS = 100 /* in which nothing waited */
};

static struct {
	struct lock lock;
	_Atomic bool runs;        /* written under the lock; read without to save taking it */
	struct comm *waiting;     /* lock; for the next round; a reference each */
	unsigned int idle_rounds; /* loop thread */
} timer;

static void insert(struct comm *comm)
{
	comm->ack_next = timer.waiting;
	timer.waiting = comm;
}

bool ack_timer_add(struct comm *comm)
{
	bool runs;

	/* Relaxed: refused once too often is harmless. */
	if (!atomic_load_explicit(&timer.runs, memory_order_relaxed)) {
		comm->ack_refused_count++;
		return false;
	}
	lock_take(&timer.lock);
	runs = atomic_load_explicit(&timer.runs, memory_order_relaxed);
	if (runs) {
		insert(comm_hold(comm));
	}
	lock_give(&timer.lock);
	return runs;
}

static void look_at(struct comm *comm)
{
	bool again = false;

	lock_take(&comm->lock);
	if (comm->state == COMM_READY && !comm->is_quiet) {
		again = repair_rx_ack_round(&comm->rx, clock_mono_ns());
	}
	if (again) {
		lock_take(&timer.lock);
		insert(comm);
		lock_give(&timer.lock);
	}
	comm_unlock(comm);
	if (!again) {
		comm_put(comm);
	}
}

/* What comes from now on is for the next round. */
static struct comm *take_all(void)
{
	struct comm *all;

	lock_take(&timer.lock);
	all = timer.waiting;
	timer.waiting = NULL;
	lock_give(&timer.lock);
	return all;
}

/* False: something waits, so they have to go on. */
static bool end_rounds(struct runtime *rt)
{
	bool none;

	lock_take(&timer.lock);
	none = timer.waiting == NULL;
	if (none) {
		atomic_store_explicit(&timer.runs, false, memory_order_relaxed);
	}
	lock_give(&timer.lock);
	if (none) {
		oob_timer_set(rt->loop, &rt->ack_timer, 0);
	}
	return none;
}

static void round_run(void *arg)
{
	struct comm *comm = take_all(), *next;

	timer.idle_rounds = comm ? 0 : timer.idle_rounds + 1;
	for (; comm; comm = next) {
		next = comm->ack_next;
		look_at(comm);
	}
	if (timer.idle_rounds >= END_ROUNDS) {
		(void)end_rounds(arg);
	}
}

void ack_timer_tick(struct runtime *rt, unsigned int refused_count)
{
	uint32_t period_ms = (uint32_t)rt->cfg.ack_delay_ms;

	if (refused_count < BEGIN_COUNT || period_ms == 0 ||
	    atomic_load_explicit(&timer.runs, memory_order_relaxed)) {
		return;
	}
	rt->ack_timer.fn = round_run;
	rt->ack_timer.arg = rt;
	if (oob_timer_set(rt->loop, &rt->ack_timer, period_ms)) {
		return;
	}
	timer.idle_rounds = 0;
	lock_take(&timer.lock);
	atomic_store_explicit(&timer.runs, true, memory_order_relaxed);
	lock_give(&timer.lock);
}

void ack_timer_stop(struct runtime *rt)
{
	bool none = end_rounds(rt);

	ASSERT(none); /* a comm on the list is not gone */
	(void)none;
}
