/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/listener.h"

#include "include/log.h"

#include <errno.h>

enum {
	ACCEPTS_PER_WAKE = 64, /* then the links get their turn */
	PORT_TRIES = 32        /* the port may be taken on the second address */
};

#define PAUSE_S 0.1

static void fds_close(struct oob_listener *listener)
{
	for (size_t i = 0; i < listener->count; i++) {
		oob_sock_close(listener->fds[i]);
	}
	listener->count = 0;
}

static int open_once(struct oob_listener *listener, const union oob_sock_addr *addrs, size_t count,
		     uint16_t *port)
{
	uint16_t chosen = 0;

	for (size_t i = 0; i < count; i++) {
		union oob_sock_addr addr;
		uint8_t family, bytes[16];
		uint16_t ignored;
		int fd;

		oob_sock_addr_split(&addrs[i], &family, bytes, &ignored);
		oob_sock_addr_make(family, bytes, chosen,
				   family == AF_INET6 ? addrs[i].v6.sin6_scope_id : 0, &addr);
		fd = oob_sock_listen(&addr);
		if (fd < 0) {
			fds_close(listener);
			return fd;
		}
		listener->fds[listener->count++] = fd;
		chosen = chosen == 0 ? oob_sock_port(fd) : chosen;
	}
	*port = chosen;
	return 0;
}

int oob_listener_open(struct oob_listener *listener, const union oob_sock_addr *addrs, size_t count,
		      uint16_t *port)
{
	int err = -EADDRINUSE;

	listener->count = 0;
	for (int i = 0; i < PORT_TRIES && err == -EADDRINUSE; i++) {
		err = open_once(listener, addrs, count, port);
	}
	return err;
}

static void ios_set(struct oob_listener *listener, bool on)
{
	struct ev_loop *ev = oob_loop_ev(listener->loop);

	for (size_t i = 0; i < listener->count; i++) {
		if (on) {
			ev_io_start(ev, &listener->ios[i]);
		} else {
			ev_io_stop(ev, &listener->ios[i]);
		}
	}
}

static void pause_cb(struct ev_loop *ev, ev_timer *watcher, int events)
{
	struct oob_listener *listener = watcher->data;

	(void)ev;
	(void)events;
	if (!listener->held) {
		ios_set(listener, true);
	}
}

static void accept_cb(struct ev_loop *ev, ev_io *watcher, int events)
{
	struct oob_listener *listener = watcher->data;

	(void)events;
	for (int i = 0; i < ACCEPTS_PER_WAKE && !listener->held; i++) {
		union oob_sock_addr peer;
		int fd = oob_sock_accept(watcher->fd, &peer);

		if (fd >= 0) {
			listener->accepted(listener->arg, fd, &peer);
			continue;
		}
		if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM) {
			LOG_WARN_LIMITED("accepting a control connection failed (error %d): raise "
					 "the limit of open files; trying again every %d ms",
					 -fd, (int)(PAUSE_S * 1000));
			ios_set(listener, false);
			ev_timer_set(&listener->pause, PAUSE_S, 0.0);
			ev_timer_start(ev, &listener->pause);
			return;
		}
		if (fd == -EAGAIN) {
			return;
		}
		/* any other error belongs to the one connection that was to be taken */
	}
}

void oob_listener_start(struct oob_listener *listener)
{
	for (size_t i = 0; i < listener->count; i++) {
		ev_io_init(&listener->ios[i], accept_cb, listener->fds[i], EV_READ);
		listener->ios[i].data = listener;
	}
	ev_init(&listener->pause, pause_cb);
	listener->pause.data = listener;
	listener->started = true;
	ios_set(listener, true);
}

void oob_listener_hold(struct oob_listener *listener, bool hold)
{
	if (listener->held != hold && listener->started) {
		listener->held = hold;
		ios_set(listener, !hold);
	}
}

void oob_listener_close(struct oob_listener *listener)
{
	if (listener->started) {
		ios_set(listener, false);
		ev_timer_stop(oob_loop_ev(listener->loop), &listener->pause);
		listener->started = false;
	}
	fds_close(listener);
}
