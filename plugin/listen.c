/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/listen.h"

#include "include/clock.h"
#include "include/log.h"
#include "include/nccl_net.h"
#include "plugin/close.h"
#include "plugin/comm.h"
#include "plugin/core.h"
#include "plugin/runtime.h"
#include "plugin/setup.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static_assert(sizeof(struct handle) <= NCCL_NET_HANDLE_BYTES, "NCCL carries no more");

/** References: NCCL's, and one of each comm in the handshake. */
struct listener {
	uint8_t token[16];
	int dev;
	_Atomic unsigned int refs;
	struct listener *next; /* guarded by lock */
	bool closed;           /* guarded by lock */
	struct comm *ready;    /* guarded by lock; oldest first */
	struct close_wait *waiter;
};

enum {
	BUCKETS = 256 /* NCCL listens for all its peers before it accepts the first */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct listener *listeners[BUCKETS]; /* guarded by lock; by token, which is random */

static struct listener **bucket_of(const uint8_t token[16])
{
	return &listeners[token[0] % BUCKETS];
}

static bool is_device(int dev)
{
	const struct runtime *rt = runtime_instance();

	return rt->rails && dev >= 0 && (unsigned int)dev < ib_rails_device_count(rt->rails);
}

int plugin_listen(int dev, void *opaque, void **listen_comm)
{
	struct handle handle = {.magic = HANDLE_MAGIC, .version = PROTO_VERSION};
	struct listener *listener;
	int rc;

	if (!is_device(dev)) {
		return -EINVAL;
	}
	listener = calloc(1, sizeof(*listener));
	if (!listener) {
		return -ENOMEM;
	}
	if (getrandom(listener->token, sizeof(listener->token), 0) !=
	    (ssize_t)sizeof(listener->token)) {
		rc = -errno;
		goto free_listener;
	}
	rc = runtime_get();
	if (rc) {
		goto free_listener;
	}
	listener->dev = dev;
	atomic_init(&listener->refs, 1);
	memcpy(handle.token, listener->token, sizeof(handle.token));
	oob_net_addr(runtime_instance()->net, &handle.addr);
	memset(opaque, 0, NCCL_NET_HANDLE_BYTES);
	memcpy(opaque, &handle, sizeof(handle));
	pthread_mutex_lock(&lock);
	listener->next = *bucket_of(listener->token);
	*bucket_of(listener->token) = listener;
	pthread_mutex_unlock(&lock);
	*listen_comm = listener;
	return 0;

free_listener:
	free(listener);
	return rc;
}

void listener_put(struct listener *listener)
{
	if (atomic_fetch_sub_explicit(&listener->refs, 1, memory_order_acq_rel) == 1) {
		struct close_wait *waiter = listener->waiter;

		free(listener);
		close_wait_signal(waiter);
	}
}

static struct listener *find_token(const uint8_t token[16])
{
	struct listener *listener;

