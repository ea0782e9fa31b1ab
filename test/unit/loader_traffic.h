/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_LOADER_TRAFFIC_H
#define BRAID_TEST_LOADER_TRAFFIC_H

/*
 * One connection of a communicator, both ends in this process, used with the habits of NCCL's
 * proxy: leftovers in *request, arrays longer than what is written, memory registered and given
 * back by another thread in between.
 */

#include "test/unit/loader_threads.h"

#include <sched.h>

enum {
	TRAFFIC_BYTES = 1 << 20,
	DEPTH = 8,     /* NCCL_STEPS */
	SUBS_MAX = 64, /* NCCL_PROXY_MAX_SUBS of 2.28 on: test's array */
	WINDOW_LIMIT = 1024,
	WAIT_S = 20
};

struct traffic {
	struct netapi *api;
	void *sender, *receiver;
	void *send_mh, *recv_mh;
	char *from, *to;
};

/* Asked after each look that was in vain: lets others run, as the fabric's threads must. */
static inline bool waited_too_long(time_t since)
{
	sched_yield();
	return time(NULL) - since > WAIT_S;
}

/* The handle travels through the bootstrap, then stays the same memory for every call of connect,
 * which keeps state in it. */
static inline void traffic_connect(struct traffic *t, int dev, bool null_dev_handle)
{
	struct nccl_net_device_handle *send_handle = NULL;
	struct nccl_net_device_handle *recv_handle = NULL;
	char listened[NCCL_NET_HANDLE_BYTES] = {0};
	char handle[NCCL_NET_HANDLE_BYTES];
	void *listener = NULL;
	time_t start = time(NULL);

	EXPECT_OK(t->api->ops->listen(t->api, dev, listened, &listener));
	memcpy(handle, listened, sizeof(handle));
	while (t->sender == NULL || t->receiver == NULL) {
		if (t->sender == NULL) {
			EXPECT_OK(t->api->ops->connect(t->api, dev, handle, &t->sender,
						       null_dev_handle ? NULL : &send_handle));
		}
		if (t->receiver == NULL) {
			EXPECT_OK(t->api->ops->accept(t->api, listener, &t->receiver,
						      null_dev_handle ? NULL : &recv_handle));
		}
		EXPECT(!waited_too_long(start));
	}
	EXPECT(send_handle == NULL && recv_handle == NULL); /* a HOST device leaves them */
	EXPECT_OK(t->api->ops->close_listen(t->api, listener));
}

static inline void traffic_open(struct traffic *t, struct netapi *api, int dev,
				bool null_dev_handle)
{
	memset(t, 0, sizeof(*t));
	t->api = api;
	traffic_connect(t, dev, null_dev_handle);
	t->from = malloc(TRAFFIC_BYTES);
	t->to = malloc(TRAFFIC_BYTES);
	EXPECT(t->from != NULL && t->to != NULL);
	EXPECT_OK(api->ops->reg_mr(api, t->sender, t->from, TRAFFIC_BYTES, &t->send_mh));
	EXPECT_OK(api->ops->reg_mr(api, t->receiver, t->to, TRAFFIC_BYTES, &t->recv_mh));
	EXPECT(t->send_mh != NULL && t->recv_mh != NULL);
}

/* Handles first, memory next, ends last; all of it succeeds in whatever state they are. */
static inline void traffic_close(struct traffic *t)
{
	EXPECT_OK(t->api->ops->dereg_mr(t->api, t->sender, t->send_mh));
	EXPECT_OK(t->api->ops->dereg_mr(t->api, t->receiver, t->recv_mh));
	free(t->from);
	free(t->to);
	EXPECT_OK(t->api->ops->close_send(t->api, t->sender));
	EXPECT_OK(t->api->ops->close_recv(t->api, t->receiver));
}

/* Until there is a request; NULL means "not now", whatever stood there before. */
static inline void *irecv_until(struct traffic *t, size_t offset, size_t size, uintptr_t leftover)
{
	time_t start = time(NULL);
	void *request;

	do {
		request = (void *)leftover;
		EXPECT_OK(t->api->ops->irecv(t->api, t->receiver, t->to + offset, size, t->recv_mh,
					     &request));
		EXPECT(leftover == 0 || request != (void *)leftover);
		EXPECT(!waited_too_long(start));
	} while (request == NULL);
	return request;
}

