/* SPDX-License-Identifier: Apache-2.0 */
#include "include/log.h"
#include "oob/net_priv.h"
#include "oob/proc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Accepted connections until they have said who they are. A valid HELLO turns one into the
 * connection of a link; anything else is a stranger: told why, dropped, counted.
 */

enum {
	PENDING_MAX = 1024 /* then accepting pauses */
};

#define HELLO_WAIT_S 5.0
#define DRAIN_WAIT_S 1.0

void oob_hello_make(const struct oob_net *net, const struct oob_link *link, enum hello_kind kind,
		    struct frame *out)
{
	struct frame_hello *hello = &out->hello;

	memset(out, 0, sizeof(*out));
	out->type = FRAME_HELLO;
	hello->version = PROTO_VERSION;
	hello->self = net->self.proc;
	hello->peer = link->peer;
	hello->link_id = link->id;
	hello->attempt = link->attempt;
	hello->kind = (uint8_t)kind;
	hello->listen_port = net->self.port;
	hello->pid = (uint32_t)net->pid;
	memcpy(hello->host, net->host, sizeof(hello->host));
	hello->addr_count = net->self.addr_count;
	for (size_t i = 0; i < net->self.addr_count; i++) {
		hello->addrs[i].family = net->self.addrs[i].family == AF_INET ? 4 : 6;
		memcpy(hello->addrs[i].bytes, net->self.addrs[i].bytes, 16);
	}
}

void oob_hello_addr(const struct frame_hello *hello, struct oob_addr *out)
{
	memset(out, 0, sizeof(*out));
	out->proc = hello->self;
	out->port = hello->listen_port;
	out->addr_count = (uint8_t)hello->addr_count;
	for (size_t i = 0; i < hello->addr_count; i++) {
		out->addrs[i].family = hello->addrs[i].family == 4 ? AF_INET : AF_INET6;
		memcpy(out->addrs[i].bytes, hello->addrs[i].bytes, 16);
	}
}

void oob_hello_version_text(const struct oob_net *net, uint32_t version,
			    char text[OOB_HELLO_TEXT_BYTES])
{
	snprintf(text, OOB_HELLO_TEXT_BYTES,
		 "%s speaks version %u of Braid's link protocol, the peer version %u: install the "
		 "same Braid on both hosts",
		 net->host, PROTO_VERSION, version);
}

/** Forget a pending connection; its oob_conn goes on in other hands or is closed here. */
static void pending_free(struct oob_pending *pending, bool close_conn)
{
	struct oob_net *net = pending->net;

	ev_timer_stop(oob_loop_ev(net->loop), &pending->timer);
	if (close_conn) {
		oob_conn_close(pending->conn);
	}
	if (pending->prev != NULL) {
		pending->prev->next = pending->next;
	} else {
		net->pendings = pending->next;
	}
	if (pending->next != NULL) {
		pending->next->prev = pending->prev;
	}
	net->pending_count--;
	free(pending);
	oob_listener_hold(&net->listener, net->pending_count >= PENDING_MAX);
}

void oob_hello_drop_all(struct oob_net *net)
{
	while (net->pendings != NULL) {
		/* The analyzer cannot know that a list of ours holds each entry once. */
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		pending_free(net->pendings, true);
	}
}

/** Say why, then wait a moment for the other end to read it and close. */
static void pending_refuse(struct oob_pending *pending, int err, const char *reason)
{
	struct ev_loop *ev = oob_loop_ev(pending->net->loop);

	pending->refused = true;
	oob_conn_refuse(pending->conn, err, reason);
	ev_timer_stop(ev, &pending->timer);
	ev_timer_set(&pending->timer, DRAIN_WAIT_S, 0.0);
	ev_timer_start(ev, &pending->timer);
}

/** A flood of one kind must not hide another kind's line: each reason has its own limit. */
#define STRANGER(pending, what)                                                                    \
	do {                                                                                       \
		static struct log_limit limit;                                                     \
		stranger_count((pending), (what), &limit);                                         \
	} while (0)

static void stranger_count(struct oob_pending *pending, const char *what, struct log_limit *limit)
{
	uint64_t count = 1 + atomic_fetch_add_explicit(&pending->net->stranger_count, 1,
						       memory_order_relaxed);

	log_write_limited(limit, __FILE__, __LINE__,
			  "a stranger at %s connected to the control port and was refused: %s "
			  "(%llu so far)",
			  pending->from, what, (unsigned long long)count);
}

static void timer_cb(struct ev_loop *ev, ev_timer *watcher, int events)
{
	struct oob_pending *pending = watcher->data;

	(void)ev;
	(void)events;
	if (!pending->refused) {
		STRANGER(pending, "it did not introduce itself in time");
	}
	pending_free(pending, true);
}

