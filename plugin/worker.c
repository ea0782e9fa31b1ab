/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/worker.h"

#include "include/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct worker {
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t wake;
	struct worker_job *head, **tail;
	bool started, stopping;
	pthread_t thread;
	char name[16];
};

static void *run(void *arg)
{
	struct worker *worker = arg;

	pthread_mutex_lock(&worker->lock);
	for (;;) {
		struct worker_job *job = worker->head;

		if (job) {
			worker->head = job->next;
			if (!worker->head) {
				worker->tail = &worker->head;
			}
			pthread_mutex_unlock(&worker->lock);
			job->fn(job->arg); /* may free the job */
			pthread_mutex_lock(&worker->lock);
		} else if (worker->stopping) {
			break;
		} else {
			pthread_cond_wait(&worker->wake, &worker->lock);
		}
	}
	pthread_mutex_unlock(&worker->lock);
	return NULL;
}

int worker_create(const char *name, struct worker **out)
{
	struct worker *worker = calloc(1, sizeof(*worker));

	if (!worker) {
		return -ENOMEM;
	}
	pthread_mutex_init(&worker->lock, NULL);
	pthread_cond_init(&worker->wake, NULL);
	worker->tail = &worker->head;
	strncpy(worker->name, name, sizeof(worker->name) - 1);
	*out = worker;
	return 0;
}

/* The host process keeps its signals: none is delivered here. */
static int start(struct worker *worker)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&worker->thread, NULL, run, worker);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc) {
		LOG_WARN("cannot start thread %s: %s", worker->name, strerror(rc));
		return -EAGAIN;
	}
	pthread_setname_np(worker->thread, worker->name);
	worker->started = true;
	return 0;
}

int worker_start(struct worker *worker)
{
	int rc = 0;

	pthread_mutex_lock(&worker->lock);
	if (!worker->started) {
		rc = start(worker);
	}
	pthread_mutex_unlock(&worker->lock);
	return rc;
}

void worker_post(struct worker *worker, struct worker_job *job)
{
	pthread_mutex_lock(&worker->lock);
	ASSERT(worker->started && !worker->stopping);
	job->next = NULL;
	*worker->tail = job;
	worker->tail = &job->next;
	pthread_cond_signal(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
}

int worker_destroy(struct worker *worker, uint32_t bound_ms)
{
	struct timespec until;
	bool started;

	if (!worker) {
		return 0;
	}
	pthread_mutex_lock(&worker->lock);
	worker->stopping = true;
	started = worker->started;
	pthread_cond_signal(&worker->wake);
	pthread_mutex_unlock(&worker->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += bound_ms / 1000;
	until.tv_nsec += (long)(bound_ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	if (started && pthread_timedjoin_np(worker->thread, NULL, &until)) {
		LOG_WARN("thread %s is stuck in a verbs call and is left behind", worker->name);
		pthread_detach(worker->thread);
		return -ETIMEDOUT; /* the object stays with the thread */
	}
	pthread_cond_destroy(&worker->wake);
	pthread_mutex_destroy(&worker->lock);
	free(worker);
	return 0;
}