	pthread_mutex_lock(&lock);
	for (listener = *bucket_of(token); listener; listener = listener->next) {
		if (memcmp(listener->token, token, sizeof(listener->token)) == 0) {
			atomic_fetch_add_explicit(&listener->refs, 1, memory_order_relaxed);
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	return listener;
}

static void refuse(struct oob_link *link, const struct frame *open, int err, const char *why)
{
	struct frame frame = {.type = FRAME_REFUSED, .dst_comm = open->open.src_comm};

	LOG_WARN_LIMITED("refused a connection of %s: %s", oob_link_name(link), why);
	frame.refused.err = err;
	snprintf(frame.refused.reason, sizeof(frame.refused.reason), "%s", why);
	oob_link_send(link, &frame);
}

void listener_on_open(struct oob_link *link, const struct frame *frame)
{
	struct listener *listener = find_token(frame->open.token);
	struct comm *comm;
	int rc;

	if (!listener) {
		refuse(link, frame, -ECONNREFUSED, "nobody listens with this token");
		return;
	}
	comm = comm_create(COMM_RECEIVER, listener->dev);
	if (!comm) {
		refuse(link, frame, -ENOMEM, "out of memory");
		listener_put(listener);
		return;
	}
	oob_link_hold(link);
	comm->link = link;
	comm->listener = listener; /* the reference goes with it */
	/* What a receiver sends are clear-to-send entries and acknowledgements. */
	comm->traffic_class = runtime_instance()->cfg.ib_fifo_tc;
	rc = comm_list_rails(comm);
	if (rc) {
		refuse(link, frame, rc, "no rail is up");
		comm_put(comm);
		return;
	}
	setup_begin_accept(comm, frame);
}

/* Nobody will accept it. */
static void drop_ready(struct comm *comm)
{
	struct frame frame = {.type = FRAME_CLOSE};

	comm_send(comm, &frame);
	comm_hide(comm);
	comm_put(comm);
}

void listener_push(struct listener *listener, struct comm *comm)
{
	struct comm **at;
	bool closed;

	pthread_mutex_lock(&lock);
	closed = listener->closed;
	if (!closed) {
		for (at = &listener->ready; *at; at = &(*at)->accept_next) {
		}
		*at = comm;
	}
	pthread_mutex_unlock(&lock);
	if (closed) {
		drop_ready(comm);
	}
}

int plugin_accept(void *listen_comm, void **recv_comm)
{
	struct listener *listener = listen_comm;
	struct comm *comm;
	int rc;

	pthread_mutex_lock(&lock);
	comm = listener->ready;
	if (comm) {
		listener->ready = comm->accept_next;
		comm->listener = NULL;
	}
	pthread_mutex_unlock(&lock);
	if (!comm) {
		return 0;
	}
	rc = runtime_get(); /* the comm's own; until now the listener's kept the threads */
	listener_put(listener);
	if (rc) {
		comm_hide(comm);
		comm_put(comm);
		return rc;
	}
	*recv_comm = comm;
	return 0;
}

/* A handshake that nobody waits for would go on for as long as its peer takes. */
static void refuse_opening(struct comm *comm, void *listener)
{
	struct frame frame = {.type = FRAME_REFUSED};
	bool is_opening;

	pthread_mutex_lock(&lock);
	is_opening = comm->listener == listener;
	pthread_mutex_unlock(&lock);
	if (is_opening && setup_give_up(comm, -ECONNABORTED, "nobody listens any more")) {
		frame.refused.err = -ECONNREFUSED;
		snprintf(frame.refused.reason, sizeof(frame.refused.reason),
			 "nobody listens any more");
		comm_send(comm, &frame);
	}
}

/* Take it off the list; what waits in its queue. */
static struct comm *shut(struct listener *listener, struct close_wait *wait)
{
	struct listener **at;
	struct comm *left;

	pthread_mutex_lock(&lock);
	for (at = bucket_of(listener->token); *at && *at != listener; at = &(*at)->next) {
	}
	if (*at) {
		*at = listener->next;
	}
	listener->closed = true;
	listener->waiter = wait;
	left = listener->ready;
	listener->ready = NULL;
	pthread_mutex_unlock(&lock);
	return left;
}

int plugin_close_listen(void *listen_comm)
{
	struct listener *listener = listen_comm;
	struct close_wait *wait = close_wait_create();
	struct comm *left = shut(listener, wait);

	while (left) {
		struct comm *next = left->accept_next;

		drop_ready(left);
		left = next;
	}
	/* No comm comes to hold it any more. Relaxed: one that let go of it has nothing to refuse.
	 */
	if (atomic_load_explicit(&listener->refs, memory_order_relaxed) > 1) {
		comm_for_each(refuse_opening, listener);
	}
	listener_put(listener);
	/* Comms still in the handshake hold the listener; our threads must outlive them. */
	close_wait_end(wait, "a connection that was being accepted");
	return 0;
}

void listener_close_all(void)
{
	for (unsigned int i = 0; i < BUCKETS;) {
		struct listener *listener;

		pthread_mutex_lock(&lock);
		listener = listeners[i];
		pthread_mutex_unlock(&lock);
		if (listener) {
			plugin_close_listen(listener);
		} else {
			i++;
		}
	}
}
