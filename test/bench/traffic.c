/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/bench/bench.h"

#include <sched.h>
#include <stdio.h>

/* NCCL's progress thread: try, test in order, yield when nothing moved. */

struct lane {
	void *comm, *mh;
	void *requests[BENCH_WINDOW_MAX];
	unsigned int posted, done;
};

static bool is_send(const struct bench_rank *rank)
{
	return rank->id == 0;
}

static void *post(struct bench_rank *rank, bool sends, unsigned int i, size_t size_bytes)
{
	void *request = NULL;
	enum nccl_result result =
		sends ? rank->api.ops->isend(&rank->api, rank->send_comms[i], rank->send_buf,
					     size_bytes, rank->send_mhs[i], &request)
		      : rank->api.ops->irecv(&rank->api, rank->recv_comms[i], rank->recv_buf,
					     size_bytes, rank->recv_mhs[i], &request);

	if (result != NCCL_RESULT_SUCCESS) {
		bench_die(rank, sends ? "isend" : "irecv", (int)result);
	}
	return request;
}

static bool poll_done(struct bench_rank *rank, void *request, size_t size_bytes)
{
	int size = -1;
	int done = 0;
	enum nccl_result result = rank->api.ops->test(&rank->api, request, &done, &size);

	if (result != NCCL_RESULT_SUCCESS) {
		bench_die(rank, "test", (int)result);
	}
	if (done && size != (int)size_bytes) {
		bench_die(rank, "a message of another size", size);
	}
	return done != 0;
}

static void check_time(struct bench_rank *rank, uint64_t start_ns, const char *what)
{
	if (clock_mono_ns() - start_ns > BENCH_WAIT_S * NS_PER_SEC) {
		bench_die(rank, what, BENCH_WAIT_S);
	}
	sched_yield();
}

/* Both ways on comm 0: the receive of the next answer is always posted before the message goes. */
void bench_ping_pong(struct bench_rank *rank, size_t size_bytes, unsigned int count)
{
	uint64_t start_ns = clock_mono_ns();
	void *recv = post(rank, false, 0, size_bytes);
	void *send = NULL;
	bool owes = is_send(rank); /* a message to send before the next is waited for */
	unsigned int received = 0;
	unsigned int sent = 0;

	while (received < count || sent < count || send) {
		bool moved = false;

		if (send && poll_done(rank, send, size_bytes)) {
			send = NULL;
			moved = true;
		}
		if (owes && !send && sent < count) {
			send = post(rank, true, 0, size_bytes);
			if (send) {
				sent++;
				owes = false;
				moved = true;
			}
		}
		if (recv && poll_done(rank, recv, size_bytes)) {
			received++;
			owes = true;
			recv = received < count ? post(rank, false, 0, size_bytes) : NULL;
			moved = true;
		}
		if (!moved) {
			check_time(rank, start_ns, "ping-pong stands still");
		}
	}
}

static bool move_lane(struct bench_rank *rank, struct lane *lane, unsigned int i, size_t size_bytes,
		      unsigned int window, unsigned int count)
{
	bool moved = false;

	if (lane->posted < count && lane->posted - lane->done < window) {
		void *request = post(rank, is_send(rank), i, size_bytes);

		if (request) {
			lane->requests[lane->posted++ % window] = request;
			moved = true;
		}
	}
	if (lane->done < lane->posted &&
	    poll_done(rank, lane->requests[lane->done % window], size_bytes)) {
		lane->done++;
		moved = true;
	}
	return moved;
}

uint64_t bench_stream(struct bench_rank *rank, size_t size_bytes, unsigned int comms,
		      unsigned int window, unsigned int count)
{
	struct lane lanes[BENCH_COMMS_MAX] = {0};
	unsigned int finished = 0;
	uint64_t start_ns;

	bench_sync(rank);
	start_ns = clock_mono_ns();
	while (finished < comms) {
		bool moved = false;

		finished = 0;
		for (unsigned int i = 0; i < comms; i++) {
			moved |= move_lane(rank, &lanes[i], i, size_bytes, window, count);
			finished += lanes[i].done == count;
		}
		if (!moved) {
			check_time(rank, start_ns, "a stream stands still");
		}
	}
	bench_sync(rank);
	return clock_mono_ns() - start_ns;
}
