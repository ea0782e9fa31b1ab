/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_LOOP_H
#define BRAID_OOB_LOOP_H

#include <stdint.h>

/**
 * One private libev loop on its own thread (ev_loop_new, never the default loop, which would take
 * over SIGCHLD in the host process). All callbacks of oob/ run on this thread, with all signals
 * blocked. Other threads post tasks; what else they may call says so.
 */
struct oob_loop;

typedef void (*oob_task_fn)(void *arg);

/** Start the thread. 0, or -errno (-EAGAIN, -ENOMEM). May block for a thread creation. */
int oob_loop_start(struct oob_loop **out);

/**
 * Run what was posted so far, end and join the thread; 5 s at most, then the thread is left behind
 * with a WARN line. Nets are closed and timers and watches stopped before. NULL is fine. Not from
 * the loop's own thread. Does nothing in a child of fork().
 */
void oob_loop_stop(struct oob_loop *loop);

/** Run fn(arg) on the loop thread soon, in order of posting. Any thread. 0 or -ENOMEM. */
int oob_loop_post(struct oob_loop *loop, oob_task_fn fn, void *arg);

/** True on the loop's own thread. */
int oob_loop_is_self(const struct oob_loop *loop);

/** Periodic timer. Embed it; loop thread only. */
struct oob_timer {
	oob_task_fn fn;
	void *arg;
	void *priv; /* libev watcher, owned by oob */
};

/** Start or restart with a new period. Period 0 stops it. Loop thread only. 0 or -ENOMEM. */
int oob_timer_set(struct oob_loop *loop, struct oob_timer *timer, uint32_t period_ms);

/** Watch a file descriptor for readability (an HCA's async_fd). Loop thread only. */
struct oob_watch {
	int fd;
	oob_task_fn fn;
	void *arg;
	void *priv;
};

int oob_watch_start(struct oob_loop *loop, struct oob_watch *watch);
void oob_watch_stop(struct oob_loop *loop, struct oob_watch *watch);

#endif
