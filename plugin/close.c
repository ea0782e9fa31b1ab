/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/close.h"

#include "include/clock.h"
#include "include/log.h"
#include "plugin/ack_list.h"
#include "plugin/comm.h"
#include "plugin/core.h"
#include "plugin/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

enum {
	CLOSE_BOUND_MS = 2000,
	QUIESCE_BOUND_MS = 2000,
	/* While the end of another one is stuck: all of them end on one thread, so it would be in
	 * vain, and hundreds of connections must not take 2 s each. */
	STUCK_BOUND_MS = 50,
};

static _Atomic unsigned int stuck_count; /* ends that were not waited for, and are not over */

struct close_wait {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	bool left; /* nobody waits any more */
	bool puts; /* and it has to give up its use of the runtime itself */
};

struct close_wait *close_wait_create(void)
{
	struct close_wait *wait = calloc(1, sizeof(*wait));
	pthread_condattr_t attr;

	if (wait) {
		pthread_mutex_init(&wait->lock, NULL);
		/* Not the time of day, which may be set while somebody waits. */
		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		pthread_cond_init(&wait->cond, &attr);
		pthread_condattr_destroy(&attr);
	}
	return wait;
}

static void close_wait_destroy(struct close_wait *wait)
{
	pthread_cond_destroy(&wait->cond);
	pthread_mutex_destroy(&wait->lock);
	free(wait);
}

/* Not on the thread that ends: giving up the runtime waits for it. */
static void *put_late(void *arg)
{
	(void)arg;
	runtime_put();
	return NULL;
}

static void put_elsewhere(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	atomic_fetch_sub_explicit(&stuck_count, 1, memory_order_relaxed);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, put_late, NULL)) {
		LOG_WARN("a connection has ended late, but there is no thread to stop others; they "
			 "stay");
	}
	pthread_attr_destroy(&attr);
}

void close_wait_signal(struct close_wait *wait)
{
	bool left, puts;

	if (!wait) {
		return;
	}
	pthread_mutex_lock(&wait->lock);
	wait->done = true;
	left = wait->left;
	puts = wait->puts;
	pthread_cond_signal(&wait->cond);
	pthread_mutex_unlock(&wait->lock);
	if (left) {
		close_wait_destroy(wait);
	}
	if (left && puts) {
		put_elsewhere();
	}
}

/* True when it is over; else it is left alone, and puts the runtime by itself if told so. */
static bool end_wait(struct close_wait *wait, unsigned int bound_ms, bool puts)
{
	uint64_t until_ns = clock_mono_ns() + bound_ms * NS_PER_MS;
	struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_SEC),
				 .tv_nsec = (long)(until_ns % NS_PER_SEC)};
	bool done;

	pthread_mutex_lock(&wait->lock);
	while (!wait->done && pthread_cond_timedwait(&wait->cond, &wait->lock, &until) == 0) {
	}
	done = wait->done;
	wait->left = !done;
	wait->puts = puts;
	if (!done && puts) { /* under the lock: before it can end */
		atomic_fetch_add_explicit(&stuck_count, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&wait->lock);
	if (done) {
		close_wait_destroy(wait);
	}
	return done;
}

void close_wait_end(struct close_wait *wait, const char *what)
{
	bool is_stuck = atomic_load_explicit(&stuck_count, memory_order_relaxed) > 0;

	if (wait && end_wait(wait, is_stuck ? STUCK_BOUND_MS : CLOSE_BOUND_MS, true)) {
		runtime_put();
		return;
	}
	LOG_WARN("%s could not be taken down in time, an HCA does not answer; its threads stay "
		 "until it does",
		 what);
}

/* Rail's worker, or the end of one of several such jobs. */
struct quiesce_job {
	struct worker_job job;
	struct comm_path *path;
	struct close_wait *wait;
};

static void quiesce_job(void *arg)
{
	struct quiesce_job *job = arg;
	struct comm *comm = job->path->comm;

	(void)ib_qp_fence(&job->path->qp); /* a dead HCA refuses, and moves nothing either */
	close_wait_signal(job->wait);
	free(job);
	comm_put(comm);
}

/* Queue it; what to wait for, or NULL. */
static struct close_wait *quiesce_path(struct comm *comm, struct comm_path *path)
{
	struct quiesce_job *job = calloc(1, sizeof(*job));
	struct close_wait *wait = close_wait_create();

	if (!job || !wait) {
		free(job);
		if (wait) {
			close_wait_destroy(wait);
		}
		LOG_WARN("%s: out of memory while a connection is aborted", path->rail->label);
		return NULL;
	}
	*job = (struct quiesce_job){
		.job = {.fn = quiesce_job, .arg = job}, .path = path, .wait = wait};
	comm_hold(comm);
	worker_post(runtime_instance()->rail_workers[path->rail->idx], &job->job);
	return wait;
}

/*
 * Nothing of this comm may read or write memory any more: NCCL is about to take it back. QPs in ERR
 * drop what arrives, and what they had posted is flushed without touching memory.
 */
void comm_quiesce(struct comm *comm)
{
	uint64_t until_ns = clock_mono_ns() + QUIESCE_BOUND_MS * NS_PER_MS;
	struct close_wait *waits[PATHS_MAX] = {NULL};
	bool first;

	lock_take(&comm->lock);
	first = !comm->is_quiet;
	comm->is_quiet = true; /* from here on nothing is posted, and no QP takes another's place */
	comm->end.closing = true;
	comm_unlock(comm);
	for (unsigned int i = 0; first && i < comm->path_count; i++) {
		if (comm->paths[i].qp.qp) {
			waits[i] = quiesce_path(comm, &comm->paths[i]);
		}
	}
	/* All rails at once: several sick ones cost one bound. */
	for (unsigned int i = 0; i < comm->path_count; i++) {
		uint64_t now_ns = clock_mono_ns();
		uint64_t left_ns = now_ns < until_ns ? until_ns - now_ns : 0;

		if (waits[i] && !end_wait(waits[i], (unsigned int)(left_ns / NS_PER_MS), false)) {
			LOG_WARN("%s: the HCA does not answer while a connection is aborted",
				 comm->paths[i].rail->label);
		}
	}
}

/*
 * The receiver's last word to the sender: which messages its book covers. A sender that closes says
 * so as well, so that the errors which follow on the other end are no incident.
 */
static void say_closed(struct comm *comm)
{
	struct frame frame = {.type = FRAME_CLOSE};
	bool is_known;

	lock_take(&comm->lock);
	is_known = comm->peer_comm != 0; /* no answer is taken any more, so it stays as it is */
	if (comm->state == COMM_READY) {
		frame.close.next_seq = comm->role == COMM_RECEIVER ? comm->rx.book.next_seq : 0;
	}
	comm->end.closing = true;
	comm->state = COMM_CLOSED;
	comm_give_requests(comm);
	repair_end_forget(&comm->end); /* others choose rails, however long its own end takes */
	comm_unlock(comm);
	if (comm->link && is_known) {
		comm_send(comm, &frame);
	}
}

void comm_close(struct comm *comm)
{
	struct close_wait *wait = close_wait_create();

	say_closed(comm);
	ack_list_flush(); /* it may be on the list, which holds a reference */
	comm_hide(comm);
	comm->waiter = wait;
	comm_put(comm);
	close_wait_end(wait, "a connection");
}

int plugin_close_send(void *send_comm)
{
	comm_close(send_comm);
	return 0;
}

int plugin_close_recv(void *recv_comm)
{
	comm_close(recv_comm);
	return 0;
}
