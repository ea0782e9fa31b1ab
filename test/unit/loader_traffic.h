/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_LOADER_TRAFFIC_H
#define BRAID_TEST_LOADER_TRAFFIC_H

/*
 * What the proxy of one communicator does on a connection, with memory registered and given back by
 * another thread meanwhile.
 */

#include "test/unit/loader_conn.h"

enum {
	WINDOW_LIMIT = 1024
};

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
