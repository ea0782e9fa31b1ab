/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "include/log.h"
#include "oob/loop_priv.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	LOOP_JOIN_MS = 5000,  /* a handler that is stuck longer is left behind */
	LOOP_LAST_ROUNDS = 16 /* tasks posted by tasks, while stopping */
};

struct oob_loop {
	struct ev_loop *ev; /* loop thread, once it runs */
	ev_async wake;      /* ev_async_send from any thread */
	pthread_t thread;
	pid_t pid; /* a fork's child has no such thread */
	pthread_mutex_t lock;
	struct oob_task *head, *tail; /* under lock: posted */
	struct oob_task *batch;       /* under lock: taken out, not run yet */
	struct oob_task stop_task;
};

static void task_push(struct oob_loop *loop, struct oob_task *task)
{
	bool first;

	pthread_mutex_lock(&loop->lock);
	if (task->queued) {
		pthread_mutex_unlock(&loop->lock);
		return;
	}
	task->queued = true;
	task->next = NULL;
	first = loop->head == NULL;
	if (first) {
		loop->head = task;
	} else {
		loop->tail->next = task;
	}
	loop->tail = task;
	/* under the lock, so that the loop cannot end between the two */
	if (first) {
		ev_async_send(loop->ev, &loop->wake);
	}
	pthread_mutex_unlock(&loop->lock);
}

/** Take the oldest task of the batch; copied, since fn may free it or post it again. */
static bool task_pop(struct oob_loop *loop, struct oob_task *out)
{
	struct oob_task *task;

	pthread_mutex_lock(&loop->lock);
	task = loop->batch;
	if (task != NULL) {
		loop->batch = task->next;
		task->queued = false;
		*out = *task;
	}
	pthread_mutex_unlock(&loop->lock);
	if (task != NULL && out->allocated) {
		free(task);
	}
	return task != NULL;
}

/** Run the tasks that are queued now, not those they post: the loop's descriptors get their turn.
 */
static bool tasks_run(struct oob_loop *loop)
{
	struct oob_task task;
	bool any = false;

	pthread_mutex_lock(&loop->lock);
	loop->batch = loop->head;
	loop->head = NULL;
	pthread_mutex_unlock(&loop->lock);
	while (task_pop(loop, &task)) {
		task.fn(task.arg);
		any = true;
	}
	return any;
}

static void wake_cb(struct ev_loop *ev, ev_async *watcher, int events)
{
	(void)ev;
	(void)events;
	tasks_run(watcher->data);
}

static void stop_run(void *arg)
{
	struct oob_loop *loop = arg;

	ev_break(loop->ev, EVBREAK_ALL);
}

static void *loop_main(void *arg)
{
	struct oob_loop *loop = arg;

	/* wait until oob_loop_start has stored the thread's id */
	pthread_mutex_lock(&loop->lock);
	pthread_mutex_unlock(&loop->lock);
	pthread_setname_np(pthread_self(), "braid-oob");
	ev_run(loop->ev, 0);
	for (int round = 0; round < LOOP_LAST_ROUNDS && tasks_run(loop); round++) {
	}
	return NULL;
}

static int thread_start(struct oob_loop *loop)
{
	sigset_t all, old;
	int rc;

	/* the thread inherits the mask: the host's handlers never run on it */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_mutex_lock(&loop->lock);
	rc = pthread_create(&loop->thread, NULL, loop_main, loop);
	pthread_mutex_unlock(&loop->lock);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -rc;
}

int oob_loop_start(struct oob_loop **out)
{
	struct oob_loop *loop = calloc(1, sizeof(*loop));
	int err;

	if (loop == NULL) {
		return -ENOMEM;
	}
	loop->ev = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	if (loop->ev == NULL) {
		err = -EAGAIN;
		LOG_WARN("no event loop: epoll or eventfd is not available (%m)");
		goto free_loop;
	}
	loop->pid = getpid();
	pthread_mutex_init(&loop->lock, NULL);
	loop->stop_task = (struct oob_task){.fn = stop_run, .arg = loop};
	ev_async_init(&loop->wake, wake_cb);
	loop->wake.data = loop;
	ev_async_start(loop->ev, &loop->wake);
	err = thread_start(loop);
	if (err != 0) {
		LOG_WARN("cannot create the control thread: error %d", -err);
		goto destroy_ev;
	}
	*out = loop;
	return 0;

destroy_ev:
	pthread_mutex_destroy(&loop->lock);
	ev_loop_destroy(loop->ev);
free_loop:
	free(loop);
	return err;
}

/** Tasks that nobody will run any more. */
static void tasks_drop(struct oob_loop *loop)
{
	while (loop->head != NULL) {
		struct oob_task *task = loop->head;

		loop->head = task->next;
		if (task->allocated) {
			free(task);
		}
	}
}

void oob_loop_stop(struct oob_loop *loop)
{
	struct timespec until;
	int rc;

	/* a child of fork() has the memory but not the thread, and shares the epoll instance */
	if (loop == NULL || loop->pid != getpid()) {
		return;
	}
	oob_loop_post_task(loop, &loop->stop_task);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LOOP_JOIN_MS / 1000;
	rc = pthread_timedjoin_np(loop->thread, NULL, &until);
	if (rc != 0) {
		LOG_WARN("the control thread did not end within %d ms (error %d); left behind",
			 LOOP_JOIN_MS, rc);
		return;
	}
	tasks_drop(loop);
	ev_async_stop(loop->ev, &loop->wake);
	ev_loop_destroy(loop->ev);
	pthread_mutex_destroy(&loop->lock);
	free(loop);
}

void oob_loop_post_task(struct oob_loop *loop, struct oob_task *task)
{
	task_push(loop, task);
}

int oob_loop_post(struct oob_loop *loop, oob_task_fn fn, void *arg)
{
	struct oob_task *task = calloc(1, sizeof(*task));

	if (task == NULL) {
		return -ENOMEM;
	}
	task->fn = fn;
	task->arg = arg;
	task->allocated = true;
	task_push(loop, task);
	return 0;
}

int oob_loop_is_self(const struct oob_loop *loop)
{
	return pthread_equal(loop->thread, pthread_self());
}

struct ev_loop *oob_loop_ev(struct oob_loop *loop)
{
	return loop->ev;
}
