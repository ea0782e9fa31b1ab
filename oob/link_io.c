/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "include/log.h"
#include "oob/net_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * A link while it has a connection: what comes in, what goes out, and how the connection is lost
 * and found again.
 */

enum {
	/* a connection that broke at once is not replaced at once: no busy loop between the ends */
	UP_SHORT_MS = 1000,
	UP_SHORT_DELAY_MS = 50
};

void oob_link_pump(struct oob_link *link)
{
	struct oob_net *net = link->net;
	struct oob_conn *conn = link->conn;
	bool more = true;

	while (more && oob_conn_has_room(conn)) {
		struct oob_queue_item *item;

		pthread_mutex_lock(&net->lock);
		item = link->queue.next;
		if (item != NULL) {
			link->queue.next = item->next;
			oob_codec_seal(item->bytes, item->len_bytes, item->seq, link->rx_seq);
			oob_conn_append(conn, item->bytes, item->len_bytes);
			link->rx_acked_seq = link->rx_seq;
		}
		pthread_mutex_unlock(&net->lock);
		more = item != NULL;
		if (!oob_conn_has_room(conn)) {
			oob_conn_flush(conn);
		}
	}
	if (link->rx_acked_seq != link->rx_seq && oob_conn_has_room(conn)) {
		const struct frame ack = {.type = FRAME_NONE};

		link->rx_acked_seq = link->rx_seq;
		oob_conn_send(conn, &ack, link->rx_seq);
	}
	oob_conn_flush(conn);
}

/** Take an ack in. 1 when that was the end of a closing link, which is finished then. */
static int link_acked(struct oob_link *link, uint64_t ack)
{
	struct oob_net *net = link->net;
	bool done;
	int err;

	pthread_mutex_lock(&net->lock);
	err = oob_queue_ack(&link->queue, ack);
	done = link->closing && link->queue.head == NULL;
	pthread_mutex_unlock(&net->lock);
	if (err != 0) {
		return err;
	}
	if (done) {
		oob_link_finish(link);
		return 1;
	}
	return 0;
}

static void link_goodbye(struct oob_link *link)
{
	/* the ack leaves before the connection is closed */
	oob_link_pump(link);
	oob_link_fail(link, -ESHUTDOWN, "said goodbye");
}

/** A numbered frame in its turn. */
static enum oob_conn_verdict link_apply(struct oob_link *link, const struct frame *frame)
{
	struct oob_net *net = link->net;
	struct frame pong = {.type = FRAME_PONG};

	switch (frame->type) {
	case FRAME_GOODBYE:
		link_goodbye(link);
		return OOB_CONN_CLOSED;
	case FRAME_PING:
		/* a full queue means that the peer does not read: it will ask again */
		pong.ping = frame->ping;
		(void)oob_link_send(link, &pong);
		return OOB_CONN_KEEP;
	case FRAME_NONE:
	case FRAME_HELLO:
	case FRAME_TYPE_COUNT:
		LOG_WARN_LIMITED("link to %s: unexpected %s frame", oob_link_name(link),
				 oob_codec_name(frame->type));
		oob_link_lose(link, -EPROTO);
		return OOB_CONN_CLOSED;
	case FRAME_OPEN:
	case FRAME_OPENED:
	case FRAME_PATHS:
	case FRAME_READY:
	case FRAME_REFUSED:
	case FRAME_FENCE:
	case FRAME_FENCED:
	case FRAME_CLOSE:
	case FRAME_REJOIN:
	case FRAME_REJOINED:
	case FRAME_REJOIN_HINT:
	case FRAME_PROBED:
	case FRAME_PONG:
		break;
	}
	if (net->handlers.frame != NULL) {
		net->handlers.frame(net->arg, link, frame);
	}
	return OOB_CONN_KEEP;
}

