/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "include/log.h"
#include "oob/net_priv.h"
#include "oob/proc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * Looking for a peer. The end that opened a link opens it again; the other end only probes, to
 * learn whether the process is gone.
 *
 * Gone means: the address that carried the link last refuses the connection or belongs to another
 * process now; or, where that address is not known to be one of its listener's, all addresses
 * refuse. Other addresses alone prove nothing: a container bridge has the same one on every host.
 * While the kernel at the other end accepts connections, the process exists, stopped perhaps; that
 * is waited for without end, and said once.
 */

enum {
	CONNECT_WAIT_MS = 2000, /* for one address */
	HELLO_WAIT_MS = 5000,
	DELAY_FIRST_MS = 20,
	DELAY_MAX_MS = 1000, /* a peer that dies while lost is still noticed within 2 s */
	/* The address came from a process that was listening: refused everywhere for this long, it
	 * is gone, though no link to it was ever up. */
	REFUSED_MS = 1000
};

static void dial_next(struct oob_link *link);

static struct ev_loop *link_ev(const struct oob_link *link)
{
	return oob_loop_ev(link->net->loop);
}

static void timer_arm(struct oob_link *link, uint64_t ms)
{
	struct oob_dial *dial = &link->dial;
	uint64_t now_ns = clock_mono_ns();
	uint64_t left_ms =
		dial->deadline_ns > now_ns ? (dial->deadline_ns - now_ns) / NS_PER_MS + 1 : 0;

	ev_now_update(link_ev(link));
	ev_timer_stop(link_ev(link), &dial->timer);
	ev_timer_set(&dial->timer, (double)(ms < left_ms ? ms : left_ms) / 1000.0, 0.0);
	ev_timer_start(link_ev(link), &dial->timer);
}

/** Drop what the present attempt holds. */
static void attempt_drop(struct oob_link *link)
{
	struct oob_dial *dial = &link->dial;

	ev_timer_stop(link_ev(link), &dial->timer);
	if (dial->fd >= 0) {
		ev_io_stop(link_ev(link), &dial->connect_io);
		oob_sock_close(dial->fd);
		dial->fd = -1;
	}
	oob_conn_close(dial->conn);
	dial->conn = NULL;
	dial->silent = false;
}

void oob_dial_stop(struct oob_link *link)
{
	attempt_drop(link);
	link->dial.state = DIAL_IDLE;
}

/** Index of the address under trial: the one that worked last comes first. */
static int addr_now(const struct oob_link *link)
{
	int first = link->good_addr >= 0 ? link->good_addr : 0;

	return (first + (int)link->dial.tried_count) % link->addr.addr_count;
}

/** The present address failed. Goes on with the next one, unless that settles the matter. */
static void attempt_failed(struct oob_link *link, int err)
{
	struct oob_dial *dial = &link->dial;
	int at = addr_now(link);

	attempt_drop(link);
	dial->last_err = err;
	dial->tried_count++;
	dial->refused_count += err == -ECONNREFUSED || err == -ESRCH ? 1 : 0;
	if (link->was_up && (err == -ECONNREFUSED || err == -ESRCH) &&
	    (at == link->good_addr ||
	     (link->good_addr < 0 && dial->refused_count == link->addr.addr_count))) {
		dial->state = DIAL_IDLE;
		oob_link_fail(link, err,
			      err == -ESRCH ? "its port belongs to another process now"
					    : "its listener refuses connections");
		return;
	}
	dial_next(link);
}

/** True when the peer of a link that was never up has refused long enough. */
static bool is_refused(struct oob_link *link)
{
	struct oob_dial *dial = &link->dial;
	uint64_t now_ns = clock_mono_ns();

	if (link->was_up || dial->refused_count < link->addr.addr_count) {
		dial->refused_ns = 0;
		return false;
	}
	dial->refused_ns = dial->refused_ns != 0 ? dial->refused_ns : now_ns;
	return now_ns - dial->refused_ns >= REFUSED_MS * NS_PER_MS;
}