static void pending_broken(struct oob_conn *conn, int err)
{
	struct oob_pending *pending = conn->owner;

	if (err == -EPROTO && !pending->refused) {
		STRANGER(pending, "it does not speak Braid");
		pending_refuse(pending, err,
			       "this port belongs to a Braid NCCL plugin; "
			       "the peer's first bytes are not Braid's");
		return;
	}
	if (err == -EBADMSG && !pending->refused) {
		STRANGER(pending, "its first frame is broken");
		pending_refuse(pending, err, "the first frame is broken");
		return;
	}
	/* who leaves without a word has changed its mind: a peer closing, a health check */
	if (!pending->refused && conn->rx_len_bytes > 0) {
		STRANGER(pending, "it left in the middle of introducing itself");
	}
	pending_free(pending, true);
}

static void hello_probe(struct oob_pending *pending, const struct frame_hello *hello)
{
	struct oob_net *net = pending->net;
	struct oob_link *link = oob_link_find(net, LINK_CONNECTING, &hello->self, hello->link_id);
	struct frame answer;

	if (link == NULL) {
		pending_refuse(pending, -ESTALE, "the peer has closed this link");
		return;
	}
	oob_hello_make(net, link, HELLO_PROBE, &answer);
	oob_conn_send(pending->conn, &answer, 0);
	pending_free(pending, true);
	/* the other end has lost this very connection; an older question is out of date */
	if (hello->attempt != link->attempt) {
		return;
	}
	if (link->conn != NULL) {
		oob_link_lose(link, -ECONNRESET);
	} else {
		oob_dial_hurry(link);
	}
}

/** Give the connection to its link, which is made here for a new one. */
static enum oob_conn_verdict hello_attach(struct oob_pending *pending,
					  const struct frame_hello *hello, uint64_t ack)
{
	struct oob_net *net = pending->net;
	struct oob_conn *conn = pending->conn;
	struct oob_link *link = oob_link_find(net, LINK_ACCEPTED, &hello->self, hello->link_id);
	struct oob_addr addr;

	oob_hello_addr(hello, &addr);
	if (link == NULL && hello->kind == HELLO_RESUME) {
		pending_refuse(pending, -ESTALE, "the peer has closed this link");
		return OOB_CONN_KEEP;
	}
	if (link != NULL && hello->attempt <= link->attempt) {
		/* overtaken by a younger connection of the same link */
		pending_refuse(pending, -EAGAIN, "a younger connection is in use");
		return OOB_CONN_KEEP;
	}
	if (link == NULL) {
		link = oob_link_create(net, LINK_ACCEPTED, &addr, hello->link_id);
		if (link == NULL || oob_link_enter(link) != 0) {
			pending_refuse(pending, -EAGAIN, "out of memory");
			return OOB_CONN_KEEP;
		}
		oob_link_name_set(link, hello, pending->from);
	}
	link->attempt = hello->attempt;
	pending_free(pending, false);
	return oob_link_attach(link, conn, ack);
}

static enum oob_conn_verdict pending_frame(struct oob_conn *conn, const struct oob_head *head,
					   const struct frame *frame)
{
	struct oob_pending *pending = conn->owner;
	struct oob_net *net = pending->net;
	char text[OOB_HELLO_TEXT_BYTES];

	if (frame->type == FRAME_REFUSED) {
		LOG_WARN_LIMITED("%s refused this process: %s", pending->from,
				 frame->refused.reason);
		pending_free(pending, true);
		return OOB_CONN_CLOSED;
	}
	if (frame->type != FRAME_HELLO) {
		STRANGER(pending, "its first frame is not an introduction");
		pending_refuse(pending, -EPROTO, "the first frame must be HELLO");
		return OOB_CONN_KEEP;
	}
	if (frame->hello.version != PROTO_VERSION) {
		oob_hello_version_text(net, frame->hello.version, text);
		STRANGER(pending, text);
		pending_refuse(pending, -EPROTONOSUPPORT, text);
		return OOB_CONN_KEEP;
	}
	if (!oob_proc_equal(&frame->hello.peer, &net->self.proc)) {
		STRANGER(pending, "it looks for a process that is not this one");
		pending_refuse(pending, -ESRCH, "another process listens on this port now");
		return OOB_CONN_KEEP;
	}
	if (frame->hello.kind == HELLO_PROBE) {
		hello_probe(pending, &frame->hello);
		return OOB_CONN_CLOSED;
	}
	return hello_attach(pending, &frame->hello, head->ack);
}

static const struct oob_conn_ops pending_ops = {
	.frame = pending_frame,
	.broken = pending_broken,
};

void oob_hello_accept(struct oob_net *net, int fd, const union oob_sock_addr *peer)
{
	struct oob_pending *pending = calloc(1, sizeof(*pending));

	if (pending == NULL) {
		oob_sock_close(fd);
		return;
	}
	if (oob_conn_open(net->loop, fd, &pending_ops, pending, &pending->conn) != 0) {
		free(pending);
		return;
	}
	pending->net = net;
	oob_sock_addr_text(peer, pending->from);
	ev_timer_init(&pending->timer, timer_cb, HELLO_WAIT_S, 0.0);
	pending->timer.data = pending;
	ev_timer_start(oob_loop_ev(net->loop), &pending->timer);
	pending->next = net->pendings;
	if (pending->next != NULL) {
		pending->next->prev = pending;
	}
	net->pendings = pending;
	net->pending_count++;
	oob_listener_hold(&net->listener, net->pending_count >= PENDING_MAX);
}