static enum oob_conn_verdict link_frame(struct oob_conn *conn, const struct oob_head *head,
					const struct frame *frame)
{
	struct oob_link *link = conn->owner;
	int rc = link_acked(link, head->ack);

	if (rc == 1) {
		return OOB_CONN_CLOSED;
	}
	if (rc == 0 && head->seq == 0 && frame->type == FRAME_NONE) {
		return OOB_CONN_KEEP;
	}
	if (rc == 0 && head->seq == 0 && frame->type == FRAME_REFUSED) {
		oob_link_fail(link, frame->refused.err, frame->refused.reason);
		return OOB_CONN_CLOSED;
	}
	if (rc != 0 || head->seq == 0 || head->seq > link->rx_seq + 1) {
		LOG_WARN_LIMITED("link to %s: %s frame %llu (ack %llu) after frame %llu",
				 oob_link_name(link), oob_codec_name(frame->type),
				 (unsigned long long)head->seq, (unsigned long long)head->ack,
				 (unsigned long long)link->rx_seq);
		oob_link_lose(link, -EPROTO);
		return OOB_CONN_CLOSED;
	}
	if (head->seq <= link->rx_seq) {
		return OOB_CONN_KEEP;
	}
	link->rx_seq = head->seq;
	return link_apply(link, frame);
}

static void link_pump_cb(struct oob_conn *conn)
{
	oob_link_pump(conn->owner);
}

static void link_broken(struct oob_conn *conn, int err)
{
	oob_link_lose(conn->owner, err);
}

static const struct oob_conn_ops link_ops = {
	.frame = link_frame,
	.pump = link_pump_cb,
	.broken = link_broken,
};

/** Which of the peer's listener addresses the connection's other end is, or -1. */
static int addr_index(const struct oob_addr *addr, int fd)
{
	union oob_sock_addr peer;
	uint8_t family, bytes[16];
	uint16_t port;

	if (oob_sock_peer(fd, &peer) != 0) {
		return -1;
	}
	oob_sock_addr_split(&peer, &family, bytes, &port);
	for (int i = 0; i < addr->addr_count; i++) {
		if (addr->addrs[i].family == family &&
		    memcmp(addr->addrs[i].bytes, bytes, sizeof(bytes)) == 0) {
			return i;
		}
	}
	return -1;
}

enum oob_conn_verdict oob_link_attach(struct oob_link *link, struct oob_conn *conn,
				      uint64_t peer_ack)
{
	struct oob_net *net = link->net;
	struct frame answer;
	bool again = link->was_up;
	int rc;

	if (link->conn != NULL) {
		/* this end has not noticed yet that the old connection is broken */
		oob_conn_close(link->conn);
		link->conn = NULL;
		if (!link->closing && net->handlers.link_lost != NULL) {
			net->handlers.link_lost(net->arg, link, -ECONNRESET);
		}
	}
	oob_dial_stop(link);
	conn->ops = &link_ops;
	conn->owner = link;
	link->conn = conn;
	link->good_addr = addr_index(&link->addr, conn->fd);
	link->up_since_ns = clock_mono_ns();
	if (link->role == LINK_ACCEPTED) {
		oob_hello_make(net, link, again ? HELLO_RESUME : HELLO_NEW, &answer);
		oob_conn_send(conn, &answer, link->rx_seq);
	}
	rc = link_acked(link, peer_ack);
	if (rc == 1) {
		return OOB_CONN_CLOSED;
	}
	if (rc < 0) {
		oob_link_fail(link, rc, "it acknowledged frames that were never sent");
		return OOB_CONN_CLOSED;
	}
	pthread_mutex_lock(&net->lock);
	link->was_up = true;
	oob_queue_rewind(&link->queue);
	pthread_mutex_unlock(&net->lock);
	link->rx_acked_seq = link->rx_seq;
	if (!link->closing) {
		LOG_INFO("link to %s: %s", oob_link_name(link), again ? "up again" : "up");
		if (net->handlers.link_up != NULL) {
			net->handlers.link_up(net->arg, link);
		}
	}
	oob_link_pump(link);
	return OOB_CONN_KEEP;
}

void oob_link_lose(struct oob_link *link, int err)
{
	struct oob_net *net = link->net;
	uint64_t up_ms = (clock_mono_ns() - link->up_since_ns) / NS_PER_MS;

	oob_conn_close(link->conn);
	link->conn = NULL;
	if (!link->closing) {
		LOG_INFO("link to %s: connection lost (error %d), looking for the peer",
			 oob_link_name(link), -err);
		if (net->handlers.link_lost != NULL) {
			net->handlers.link_lost(net->arg, link, err);
		}
	}
	oob_dial_begin(link, up_ms < UP_SHORT_MS ? UP_SHORT_DELAY_MS : 0, net->peer_timeout_ms);
}