/** All addresses failed: again after a while, or give up. */
static void round_over(struct oob_link *link)
{
	struct oob_dial *dial = &link->dial;
	char why[128];

	if (is_refused(link)) {
		dial->state = DIAL_IDLE;
		oob_link_fail(link, -ECONNREFUSED, "its listener refuses connections");
		return;
	}
	if (clock_mono_ns() >= dial->deadline_ns) {
		dial->state = DIAL_IDLE;
		snprintf(why, sizeof(why), "not reached in time; last: %s",
			 strerrordesc_np(-dial->last_err));
		oob_link_fail(link, -ETIMEDOUT, why);
		return;
	}
	dial->state = DIAL_DELAY;
	dial->tried_count = 0;
	dial->refused_count = 0;
	timer_arm(link, dial->delay_ms);
	dial->delay_ms = dial->delay_ms * 2 < DELAY_MAX_MS ? dial->delay_ms * 2 : DELAY_MAX_MS;
}

/** The peer is alive: the time to find it counts from now. */
static void deadline_renew(struct oob_link *link)
{
	if (link->was_up) {
		link->dial.deadline_ns = clock_mono_ns() + link->net->peer_timeout_ms * NS_PER_MS;
	}
}

static void refused_by_peer(struct oob_link *link, const struct frame_refused *refused)
{
	if (refused->err == -EAGAIN || refused->err == -ESRCH) {
		attempt_failed(link, refused->err);
		return;
	}
	if (refused->err == -EPROTONOSUPPORT || refused->err == -EPROTO) {
		LOG_WARN_LIMITED("link to %s refused: %s", oob_link_name(link), refused->reason);
	}
	oob_link_fail(link, refused->err, refused->reason);
}

static void hello_version_refuse(struct oob_link *link, const struct frame_hello *hello)
{
	char text[OOB_HELLO_TEXT_BYTES];

	oob_hello_version_text(link->net, hello->version, text);
	LOG_WARN_LIMITED("link to %s refused: %s", oob_link_name(link), text);
	oob_conn_refuse(link->dial.conn, -EPROTONOSUPPORT, text);
	oob_link_fail(link, -EPROTONOSUPPORT, text);
}

static enum oob_conn_verdict dial_frame(struct oob_conn *conn, const struct oob_head *head,
					const struct frame *frame)
{
	struct oob_link *link = conn->owner;
	const struct frame_hello *hello = &frame->hello;
	char text[OOB_SOCK_TEXT_BYTES];
	union oob_sock_addr peer;

	if (frame->type == FRAME_REFUSED) {
		refused_by_peer(link, &frame->refused);
		return OOB_CONN_CLOSED;
	}
	if (frame->type != FRAME_HELLO) {
		attempt_failed(link, -EPROTO);
		return OOB_CONN_CLOSED;
	}
	if (hello->version != PROTO_VERSION) {
		hello_version_refuse(link, hello);
		return OOB_CONN_CLOSED;
	}
	if (!oob_proc_equal(&hello->self, &link->peer)) {
		attempt_failed(link, -ESRCH);
		return OOB_CONN_CLOSED;
	}
	if (hello->kind == HELLO_PROBE) {
		/* alive; it opens the link again by itself */
		deadline_renew(link);
		attempt_drop(link);
		round_over(link);
		return OOB_CONN_CLOSED;
	}
	if (!link->was_up) {
		(void)oob_sock_peer(conn->fd, &peer); /* all zero on error */
		oob_sock_addr_text(&peer, text);
		oob_link_name_set(link, hello, text);
	}
	link->dial.conn = NULL;
	return oob_link_attach(link, conn, head->ack);
}

static void dial_broken(struct oob_conn *conn, int err)
{
	struct oob_link *link = conn->owner;

	/* the peer's host held it open all this time */
	if (link->dial.silent) {
		deadline_renew(link);
	}
	attempt_failed(link, err);
}

static const struct oob_conn_ops dial_ops = {
	.frame = dial_frame,
	.broken = dial_broken,
};

