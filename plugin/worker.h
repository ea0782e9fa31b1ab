/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_WORKER_H
#define BRAID_PLUGIN_WORKER_H

#include <stdint.h>

/**
 * A thread for verbs calls that may block: creating, connecting, fencing and destroying QPs. One
 * per rail, so that a sick HCA holds up only its own repairs, and one for work on several rails.
 */
struct worker;

/** Embedded in its owner; queued at most once at a time. */
struct worker_job {
	void (*fn)(void *arg);
	void *arg;
	struct worker_job *next; /* owned by the worker while queued */
};

/** Create the worker, without its thread. 0 or -ENOMEM. */
int worker_create(const char *name, struct worker **out);

/** Make sure that its thread runs. Any thread. 0, or -EAGAIN when none can be had. */
int worker_start(struct worker *worker);

/** Queue a job of a started worker; jobs run in order. Any thread, never blocks, can't fail. */
void worker_post(struct worker *worker, struct worker_job *job);

/**
 * Run what is queued and end the thread. Waits at most bound_ms; -ETIMEDOUT leaves a thread that is
 * stuck in a verbs call behind (the library is never unmapped, so it may return later).
 */
int worker_destroy(struct worker *worker, uint32_t bound_ms);

#endif
