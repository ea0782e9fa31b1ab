/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_LINK_H
#define BRAID_OOB_LINK_H

#include "include/frame.h"
#include "oob/loop.h"

#include <netinet/in.h>
#include <stdint.h>

/**
 * Links: TCP connections between processes. The connecting process keeps one link per peer process
 * and counts its users; the accepting process uses the link on which a comm was opened. HELLO is
 * exchanged by oob/ itself; the users see a link only after HELLO matched (magic, version).
 *
 * A link that breaks without GOODBYE is reported lost; then the peer's listener (address of the
 * link, port from HELLO) is tried: refused means the process is gone (P7) and is reported as such;
 * accepted with the same process id means alive, and the link is re-established by the end that
 * first connected; frames not known to have been delivered are sent again by the users (FENCE and
 * FENCED are idempotent).
 */
struct oob_link;
struct oob_net;

/** Where a process can be reached; part of NCCL's handle. */
struct oob_addr {
	struct proc_id proc;
	uint16_t port; /* host order */
	uint8_t addr_count;
	struct {
		uint8_t family; /* AF_INET or AF_INET6 */
		uint8_t bytes[16];
	} addrs[3];
};

/** Upward calls; all on the loop thread. The frame is valid during the call only. */
struct oob_handlers {
	void (*frame)(void *arg, struct oob_link *link, const struct frame *frame);
	/* HELLO done (first time or after a reconnect): frames may be sent */
	void (*link_up)(void *arg, struct oob_link *link);
	/* connection broke; err is a negative errno; the link object stays until its last put */
	void (*link_lost)(void *arg, struct oob_link *link, int err);
	/* the peer process is known to be gone, said GOODBYE, or could not be reached; final */
	void (*peer_gone)(void *arg, struct oob_link *link, int err, const char *why);
};

struct oob_net_opts {
	const char *ifname; /* NCCL_SOCKET_IFNAME: prefix list, '^' excludes, '=' exact; NULL or "":
			       choose */
	int family;         /* AF_INET, AF_INET6 or 0 for either */
	uint32_t connect_timeout_ms; /* until a first connection is given up; 0: 30 s */
	uint32_t peer_timeout_ms;    /* how long a lost peer may be unreachable; 0: 300 s */
};

/**
 * Open the process's listener on the chosen interfaces (one port for all comms of the process).
 * Default choice: interfaces that are up, not loopback, not docker*; else loopback. Blocks for no
 * longer than socket calls do. 0 or -errno; -ENODEV when ifname matches nothing (logged with what
 * exists). Strangers (no valid HELLO within 5 s, wrong magic, other version) are dropped and
 * counted, with one rate-limited line; other links are untouched.
 */
int oob_net_open(struct oob_loop *loop, const struct oob_net_opts *opts,
		 const struct oob_handlers *handlers, void *arg, struct oob_net **out);

/** Close listener and all links (GOODBYE first). Before oob_loop_stop. Not from the loop thread. */
void oob_net_close(struct oob_net *net);

/** Address of this process for a handle. Any thread. */
void oob_net_addr(const struct oob_net *net, struct oob_addr *out);

/** Strangers refused so far. Any thread. */
uint64_t oob_net_strangers(const struct oob_net *net);

/**
 * Get the link to a process, connecting if there is none; takes a reference. Never blocks: the
 * connection is made on the loop thread, frames sent before it is up are queued. Tries every
 * address, retries refused/unreachable/timed out with growing delays until connect_timeout_ms,
 * then peer_gone. Any thread. 0 or -ENOMEM.
 */
int oob_link_get(struct oob_net *net, const struct oob_addr *peer, struct oob_link **out);

/** Take another reference (e.g. for an accepted comm). Any thread. */
void oob_link_hold(struct oob_link *link);

/** Drop a reference; at zero the link says GOODBYE and closes. Any thread; queued frames still
 * leave. */
void oob_link_put(struct oob_link *link);

/**
 * Queue a frame. Any thread, never blocks. 0, -ENOMEM, or -EPIPE when the peer is gone. While the
 * link is lost frames are kept (bounded by 4 MiB, then -ENOBUFS).
 */
int oob_link_send(struct oob_link *link, const struct frame *frame);

/** "host:pid at addr:port" of the peer, for log lines. Loop thread or after link_up. */
const char *oob_link_name(const struct oob_link *link);

/** Process id of the peer. Valid after link_up. */
struct proc_id oob_link_peer(const struct oob_link *link);

#endif