static inline void *isend_until(struct traffic *t, size_t offset, size_t size, uintptr_t leftover)
{
	time_t start = time(NULL);
	void *request;

	do {
		request = (void *)leftover;
		EXPECT_OK(t->api->ops->isend(t->api, t->sender, t->from + offset, size, t->send_mh,
					     &request));
		EXPECT(leftover == 0 || request != (void *)leftover);
		EXPECT(!waited_too_long(start));
	} while (request == NULL);
	return request;
}

/* Whether one more look finds the request done. The receiver hands in a cleared array for all the
 * subs it could have, of which only the first is one; the bootstrap hands in none. */
static inline bool test_once(struct traffic *t, void *request, const int *want)
{
	int sizes[SUBS_MAX] = {0};
	int done = 7;

	EXPECT_OK(t->api->ops->test(t->api, request, &done, want != NULL ? sizes : NULL));
	EXPECT(done == 0 || done == 1);
	EXPECT(want == NULL || done == 0 || sizes[0] == *want);
	for (int i = 1; i < SUBS_MAX; i++) {
		EXPECT(sizes[i] == 0);
	}
	return done == 1;
}

/* Tests both ends in turn, as two proxies do, each until it is done and never after. */
static inline void test_until(struct traffic *t, void *send, void *recv, const int *want)
{
	bool sent = false;
	bool received = false;
	time_t start = time(NULL);

	while (!sent || !received) {
		sent = sent || test_once(t, send, want);
		received = received || test_once(t, recv, want);
		EXPECT(!waited_too_long(start));
	}
}

static inline void pattern_fill(struct traffic *t, unsigned int seed)
{
	for (size_t i = 0; i < TRAFFIC_BYTES; i++) {
		t->from[i] = (char)(i * 7 + i / 251 + seed);
		t->to[i] = 0x33;
	}
}

/* Host memory, or nothing received: there is nothing to flush, and *request says so. */
static inline void flush_nothing(struct traffic *t, int size)
{
	void *request = (void *)(uintptr_t)0x5a5a;

	EXPECT_OK(t->api->ops->iflush(t->api, t->receiver, t->to, size, t->recv_mh, &request));
	EXPECT(request == NULL);
}

/** As many messages as NCCL has in flight, each tested in its turn. `leftover`: what *request holds
 * before irecv: 0, an old pointer, or from v9 on the hint 0x1. */
static inline void traffic_round(struct traffic *t, size_t size, uintptr_t leftover, bool sizes)
{
	size_t stride = TRAFFIC_BYTES / DEPTH;
	void *recvs[DEPTH];
	void *sends[DEPTH];
	int want = (int)size;
	void *early = (void *)(uintptr_t)0x77;

	EXPECT(size <= stride);
	pattern_fill(t, (unsigned int)size);
	/* nobody has posted a receive yet */
	EXPECT_OK(t->api->ops->isend(t->api, t->sender, t->from, size, t->send_mh, &early));
	EXPECT(early == NULL);
	for (int i = 0; i < DEPTH; i++) {
		recvs[i] = irecv_until(t, (size_t)i * stride, size, leftover);
	}
	for (int i = 0; i < DEPTH; i++) {
		sends[i] = isend_until(t, (size_t)i * stride, size, leftover);
	}
	for (int i = 0; i < DEPTH; i++) {
		test_until(t, sends[i], recvs[i], sizes ? &want : NULL);
		EXPECT(memcmp(t->from + (size_t)i * stride, t->to + (size_t)i * stride, size) == 0);
		EXPECT(size == stride || t->to[(size_t)i * stride + size] == 0x33);
		flush_nothing(t, (int)size);
	}
}

