/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_WORKER_H
#define BRAID_TEST_DRIVER_WORKER_H

#include <pthread.h>
#include <stdbool.h>

/** A thread that runs one function after another; NCCL's service or progress thread. */
struct worker {
	pthread_t thread;
	pthread_mutex_t lock; /**< guards all below */
	pthread_cond_t changed;
	int (*fn)(void *arg);
	void *arg;
	int result;
	bool quit;
};

/** Start the thread under a name of at most 15 characters. Returns 0 or -errno. */
int worker_start(struct worker *worker, const char *name);
/** Let the thread run fn(arg); it must be idle. Returns at once. */
void worker_submit(struct worker *worker, int (*fn)(void *arg), void *arg);
/** Wait for the submitted function and return its result. */
int worker_wait(struct worker *worker);
/** End the thread, after what it is running. */
void worker_stop(struct worker *worker);

#endif