static void connect_cb(struct ev_loop *ev, ev_io *watcher, int events)
{
	struct oob_link *link = watcher->data;
	struct oob_dial *dial = &link->dial;
	enum hello_kind kind = link->was_up ? HELLO_RESUME : HELLO_NEW;
	struct frame hello;
	int fd = dial->fd;
	int err;

	(void)events;
	ev_io_stop(ev, &dial->connect_io);
	err = oob_sock_connected(fd);
	if (err == 0) {
		dial->fd = -1;
		err = oob_conn_open(link->net->loop, fd, &dial_ops, link, &dial->conn);
	}
	if (err != 0) {
		attempt_failed(link, err);
		return;
	}
	if (link->role == LINK_ACCEPTED) {
		kind = HELLO_PROBE;
	} else {
		link->attempt++;
	}
	oob_hello_make(link->net, link, kind, &hello);
	dial->state = DIAL_HELLO;
	timer_arm(link, HELLO_WAIT_MS);
	oob_conn_send(dial->conn, &hello, link->rx_seq);
}

static void dial_next(struct oob_link *link)
{
	struct oob_dial *dial = &link->dial;

	while (dial->tried_count < link->addr.addr_count) {
		const struct oob_addr *addr = &link->addr;
		int at = addr_now(link);
		union oob_sock_addr to;
		int fd = oob_sock_addr_make(addr->addrs[at].family, addr->addrs[at].bytes,
					    addr->port, link->net->scope_id, &to);

		if (fd == 0) {
			fd = oob_sock_connect(&to);
		}
		if (fd < 0) {
			/* comes back here for the next address, at most addr_count deep */
			attempt_failed(link, fd);
			return;
		}
		dial->fd = fd;
		dial->state = DIAL_CONNECT;
		ev_io_set(&dial->connect_io, fd, EV_WRITE);
		ev_io_start(link_ev(link), &dial->connect_io);
		timer_arm(link, CONNECT_WAIT_MS);
		return;
	}
	round_over(link);
}

/** No answer on an accepted connection. */
static void silence(struct oob_link *link)
{
	struct oob_dial *dial = &link->dial;

	if (!link->was_up) {
		attempt_failed(link, -ETIMEDOUT);
		return;
	}
	/* this connection breaks at once when the process dies: nothing else to wait for */
	dial->silent = true;
	if (!dial->silence_said && !link->closing) {
		dial->silence_said = true;
		LOG_INFO("link to %s: its host accepts connections but the process is silent: "
			 "stopped? waiting for it",
			 oob_link_name(link));
	}
}

/** This process stood still beyond the deadline: one look is due before the peer is given up. */
static void grant_sleep(struct oob_link *link)
{
	uint64_t now_ns = clock_mono_ns();

	if (now_ns > link->dial.deadline_ns + DELAY_MAX_MS * NS_PER_MS) {
		link->dial.deadline_ns = now_ns + CONNECT_WAIT_MS * NS_PER_MS;
	}
}

static void timer_cb(struct ev_loop *ev, ev_timer *watcher, int events)
{
	struct oob_link *link = watcher->data;

	(void)ev;
	(void)events;
	switch (link->dial.state) {
	case DIAL_DELAY:
		grant_sleep(link);
		if (clock_mono_ns() < link->dial.deadline_ns) {
			dial_next(link);
		} else {
			round_over(link);
		}
		break;
	case DIAL_CONNECT:
		attempt_failed(link, -ETIMEDOUT);
		break;
	case DIAL_HELLO:
		silence(link);
		break;
	case DIAL_IDLE:
		break;
	}
}

void oob_dial_init(struct oob_link *link)
{
	struct oob_dial *dial = &link->dial;

	dial->fd = -1;
	ev_init(&dial->timer, timer_cb);
	ev_init(&dial->connect_io, connect_cb);
	dial->timer.data = link;
	dial->connect_io.data = link;
}

void oob_dial_begin(struct oob_link *link, uint32_t delay_ms, uint32_t timeout_ms)
{
	struct oob_dial *dial = &link->dial;

	dial->deadline_ns = clock_mono_ns() + timeout_ms * NS_PER_MS;
	dial->delay_ms = DELAY_FIRST_MS;
	dial->tried_count = 0;
	dial->refused_count = 0;
	dial->refused_ns = 0;
	dial->silence_said = false;
	dial->last_err = -ETIMEDOUT;
	if (delay_ms > 0) {
		dial->state = DIAL_DELAY;
		timer_arm(link, delay_ms);
		return;
	}
	dial_next(link);
}

void oob_dial_hurry(struct oob_link *link)
{
	if (link->dial.state == DIAL_DELAY) {
		ev_timer_stop(link_ev(link), &link->dial.timer);
		dial_next(link);
	}
}
