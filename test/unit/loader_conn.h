/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_LOADER_CONN_H
#define BRAID_TEST_LOADER_CONN_H

/*
 * One connection of a communicator, both ends in this process, made and used with the habits of
 * NCCL's proxy: leftovers in *request, arrays longer than what is written.
 */

#include "test/unit/loader_threads.h"

#include <sched.h>

enum {
	TRAFFIC_BYTES = 1 << 20,
	DEPTH = 8,     /* NCCL_STEPS */
	SUBS_MAX = 64, /* NCCL_PROXY_MAX_SUBS of 2.28 on: test's array */
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

#endif
