/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/close.h"

#include "include/log.h"
#include "plugin/comm.h"
#include "plugin/core.h"
#include "plugin/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

enum {
	CLOSE_BOUND_MS = 2000,
	QUIESCE_BOUND_MS = 2000,
};

struct close_wait {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	bool left; /* nobody waits any more */
};

struct close_wait *close_wait_create(void)
{
	struct close_wait *wait = calloc(1, sizeof(*wait));

	if (wait) {
		pthread_mutex_init(&wait->lock, NULL);
		pthread_cond_init(&wait->cond, NULL);
	}
	return wait;
}

static void close_wait_destroy(struct close_wait *wait)
{
	pthread_cond_destroy(&wait->cond);
	pthread_mutex_destroy(&wait->lock);
	free(wait);
}

void close_wait_signal(struct close_wait *wait)
{
	bool left;

	if (!wait) {
		return;
	}
	pthread_mutex_lock(&wait->lock);
	wait->done = true;
	left = wait->left;
	pthread_cond_signal(&wait->cond);
	pthread_mutex_unlock(&wait->lock);
	if (left) {
		close_wait_destroy(wait);
	}
}

int close_wait_end(struct close_wait *wait, unsigned int bound_ms)
{
	struct timespec until;
	bool done;

	if (!wait) {
		return -ETIMEDOUT;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += bound_ms / 1000 + 1;
	pthread_mutex_lock(&wait->lock);
	while (!wait->done && pthread_cond_timedwait(&wait->cond, &wait->lock, &until) == 0) {
	}
	done = wait->done;
	wait->left = !done;
	pthread_mutex_unlock(&wait->lock);
	if (done) {
		close_wait_destroy(wait);
	}
	return done ? 0 : -ETIMEDOUT;
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

static void quiesce_path(struct comm *comm, struct comm_path *path)
{
	struct quiesce_job *job = calloc(1, sizeof(*job));
	struct close_wait *wait = close_wait_create();

	if (!job || !wait) {
		free(job);
		if (wait) {
			close_wait_destroy(wait);
		}
		LOG_WARN("%s: out of memory while a connection is aborted", path->rail->label);
		return;
	}
	*job = (struct quiesce_job){
		.job = {.fn = quiesce_job, .arg = job}, .path = path, .wait = wait};
	comm_hold(comm);
	worker_post(runtime_instance()->rail_workers[path->rail->idx], &job->job);
	if (close_wait_end(wait, QUIESCE_BOUND_MS)) {
		LOG_WARN("%s: the HCA does not answer while a connection is aborted",
			 path->rail->label);
	}
}

/*
 * Nothing of this comm may read or write memory any more: NCCL is about to take it back. QPs in ERR
 * drop what arrives, and what they had posted is flushed without touching memory.
 */
void comm_quiesce(struct comm *comm)
{
	bool first;

	pthread_mutex_lock(&comm->lock);
	first = !comm->is_quiet;
	comm->is_quiet = true;
	comm->end.closing = true;
	pthread_mutex_unlock(&comm->lock);
	for (unsigned int i = 0; first && i < comm->path_count; i++) {
		if (comm->paths[i].qp.qp) {
			quiesce_path(comm, &comm->paths[i]);
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

	pthread_mutex_lock(&comm->lock);
	if (comm->state == COMM_READY) {
		frame.close.next_seq = comm->role == COMM_RECEIVER ? comm->rx.book.next_seq : 0;
	}
	comm->end.closing = true;
	comm->state = COMM_CLOSED;
	pthread_mutex_unlock(&comm->lock);
	if (comm->link && comm->peer_comm) {
		comm_send(comm, &frame);
	}
}

static int close_comm(struct comm *comm)
{
	struct close_wait *wait = close_wait_create();

	say_closed(comm);
	comm_hide(comm);
	comm->waiter = wait;
	comm_put(comm);
	if (close_wait_end(wait, CLOSE_BOUND_MS)) {
		LOG_WARN("a connection could not be taken down in %u ms, an HCA does not answer; "
			 "its threads stay",
			 CLOSE_BOUND_MS);
		return 0;
	}
	runtime_put();
	return 0;
}

int plugin_close_send(void *send_comm)
{
	return close_comm(send_comm);
}

int plugin_close_recv(void *recv_comm)
{
	return close_comm(recv_comm);
}
