/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_CONN_H
#define BRAID_OOB_CONN_H

#include "oob/codec.h"
#include "oob/loop_priv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * One connected TCP socket that carries frames: buffers both ways, cuts the stream into checked
 * frames. Knows nothing of links. Loop thread only.
 */
struct oob_conn;

/** What a callback says about the connection it was called for. */
enum oob_conn_verdict {
	OOB_CONN_KEEP,
	OOB_CONN_CLOSED /* the callback has closed it: it must not be touched any more */
};

struct oob_conn_ops {
	/* a whole frame with a correct crc */
	enum oob_conn_verdict (*frame)(struct oob_conn *conn, const struct oob_head *head,
				       const struct frame *frame);
	/* all that had arrived was handed over, or room for sending came back; may be NULL */
	void (*pump)(struct oob_conn *conn);
	/*
	 * No more frames will come: -ECONNRESET at the end of the stream, the errno of a failed
	 * call, -EPROTO for a wrong magic, -EBADMSG for a broken frame. The callback closes conn.
	 */
	void (*broken)(struct oob_conn *conn, int err);
};

struct oob_conn {
	struct oob_loop *loop;
	int fd;
	ev_io read_io, write_io;
	const struct oob_conn_ops *ops; /* owner and ops may change hands between frames */
	void *owner;
	bool discard; /* read and drop: waiting for the end of the stream */
	int send_err; /* sending failed: what can still be read is read first */
	size_t rx_len_bytes;
	size_t tx_from, tx_to; /* unsent bytes of tx */
	uint8_t rx[2 * OOB_FRAME_MAX_BYTES];
	uint8_t tx[2 * OOB_FRAME_MAX_BYTES];
};

/** Takes over the connected socket fd, also on failure. 0 or -ENOMEM. */
int oob_conn_open(struct oob_loop *loop, int fd, const struct oob_conn_ops *ops, void *owner,
		  struct oob_conn **out);

/** Send what the kernel takes at once, then close. NULL is fine. */
void oob_conn_close(struct oob_conn *conn);

/** Is there room for a frame of any size? */
bool oob_conn_has_room(const struct oob_conn *conn);

/** Append an encoded and sealed frame; the caller has seen that there is room. */
void oob_conn_append(struct oob_conn *conn, const uint8_t *bytes, size_t len_bytes);

/** Give the kernel what it takes; the rest follows when the socket is writable. */
void oob_conn_flush(struct oob_conn *conn);

/** Encode, seal (not numbered) and append one frame; drops it when there is no room. */
void oob_conn_send(struct oob_conn *conn, const struct frame *frame, uint64_t ack);

/** Say why and stop sending; what still comes in is dropped until the peer closes. */
void oob_conn_refuse(struct oob_conn *conn, int err, const char *reason);

#endif
