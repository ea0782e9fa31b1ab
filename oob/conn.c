/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/conn.h"

#include "include/log.h"
#include "oob/sock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	CONN_READS_PER_WAKE = 16 /* then the other descriptors get their turn */
};

bool oob_conn_has_room(const struct oob_conn *conn)
{
	return sizeof(conn->tx) - (conn->tx_to - conn->tx_from) >= OOB_FRAME_MAX_BYTES;
}

void oob_conn_append(struct oob_conn *conn, const uint8_t *bytes, size_t len_bytes)
{
	size_t held_bytes = conn->tx_to - conn->tx_from;

	ASSERT(sizeof(conn->tx) - held_bytes >= len_bytes);
	if (sizeof(conn->tx) - conn->tx_to < len_bytes) {
		memmove(conn->tx, conn->tx + conn->tx_from, held_bytes);
		conn->tx_from = 0;
		conn->tx_to = held_bytes;
	}
	memcpy(conn->tx + conn->tx_to, bytes, len_bytes);
	conn->tx_to += len_bytes;
}

void oob_conn_flush(struct oob_conn *conn)
{
	struct ev_loop *ev = oob_loop_ev(conn->loop);

	while (conn->send_err == 0 && conn->tx_from < conn->tx_to) {
		ssize_t sent = send(conn->fd, conn->tx + conn->tx_from, conn->tx_to - conn->tx_from,
				    MSG_NOSIGNAL);

		if (sent >= 0) {
			conn->tx_from += (size_t)sent;
		} else if (errno == EAGAIN) {
			ev_io_start(ev, &conn->write_io);
			return;
		} else if (errno != EINTR) {
			/* reported from the read callback: a GOODBYE may still be there */
			conn->send_err = -errno;
			ev_feed_event(ev, &conn->read_io, EV_READ);
		}
	}
	if (conn->tx_from == conn->tx_to) {
		conn->tx_from = 0;
		conn->tx_to = 0;
	}
	ev_io_stop(ev, &conn->write_io);
}

static void write_cb(struct ev_loop *ev, ev_io *watcher, int events)
{
	struct oob_conn *conn = watcher->data;

	(void)ev;
	(void)events;
	oob_conn_flush(conn);
	if (conn->ops->pump != NULL && !conn->discard) {
		conn->ops->pump(conn);
	}
}

/** Hand over all whole frames in rx. KEEP: conn is alive, the rest of a frame was moved to front.
 */
static enum oob_conn_verdict frames_cut(struct oob_conn *conn)
{
	size_t at = 0;

	while (!conn->discard) {
		struct oob_head head;
		struct frame frame;
		int err = oob_codec_head(conn->rx + at, conn->rx_len_bytes - at, &head);
		size_t len_bytes;

		if (err == -EAGAIN) {
			break;
		}
		len_bytes = err == 0 ? OOB_HEAD_BYTES + (size_t)head.body_bytes : 0;
		if (err == 0 && conn->rx_len_bytes - at < len_bytes) {
			break;
		}
		if (err == 0) {
			err = oob_codec_get(conn->rx + at, &head, &frame);
		}
		if (err != 0) {
			conn->ops->broken(conn, err);
			return OOB_CONN_CLOSED;
		}
		at += len_bytes;
		if (conn->ops->frame(conn, &head, &frame) == OOB_CONN_CLOSED) {
			return OOB_CONN_CLOSED;
		}
	}
	if (conn->discard) {
		at = conn->rx_len_bytes;
	}
	memmove(conn->rx, conn->rx + at, conn->rx_len_bytes - at);
	conn->rx_len_bytes -= at;
	return OOB_CONN_KEEP;
}

static void read_cb(struct ev_loop *ev, ev_io *watcher, int events)
{
	struct oob_conn *conn = watcher->data;
	ssize_t got = 0;
	int err = 0;

	(void)ev;
	(void)events;
	for (int i = 0; i < CONN_READS_PER_WAKE && err == 0; i++) {
		/* never full here: two frames fit and whole ones were taken out */
		got = recv(conn->fd, conn->rx + conn->rx_len_bytes,
			   sizeof(conn->rx) - conn->rx_len_bytes, 0);
		if (got > 0) {
			conn->rx_len_bytes += (size_t)got;
			if (frames_cut(conn) == OOB_CONN_CLOSED) {
				return;
			}
		} else if (got == 0) {
			err = -ECONNRESET;
		} else if (errno != EINTR) {
			err = -errno;
		}
	}
	if (err == -EAGAIN) {
		err = conn->send_err;
	}
	if (err != 0) {
		conn->ops->broken(conn, err);
	} else if (conn->ops->pump != NULL && !conn->discard) {
		conn->ops->pump(conn);
	}
}

int oob_conn_open(struct oob_loop *loop, int fd, const struct oob_conn_ops *ops, void *owner,
		  struct oob_conn **out)
{
	struct oob_conn *conn = calloc(1, sizeof(*conn));

	if (conn == NULL) {
		oob_sock_close(fd);
		return -ENOMEM;
	}
	conn->loop = loop;
	conn->fd = fd;
	conn->ops = ops;
	conn->owner = owner;
	ev_io_init(&conn->read_io, read_cb, fd, EV_READ);
	ev_io_init(&conn->write_io, write_cb, fd, EV_WRITE);
	conn->read_io.data = conn;
	conn->write_io.data = conn;
	ev_io_start(oob_loop_ev(loop), &conn->read_io);
	*out = conn;
	return 0;
}

void oob_conn_close(struct oob_conn *conn)
{
	if (conn == NULL) {
		return;
	}
	oob_conn_flush(conn);
	ev_io_stop(oob_loop_ev(conn->loop), &conn->read_io);
	ev_io_stop(oob_loop_ev(conn->loop), &conn->write_io);
	oob_sock_close(conn->fd);
	free(conn);
}

void oob_conn_send(struct oob_conn *conn, const struct frame *frame, uint64_t ack)
{
	uint8_t bytes[OOB_FRAME_MAX_BYTES];
	size_t len_bytes;

	if (!oob_conn_has_room(conn) || oob_codec_put(frame, bytes, &len_bytes) != 0) {
		return;
	}
	oob_codec_seal(bytes, len_bytes, 0, ack);
	oob_conn_append(conn, bytes, len_bytes);
	oob_conn_flush(conn);
}

void oob_conn_refuse(struct oob_conn *conn, int err, const char *reason)
{
	struct frame frame = {.type = FRAME_REFUSED};

	frame.refused.err = err;
	snprintf(frame.refused.reason, sizeof(frame.refused.reason), "%s", reason);
	oob_conn_send(conn, &frame, 0);
	/* closing with unread bytes would reset the connection and take the words away again */
	shutdown(conn->fd, SHUT_WR);
	conn->discard = true;
	conn->rx_len_bytes = 0;
}
