/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/worker.h"

static void *worker_main(void *arg)
{
	struct worker *worker = arg;

	pthread_mutex_lock(&worker->lock);
	while (!worker->quit) {
		if (!worker->fn) {
			pthread_cond_wait(&worker->changed, &worker->lock);
			continue;
		}
		int (*fn)(void *) = worker->fn;

		pthread_mutex_unlock(&worker->lock);
		int result = fn(worker->arg);

		pthread_mutex_lock(&worker->lock);
		worker->result = result;
		worker->fn = NULL;
		pthread_cond_broadcast(&worker->changed);
	}
	pthread_mutex_unlock(&worker->lock);
	return NULL;
}

int worker_start(struct worker *worker, const char *name)
{
	*worker = (struct worker){.fn = NULL};
	pthread_mutex_init(&worker->lock, NULL);
	pthread_cond_init(&worker->changed, NULL);
	int err = pthread_create(&worker->thread, NULL, worker_main, worker);

	if (err) {
		return -err;
	}
	pthread_setname_np(worker->thread, name);
	return 0;
}

void worker_submit(struct worker *worker, int (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&worker->lock);
	worker->arg = arg;
	worker->fn = fn;
	pthread_cond_broadcast(&worker->changed);
	pthread_mutex_unlock(&worker->lock);
}

int worker_wait(struct worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	while (worker->fn) {
		pthread_cond_wait(&worker->changed, &worker->lock);
	}
	int result = worker->result;

	pthread_mutex_unlock(&worker->lock);
	return result;
}

void worker_stop(struct worker *worker)
{
	pthread_mutex_lock(&worker->lock);
	worker->quit = true;
	pthread_cond_broadcast(&worker->changed);
	pthread_mutex_unlock(&worker->lock);
	pthread_join(worker->thread, NULL);
	pthread_cond_destroy(&worker->changed);
	pthread_mutex_destroy(&worker->lock);
}
