/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_LOOPBACK_H
#define BRAID_TEST_DRIVER_LOOPBACK_H

#include "include/nccl_net.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A net plugin for the driver's own tests: one TCP connection over the loopback interface per comm,
 * moved along only by isend, irecv and test. With LOOPBACK_FAULT=NAME[:N] it misbehaves once, from
 * message N of a comm on (default 5), so that the driver can be seen to notice.
 */

/** What it can do wrong. Each row: name, what happens. */
#define LOOPBACK_FAULT_TABLE(X)                                                                    \
	X(NONE, "none", "behave")                                                                  \
	X(CORRUPT, "corrupt", "flip one bit of the message before it is reported done")            \
	X(LATE, "late", "write one byte of the message again after it was reported done")          \
	X(DUPLICATE, "duplicate", "deliver the message before it once more in its place")          \
	X(DROP, "drop", "report it done without the data")                                         \
	X(LOSE, "lose", "never report it")                                                         \
	X(OVERRUN, "overrun", "write eight bytes behind it")                                       \
	X(UNDERRUN, "underrun", "write eight bytes before the slot")                               \
	X(HOLE, "hole", "leave out eight bytes at offset 2048")                                    \
	X(CHANGE, "change", "change the message once more before it is reported done")             \
	X(SEND_SIZE, "send_size", "report four bytes too many for a send")                         \
	X(SIZE, "size", "report four bytes too many")                                              \
	X(ERROR, "error", "return an error from test")                                             \
	X(REQUEST, "request", "isend: leave *request as it is instead of writing NULL")            \
	X(REQUEST_RECV, "request_recv", "irecv: the same")                                         \
	X(EAGER, "eager", "report the send done, read its memory afterwards")                      \
	X(TORN, "torn", "write the flags of the low-latency protocol before the data")             \
	X(AFTER, "after", "write into the last receive while the comm is closed")                  \
	X(NUMB, "numb", "never report that the peer is gone")                                      \
	X(FICKLE, "fickle", "report it once, then no more")

#define LOOPBACK_ENUM(id, name, help) LOOPBACK_##id,
enum loopback_fault {
	LOOPBACK_FAULT_TABLE(LOOPBACK_ENUM) LOOPBACK_FAULT_COUNT
};
#undef LOOPBACK_ENUM

enum {
	LOOPBACK_REQUESTS = 32, /**< per comm; more are answered with NULL */
	LOOPBACK_KEPT_BYTES = 4096
};

/** One isend or irecv. */
struct loopback_request {
	struct loopback_comm *comm;
	bool busy;
	uint64_t seq; /**< number on its comm */
	unsigned char *data;
	size_t len_bytes;  /**< posted; receiver: of the message, once its header is in */
	uint64_t header;   /**< message length on the wire */
	size_t wire_bytes; /**< header and payload through the socket so far */
	bool complete;     /**< all of it went through */
	unsigned visits;   /**< calls of test since then, for misbehaviour that takes its time */
	unsigned char *bounce; /**< receiver, when something is to go wrong: holds the payload */
	unsigned char old[LOOPBACK_KEPT_BYTES]; /**< what the memory held when it was posted */
};

/** One connection, or a listener. Only one thread moves data on it. */
struct loopback_comm {
	int fd;
	bool sends;
	bool connected;
	uint64_t post_seq; /**< of the next request */
	uint64_t move_seq; /**< the oldest request not yet through the socket */
	struct loopback_request requests[LOOPBACK_REQUESTS]; /**< seq modulo the count */
	unsigned char previous[LOOPBACK_KEPT_BYTES];         /**< start of the message before */
	unsigned char *late_at; /**< where to write as soon as no receive is posted there */
	unsigned char *last_at; /**< the last receive */
	bool request_left;      /**< fault "request" has happened */
	bool broken_told;       /**< that the peer is gone was reported */
	int broken;             /**< the error from then on, or 0 */
};

/** What listen puts into the handle; connect keeps its socket there between calls. */
struct loopback_handle {
	uint16_t port;
	struct loopback_comm *pending;
};

/** Fill the handle. Returns 0 or -errno, as all below. */
int loopback_listen(struct loopback_handle *handle, struct loopback_comm **out);
/** *out stays NULL until the connection is there. */
int loopback_connect(struct loopback_handle *handle, struct loopback_comm **out);
int loopback_accept(struct loopback_comm *listener, struct loopback_comm **out);
/** Accepts NULL. */
void loopback_close(struct loopback_comm *comm);
/** *out gets the request, or NULL when all are in use. */
int loopback_post(struct loopback_comm *comm, void *data, size_t len_bytes, void **out);
/** Move data; *done and *size as in the net API. */
int loopback_test(struct loopback_request *request, int *done, int *size);

/** True if this request is the one to go wrong, in this way. */
bool loopback_fault_is(const struct loopback_request *request, enum loopback_fault fault);
/** True if this request is the one to go wrong, in whatever way. */
bool loopback_fault_armed(const struct loopback_request *request);
/** The whole message is in request->bounce: put it in its place, spoiled. */
void loopback_fault_strike(struct loopback_request *request);
/**
 * A message is about to be reported: *done says whether test may do so, *size what it reports; both
 * may be changed. Returns what test should.
 */
int loopback_fault_report(struct loopback_request *request, int *done, int *size);
/** The connection broke with err, not for the first time perhaps. Returns what to report. */
int loopback_fault_broken(struct loopback_comm *comm, int err);
/** On each call of test for a comm: the late write, if its place is free. */
void loopback_fault_late(struct loopback_comm *comm);

#endif
