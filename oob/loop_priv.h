/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_LOOP_PRIV_H
#define BRAID_OOB_LOOP_PRIV_H

#include "oob/loop.h"

#include <ev.h>

#include <stdbool.h>

/** What the rest of oob/ needs from the loop beyond its public face. */

/** A task that its owner embeds, so that posting it cannot fail. Zeroed: not queued. */
struct oob_task {
	struct oob_task *next;
	oob_task_fn fn;
	void *arg;
	bool queued;    /* under the loop's lock */
	bool allocated; /* by oob_loop_post: freed before it runs */
};

/**
 * Queue an embedded task; fn and arg are set by its owner. Nothing happens when it is queued
 * already: it has not run yet, so it will see what the caller has just written. Any thread.
 */
void oob_loop_post_task(struct oob_loop *loop, struct oob_task *task);

/** The libev loop, for watchers. Loop thread only. */
struct ev_loop *oob_loop_ev(struct oob_loop *loop);

#endif
