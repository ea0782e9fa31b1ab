/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_LISTENER_H
#define BRAID_OOB_LISTENER_H

#include "oob/ifsel.h"
#include "oob/loop_priv.h"
#include "oob/sock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Listening sockets of a process: one per chosen address, all with the same port. When the process
 * is out of descriptors, accepting pauses for a moment; connections wait in the kernel meanwhile.
 */

typedef void (*oob_listener_fn)(void *arg, int fd, const union oob_sock_addr *peer);

struct oob_listener {
	struct oob_loop *loop;
	oob_listener_fn accepted; /* loop thread; owns fd */
	void *arg;
	size_t count;
	int fds[OOB_IFSEL_PICKS];
	ev_io ios[OOB_IFSEL_PICKS];
	ev_timer pause;
	bool held; /* paused by oob_listener_hold */
	bool started;
};

/** Bind to addrs (port ignored), all to one free port. 0 or -errno; *port on success. Any thread.
 */
int oob_listener_open(struct oob_listener *listener, const union oob_sock_addr *addrs, size_t count,
		      uint16_t *port);

/** Begin to accept; loop, accepted and arg are set. Loop thread. */
void oob_listener_start(struct oob_listener *listener);

/** Stop or go on accepting, when too many connections are undecided. Loop thread. */
void oob_listener_hold(struct oob_listener *listener, bool hold);

/** Stop and close. Loop thread, or any before start. */
void oob_listener_close(struct oob_listener *listener);

#endif
