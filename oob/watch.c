/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/loop_priv.h"

#include <errno.h>
#include <stdlib.h>

/*
 * Timers and descriptor watches for users of the loop: a libev watcher behind each, so that the
 * header of loop.h does not show libev.
 */

static void timer_cb(struct ev_loop *ev, ev_timer *watcher, int events)
{
	struct oob_timer *timer = watcher->data;

	(void)ev;
	(void)events;
	/* fn may stop the timer, which frees the watcher: nothing follows */
	timer->fn(timer->arg);
}

int oob_timer_set(struct oob_loop *loop, struct oob_timer *timer, uint32_t period_ms)
{
	struct ev_loop *ev = oob_loop_ev(loop);
	ev_timer *watcher = timer->priv;

	if (period_ms == 0) {
		if (watcher != NULL) {
			ev_timer_stop(ev, watcher);
			free(watcher);
			timer->priv = NULL;
		}
		return 0;
	}
	if (watcher == NULL) {
		watcher = calloc(1, sizeof(*watcher));
		if (watcher == NULL) {
			return -ENOMEM;
		}
		ev_init(watcher, timer_cb);
		watcher->data = timer;
		timer->priv = watcher;
	}
	watcher->repeat = period_ms / 1000.0;
	/* the loop's idea of now is from before the current callback */
	ev_now_update(ev);
	ev_timer_again(ev, watcher);
	return 0;
}

static void watch_cb(struct ev_loop *ev, ev_io *watcher, int events)
{
	struct oob_watch *watch = watcher->data;

	(void)ev;
	(void)events;
	watch->fn(watch->arg);
}

int oob_watch_start(struct oob_loop *loop, struct oob_watch *watch)
{
	ev_io *watcher;

	if (watch->priv != NULL) {
		return 0;
	}
	watcher = calloc(1, sizeof(*watcher));
	if (watcher == NULL) {
		return -ENOMEM;
	}
	ev_io_init(watcher, watch_cb, watch->fd, EV_READ);
	watcher->data = watch;
	watch->priv = watcher;
	ev_io_start(oob_loop_ev(loop), watcher);
	return 0;
}

void oob_watch_stop(struct oob_loop *loop, struct oob_watch *watch)
{
	ev_io *watcher = watch->priv;

	if (watcher == NULL) {
		return;
	}
	ev_io_stop(oob_loop_ev(loop), watcher);
	free(watcher);
	watch->priv = NULL;
}
