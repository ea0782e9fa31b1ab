/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/bench/peers.h"

#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* One of many, on two cores: whoever waits sleeps. */

enum {
	PEER_HOSTS = 63, /* of the fabric; the process under test has host 0 */
	PAUSE_LEAST_NS = 200000,
	PAUSE_MOST_NS = 30000000,
	ORDER_WAIT_MS = 3600000,
};

void peers_word_wait(_Atomic uint32_t *word, uint32_t value, unsigned int timeout_ms)
{
	struct timespec ts = {.tv_sec = timeout_ms / 1000,
			      .tv_nsec = (long)(timeout_ms % 1000) * 1000000};

	syscall(SYS_futex, word, FUTEX_WAIT, value, &ts, NULL, 0);
}

void peers_word_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

uint32_t peer_order_give(struct peer_seat *seat, enum peer_order order)
{
	uint32_t last = atomic_load_explicit(&seat->order, memory_order_relaxed);
	uint32_t next = ((last >> 2) + 1) << 2 | (uint32_t)order;

	atomic_store_explicit(&seat->order, next, memory_order_release);
	peers_word_wake(&seat->order);
	return next;
}

/* One connection each way, as the first of this process. */
static void connect_both(struct bench_rank *rank, struct peer_seat *seat)
{
	uint64_t end_ns = clock_mono_ns() + BENCH_WAIT_S * NS_PER_SEC;
	unsigned char handle[NCCL_NET_HANDLE_BYTES];
	struct nccl_net_device_handle *dev = NULL;
	void *listen_comm = NULL;
	struct timespec pause = {.tv_nsec = PAUSE_LEAST_NS};

	if (rank->api.ops->listen(&rank->api, 0, seat->handle, &listen_comm)) {
		bench_die(rank, "a peer: listen", 0);
	}
	atomic_store_explicit(&seat->listens, 1, memory_order_release);
	memcpy(handle, seat->test_handle, sizeof(handle));
	while (!rank->send_comms[0] || !rank->recv_comms[0]) {
		enum nccl_result result = NCCL_RESULT_SUCCESS;

		if (!rank->send_comms[0]) {
			result = rank->api.ops->connect(&rank->api, 0, handle, &rank->send_comms[0],
							&dev);
		}
		if (!result && !rank->recv_comms[0]) {
			result = rank->api.ops->accept(&rank->api, listen_comm,
						       &rank->recv_comms[0], &dev);
		}
		if (result || clock_mono_ns() > end_ns) {
			bench_die(rank, "a peer: connect or accept", (int)result);
		}
		nanosleep(&pause, NULL);
	}
	rank->api.ops->close_listen(&rank->api, listen_comm);
	rank->comm_count = 1;
	bench_register(rank, 0);
}

/* Longer and longer: a thousand that look often leave nothing for the process under test. */
static void moved_nothing(struct bench_rank *rank, uint64_t end_ns, long *pause_ns)
{
	struct timespec ts = {.tv_nsec = *pause_ns};

	if (clock_mono_ns() > end_ns) {
		bench_die(rank, "a peer: no message in time", 0);
	}
	nanosleep(&ts, NULL);
	*pause_ns = *pause_ns * 2 < PAUSE_MOST_NS ? *pause_ns * 2 : PAUSE_MOST_NS;
}

static void receive(struct bench_rank *rank, struct peer_seat *seat, uint32_t order)
{
	uint64_t end_ns = clock_mono_ns() + BENCH_WAIT_S * NS_PER_SEC;
	uint32_t count = seat->messages;
	long pause_ns = PAUSE_LEAST_NS;
	void *requests[PEERS_BURST_MAX] = {NULL};
	enum nccl_result result = NCCL_RESULT_SUCCESS;

	for (uint32_t i = 0; i < count && !result;) {
		result = rank->api.ops->irecv(&rank->api, rank->recv_comms[0], rank->recv_buf,
					      PEERS_SIZE_BYTES, rank->recv_mhs[0], &requests[i]);
		if (requests[i]) {
			i++;
		} else {
			moved_nothing(rank, end_ns, &pause_ns);
		}
	}
	atomic_store_explicit(&seat->posted, order, memory_order_release);
	for (uint32_t i = 0; i < count && !result;) {
		int done = 0;
		int size = 0;

		result = rank->api.ops->test(&rank->api, requests[i], &done, &size);
		if (done && size != PEERS_SIZE_BYTES) {
			bench_die(rank, "a peer: a message of another size", size);
		}
		if (done) {
			i++;
		} else {
			moved_nothing(rank, end_ns, &pause_ns);
		}
	}
	if (result) {
		bench_die(rank, "a peer: irecv or test", (int)result);
	}
}

static void obey(struct bench_rank *rank, struct peer_seat *seat, uint32_t order)
{
	switch ((enum peer_order)(order & 3u)) {
	case PEER_CONNECT:
		connect_both(rank, seat);
		break;
	case PEER_RECEIVE:
		receive(rank, seat, order);
		break;
	case PEER_LEAVE:
		bench_close(rank);
		_exit(0);
	}
	atomic_store_explicit(&seat->done, order, memory_order_release);
}

_Noreturn void peer_main(const struct bench_options *opt, struct peers_shared *shared,
			 unsigned int number)
{
	struct bench_rank rank = {.opt = opt, .shared = shared->bench, .id = 1};
	struct peer_seat *seat = &shared->seats[number];
	uint32_t order = 0;
	char host[16];

	snprintf(host, sizeof(host), "%u", 1 + number % PEER_HOSTS);
	setenv("FABRIC_HOST", host, 1);
	bench_open(&rank);
	rank.buf_bytes = 4096; /* of it is registered */
	atomic_fetch_add_explicit(&shared->open, 1, memory_order_acq_rel);
	for (;;) {
		uint32_t next = atomic_load_explicit(&seat->order, memory_order_acquire);

		if (next == order) {
			peers_word_wait(&seat->order, order, ORDER_WAIT_MS);
			continue;
		}
		order = next;
		obey(&rank, seat, order);
	}
}
