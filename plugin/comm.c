/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm.h"

#include "include/clock.h"
#include "include/log.h"
#include "plugin/ack_list.h"
#include "plugin/close.h"
#include "plugin/listen.h"
#include "plugin/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	BUCKETS = 1024 /* each frame looks one up, and there may be thousands */
};

/*
 * All comms of the process. Lock order: the table's lock is taken with no comm lock held, and no
 * comm lock is taken under it.
 */
static struct {
	pthread_mutex_t lock;
	struct comm *heads[BUCKETS]; /* by id; newest first, so ids fall along each list */
	uint64_t last_id;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct comm *comm_create(enum comm_role role, int dev)
{
	struct comm *comm = aligned_alloc(64, (sizeof(struct comm) + 63) / 64 * 64);

	if (!comm) {
		return NULL;
	}
	memset(comm, 0, sizeof(*comm));
	comm->role = role;
	comm->dev = dev;
	comm->state = COMM_OPENING;
	comm->opened_ns = clock_mono_ns();
	atomic_init(&comm->refs, 1);
	return comm;
}

void comm_show(struct comm *comm)
{
	pthread_mutex_lock(&table.lock);
	comm->id = ++table.last_id;
	comm->is_listed = true;
	comm->next = table.heads[comm->id % BUCKETS];
	table.heads[comm->id % BUCKETS] = comm;
	pthread_mutex_unlock(&table.lock);
}

struct comm *comm_hold(struct comm *comm)
{
	/* Relaxed: whoever holds a reference may give one away. */
	atomic_fetch_add_explicit(&comm->refs, 1, memory_order_relaxed);
	return comm;
}

/* On the setup worker, with nobody else left. Destroying QPs may block on a sick HCA. */
static void destroy(void *arg)
{
	struct comm *comm = arg;
	struct close_wait *waiter = comm->waiter;
	struct listener *listener = comm->listener;

	for (unsigned int i = 0; i < comm->path_count; i++) {
		if (comm->paths[i].has_flush) {
			ib_flush_destroy(&comm->paths[i].flush);
		}
		ib_qp_destroy(&comm->paths[i].qp);
	}
	comm_rings_destroy(comm);
	while (comm->early) {
		struct early_frame *early = comm->early;

		comm->early = early->next;
		free(early);
	}
	if (comm->link) {
		oob_link_put(comm->link);
	}
	free(comm);
	if (listener) {
		listener_put(listener);
	}
	close_wait_signal(waiter);
}

void comm_put(struct comm *comm)
{
	/* Acquire and release: what others did with the comm comes before its end. */
	if (atomic_fetch_sub_explicit(&comm->refs, 1, memory_order_acq_rel) == 1) {
		comm->setup_job = (struct worker_job){.fn = destroy, .arg = comm};
		worker_post(runtime_instance()->setup, &comm->setup_job);
	}
}

struct comm *comm_find(uint64_t id)
{
	struct comm *comm;

	pthread_mutex_lock(&table.lock);
	for (comm = table.heads[id % BUCKETS]; comm && comm->id != id; comm = comm->next) {
	}
	if (comm) {
		comm_hold(comm);
	}
	pthread_mutex_unlock(&table.lock);
	return comm;
}

/* Lock held. The next one of a walk that is at `comm`, with a reference. */
static struct comm *next_of(const struct comm *comm)
{
	unsigned int bucket = comm ? (unsigned int)(comm->id % BUCKETS) : 0;
	struct comm *next = table.heads[bucket];

	if (comm && comm->is_listed) {
		next = comm->next;
	} else {
		/* Taken out meanwhile, so its next may be gone: the first behind its place. */
		for (; comm && next && next->id >= comm->id; next = next->next) {
		}
	}
	while (!next && ++bucket < BUCKETS) {
		next = table.heads[bucket];
	}
	return next ? comm_hold(next) : NULL;
}

void comm_for_each(void (*fn)(struct comm *comm, void *arg), void *arg)
{
	struct comm *comm, *next;

	pthread_mutex_lock(&table.lock);
	comm = next_of(NULL);
	pthread_mutex_unlock(&table.lock);
	for (; comm; comm = next) {
		fn(comm, arg);
		pthread_mutex_lock(&table.lock);
		next = next_of(comm);
		pthread_mutex_unlock(&table.lock);
		comm_put(comm);
	}
}

void comm_hide(struct comm *comm)
{
	struct comm **at;

	pthread_mutex_lock(&table.lock);
	if (comm->is_listed) {
		for (at = &table.heads[comm->id % BUCKETS]; *at != comm; at = &(*at)->next) {
		}
		*at = comm->next;
		comm->is_listed = false;
	}
	pthread_mutex_unlock(&table.lock);
}

bool comm_fail_setup(struct comm *comm, int err, const char *why)
{
	if (comm->state != COMM_OPENING) {
		return false;
	}
	comm->state = COMM_FAILED;
	comm->err = err;
	LOG_WARN("cannot %s %s: %s (%s)",
		 comm->role == COMM_SENDER ? "connect to" : "accept a connection of",
		 comm_peer_name(comm), why, strerror(-err));
	return true;
}

int comm_send(struct comm *comm, struct frame *frame)
{
	int rc;

	frame->dst_comm = frame->type == FRAME_OPEN ? 0 : comm->peer_comm;
	rc = oob_link_send(comm->link, frame);
	/* A peer that is gone or said goodbye is reported once, by the link. */
	if (rc && rc != -EPIPE) {
		LOG_WARN_LIMITED("cannot send to %s: %s", comm_peer_name(comm), strerror(-rc));
	}
	return rc;
}

const char *comm_peer_name(const struct comm *comm)
{
	return comm->link ? oob_link_name(comm->link) : "(no link)";
}

struct request *comm_take_request(struct comm *comm, enum request_type type, struct memory *memory)
{
	for (unsigned int i = 0; i < REQUESTS_MAX; i++) {
		struct request *request = &comm->requests[(comm->request_hint + i) % REQUESTS_MAX];

		if (!request->busy) {
			comm->request_hint = (comm->request_hint + i + 1) % REQUESTS_MAX;
			*request = (struct request){
				.comm = comm, .type = type, .busy = true, .memory = memory};
			return request;
		}
	}
	return NULL;
}

void comm_expect(struct request *request)
{
	request->is_expected = true;
	ack_list_expect();
}

void comm_unexpect(struct request *request)
{
	if (request->is_expected) {
		request->is_expected = false;
		ack_list_unexpect();
	}
}

void comm_give_request(struct request *request)
{
	request->busy = false;
	comm_unexpect(request);
}

void comm_give_requests(struct comm *comm)
{
	for (unsigned int i = 0; i < REQUESTS_MAX; i++) {
		if (comm->requests[i].busy) {
			comm_give_request(&comm->requests[i]);
		}
	}
}
