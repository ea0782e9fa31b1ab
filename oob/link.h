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
 * first connected. It goes on where it was: every frame that was taken by oob_link_send arrives
 * exactly once and in order, whatever happens to the connections, until peer_gone (oob/queue.h).
 *
 * PING is answered by oob/ itself and not shown to the users; PONG is.
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

/**
 * Upward calls; all on the loop thread, with no lock of oob/ held: they may get, hold, put and
 * send. None is called once oob_net_close has begun on the loop thread. The frame is valid during
 * the call only. A link accepted from a peer is shown by link_up before anybody holds it; who wants
 * to keep it takes a reference (oob_link_hold) inside one of these calls.
 */
struct oob_handlers {
	void (*frame)(void *arg, struct oob_link *link, const struct frame *frame);
	/* HELLO done (first time or after a reconnect): frames may be sent */
	void (*link_up)(void *arg, struct oob_link *link);
	/* connection broke; err is a negative errno; the link object stays until its last put */
	void (*link_lost)(void *arg, struct oob_link *link, int err);
	/*
	 * Final, on links with users: -ECONNREFUSED or -ESRCH, the process is dead; -ESHUTDOWN, it
	 * said goodbye; -ETIMEDOUT, not reached in time; -ESTALE, it has given this link up;
	 * -EPROTONOSUPPORT, another version. why is a readable reason, valid during the call.
	 */
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

/**
 * Close listener and all links: queued frames and GOODBYE leave first, 500 ms at most are given to
 * that. Blocks until then. Links still held stay valid until their last put, which may come later,
 * but carry nothing. Before oob_loop_stop. Not from the loop thread. NULL is fine. In a child of
 * fork() this and everything below does nothing (-EPIPE, -ESHUTDOWN).
 */
void oob_net_close(struct oob_net *net);

/** Address of this process for a handle. Any thread. */
void oob_net_addr(const struct oob_net *net, struct oob_addr *out);

/** Strangers refused so far. Any thread. */
uint64_t oob_net_strangers(const struct oob_net *net);

/**
 * Get the link to a process, connecting if there is none; takes a reference. Never blocks: the
 * connection is made on the loop thread, frames sent before it is up are queued. Tries every
 * address, retries refused/unreachable/timed out with growing delays until connect_timeout_ms,
 * then peer_gone; refused by all of them for 1 s is enough. Any thread. 0, -ENOMEM, or -ESHUTDOWN
 * when the net is closing.
 */
int oob_link_get(struct oob_net *net, const struct oob_addr *peer, struct oob_link **out);

/** Take another reference (e.g. for an accepted comm). Any thread. */
void oob_link_hold(struct oob_link *link);

/**
 * Drop a reference. Without users a link that was opened here says GOODBYE, after the queued
 * frames, and closes once that is acknowledged (5 s at most); one that was accepted stays until the
 * peer does so. NULL is fine. Any thread.
 */
void oob_link_put(struct oob_link *link);

/**
 * Queue a frame. Any thread, never blocks. 0, -ENOMEM, -EINVAL when a field is out of range, -EPIPE
 * when the peer is gone, or -ENOBUFS when more than 4 MiB are not acknowledged yet (link lost, or
 * peer stopped). CLOSE is taken even then: there is one for each comm, and nobody repeats it.
 */
int oob_link_send(struct oob_link *link, const struct frame *frame);

/**
 * "host:pid at addr:port" of the peer, for log lines; until the first link_up the beginning of its
 * process id. Lives as long as the link. Any thread.
 */
const char *oob_link_name(const struct oob_link *link);

/** Process id of the peer. Any thread. */
struct proc_id oob_link_peer(const struct oob_link *link);

#endif