/** 2.20 to 2.23 send more from a registered buffer than was posted, and go on by what test says. */
static inline void traffic_clamped(struct traffic *t)
{
	int want = 4096;
	void *recv;
	void *send;

	pattern_fill(t, 99);
	recv = irecv_until(t, 0, 4096, 0);
	send = isend_until(t, 0, TRAFFIC_BYTES, 0);
	test_until(t, send, recv, &want);
	EXPECT(memcmp(t->from, t->to, 4096) == 0 && t->to[4096] == 0x33);
}

/** Receives until there is no room for more: that is "not now", said over the hint as well. */
static inline void traffic_full(struct traffic *t, uintptr_t hint)
{
	void *recvs[WINDOW_LIMIT];
	int count = 0;
	int want = 8;

	pattern_fill(t, 5);
	for (;;) {
		void *request = (void *)hint;

		EXPECT(count < WINDOW_LIMIT);
		EXPECT_OK(t->api->ops->irecv(t->api, t->receiver, t->to + count * want, 8,
					     t->recv_mh, &request));
		if (request == NULL) {
			break;
		}
		EXPECT(request != (void *)hint);
		recvs[count++] = request;
	}
	EXPECT(count >= DEPTH);
	for (int i = 0; i < count; i++) {
		test_until(t, isend_until(t, (size_t)(i * want), 8, 0), recvs[i], &want);
	}
	EXPECT(memcmp(t->from, t->to, (size_t)(count * want)) == 0);
}

struct service {
	struct traffic *traffic;
	_Atomic bool stop;
	unsigned int rounds;
};

/* NCCL's service thread registers user buffers while the progress thread moves data. */
static inline void *service_main(void *arg)
{
	struct service *service = arg;
	const struct timespec pause = {0, 1000000};
	struct traffic *t = service->traffic;
	char *user = malloc(TRAFFIC_BYTES);

	EXPECT(user != NULL);
	do {
		void *send_mh = NULL;
		void *recv_mh = NULL;

		EXPECT_OK(t->api->ops->reg_mr(t->api, t->sender, user, 65536, &send_mh));
		EXPECT_OK(t->api->ops->reg_mr(t->api, t->receiver, user + 1000, 100000, &recv_mh));
		EXPECT_OK(t->api->ops->dereg_mr(t->api, t->receiver, recv_mh));
		EXPECT_OK(t->api->ops->dereg_mr(t->api, t->sender, send_mh));
		service->rounds++;
		nanosleep(&pause, NULL);
	} while (!atomic_load_explicit(&service->stop, memory_order_relaxed));
	free(user);
	return NULL;
}

/** Everything one connection of a communicator does. */
static inline void traffic_walk(struct netapi *api, int dev, bool null_dev_handle)
{
	struct traffic t;
	struct service service = {.traffic = &t};
	uintptr_t hint = api->version >= 9 ? NCCL_NET_RECV_OPTIONAL : 0x5a5a;
	pthread_t thread;

	traffic_open(&t, api, dev, null_dev_handle);
	EXPECT(pthread_create(&thread, NULL, service_main, &service) == 0);
	traffic_round(&t, 0, 0x5a5a, true);
	traffic_round(&t, 8, hint, true);
	traffic_round(&t, 65536, hint, true);
	traffic_round(&t, TRAFFIC_BYTES / DEPTH, 0, true);
	traffic_round(&t, 1000, 0, false); /* the bootstrap ring asks for no sizes */
	traffic_clamped(&t);
	traffic_full(&t, hint);
	atomic_store_explicit(&service.stop, true, memory_order_relaxed);
	EXPECT(pthread_join(thread, NULL) == 0 && service.rounds > 0);
	traffic_close(&t);
}

/** ncclCommAbort: memory is taken back and the ends are closed with requests outstanding. */
static inline void traffic_abort(struct netapi *api)
{
	struct traffic t;

	traffic_open(&t, api, 0, true);
	(void)irecv_until(&t, 0, TRAFFIC_BYTES, 0);
	(void)irecv_until(&t, 0, TRAFFIC_BYTES, 0);
	(void)isend_until(&t, 0, TRAFFIC_BYTES, 0);
	traffic_close(&t);
}

#endif
