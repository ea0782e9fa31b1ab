/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/bench/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* The process under test: what it costs to have so many peers. */

enum {
	AT_ONCE = 16, /* connections under way, as NCCL has some */
	NOTHING_MOVED_NS = 100000,
	LAND_NS = 5000000, /* what is under way with a sleeping peer lands meanwhile */
	BURST_PEERS = 64,  /* with fewer of them, several messages to each */
	ROUNDS = 31,
	ROUNDS_LEAST = 5,
	LINKS = 2, /* with a peer: one for each direction of connecting */
	IDLE_S = 2,
	WAKES_MOST = 5, /* a second */
	OPEN_WAIT_S = 120,
};

struct lane {
	void *listen_comm, *send_comm, *recv_comm, *send_mh, *recv_mh;
	void *requests[PEERS_BURST_MAX];
	bool ordered; /* its peer was told to connect */
};

struct under_test {
	struct bench_rank rank;
	struct peers_shared *shared;
	struct lane *lanes;
	unsigned int count; /* connected */
};

static void moved_nothing(struct under_test *test, uint64_t end_ns, const char *what)
{
	static const struct timespec pause = {.tv_nsec = NOTHING_MOVED_NS};

	if (atomic_load_explicit(&test->shared->bench->failed, memory_order_acquire)) {
		_exit(1);
	}
	if (clock_mono_ns() > end_ns) {
		bench_die(&test->rank, what, (int)test->count);
	}
	nanosleep(&pause, NULL);
}

static void peers_open(struct under_test *test, unsigned int count)
{
	uint64_t end_ns = clock_mono_ns() + OPEN_WAIT_S * NS_PER_SEC;

	atomic_store_explicit(&test->shared->wanted, count, memory_order_release);
	peers_word_wake(&test->shared->wanted);
	while (atomic_load_explicit(&test->shared->open, memory_order_acquire) < count) {
		moved_nothing(test, end_ns, "not all peers came up in time");
	}
}

/* One more step for the connection each way with one peer. True when it is made at both ends. */
static bool lane_step(struct under_test *test, unsigned int i)
{
	struct peer_seat *seat = &test->shared->seats[i];
	struct bench_rank *rank = &test->rank;
	struct lane *lane = &test->lanes[i];
	struct nccl_net_device_handle *dev = NULL;
	enum nccl_result result = NCCL_RESULT_SUCCESS;

	if (!lane->ordered) {
		result =
			rank->api.ops->listen(&rank->api, 0, seat->test_handle, &lane->listen_comm);
		lane->ordered = true;
		peer_order_give(seat, PEER_CONNECT);
	}
	if (!result && !lane->send_comm &&
	    atomic_load_explicit(&seat->listens, memory_order_acquire)) {
		result =
			rank->api.ops->connect(&rank->api, 0, seat->handle, &lane->send_comm, &dev);
	}
	if (!result && !lane->recv_comm) {
		result = rank->api.ops->accept(&rank->api, lane->listen_comm, &lane->recv_comm,
					       &dev);
	}
	if (!result && lane->send_comm && lane->recv_comm && lane->listen_comm) {
		result = rank->api.ops->close_listen(&rank->api, lane->listen_comm);
		lane->listen_comm = NULL;
	}
	if (result) {
		bench_die(rank, "listen, connect or accept", (int)result);
	}
	return lane->send_comm && lane->recv_comm &&
	       atomic_load_explicit(&seat->done, memory_order_acquire) ==
		       atomic_load_explicit(&seat->order, memory_order_relaxed);
}

static void lanes_connect(struct under_test *test, unsigned int count)
{
	uint64_t end_ns = clock_mono_ns() + OPEN_WAIT_S * NS_PER_SEC;
	bool *made = calloc(count, sizeof(*made));

	while (made && test->count < count) {
		unsigned int end = test->count + AT_ONCE < count ? test->count + AT_ONCE : count;
		bool moved = false;

		for (unsigned int i = test->count; i < end; i++) {
			made[i] = made[i] || lane_step(test, i);
		}
		while (test->count < end && made[test->count]) {
			test->count++;
			moved = true;
		}
		if (!moved) {
			moved_nothing(test, end_ns, "no connection in time");
		}
	}
	free(made);
}

static void lanes_register(struct under_test *test, unsigned int from)
{
	struct bench_rank *rank = &test->rank;

	for (unsigned int i = from; i < test->count; i++) {
		struct lane *lane = &test->lanes[i];

		if (rank->api.ops->reg_mr(&rank->api, lane->send_comm, rank->send_buf, 4096,
					  &lane->send_mh) ||
		    rank->api.ops->reg_mr(&rank->api, lane->recv_comm, rank->recv_buf, 4096,
					  &lane->recv_mh)) {
			bench_die(rank, "regMr", (int)i);
		}
	}
}

static double thread_cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static double process_cpu_ms(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e3 +
	       (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e3;
}

static void land(void)
{
	static const struct timespec pause = {.tv_nsec = LAND_NS};

	nanosleep(&pause, NULL);
}

/* What is measured: so many messages to each of the first so many peers. */
struct burst {
	unsigned int peers, each;
};

/* Sends them; all peers have said that they wait. Returns the CPU time. */
static double send_all(struct under_test *test, const struct burst *burst, uint64_t end_ns)
{
	struct bench_rank *rank = &test->rank;
	double start_us = thread_cpu_us();

	for (unsigned int i = 0; i < burst->peers * burst->each; i++) {
		struct lane *lane = &test->lanes[i % burst->peers];
		void **request = &lane->requests[i / burst->peers];

		*request = NULL;
		while (!*request) {
			if (rank->api.ops->isend(&rank->api, lane->send_comm, rank->send_buf,
						 PEERS_SIZE_BYTES, lane->send_mh, request)) {
				bench_die(rank, "isend", (int)i);
			}
			if (!*request) {
				moved_nothing(test, end_ns, "no clear-to-send in time");
			}
		}
	}
	return thread_cpu_us() - start_us;
}

static double test_all(struct under_test *test, const struct burst *burst, uint64_t end_ns)
{
	struct bench_rank *rank = &test->rank;
	double start_us = thread_cpu_us();

	for (unsigned int i = 0; i < burst->peers * burst->each; i++) {
		struct lane *lane = &test->lanes[i % burst->peers];
		int done = 0;
		int size;

		while (!done) {
			if (rank->api.ops->test(&rank->api, lane->requests[i / burst->peers], &done,
						&size)) {
				bench_die(rank, "test", (int)i);
			}
			if (!done) {
				moved_nothing(test, end_ns, "a message stands still");
			}
		}
	}
	return thread_cpu_us() - start_us;
}

/* Each step only when the one before has landed everywhere: what is counted is the calls' own work.
 * Microseconds of CPU per message. */
static double message_round(struct under_test *test, const struct burst *burst)
{
	uint64_t end_ns = clock_mono_ns() + BENCH_WAIT_S * NS_PER_SEC;
	double used_us;

	for (unsigned int i = 0; i < burst->peers; i++) {
		test->shared->seats[i].messages = burst->each;
		peer_order_give(&test->shared->seats[i], PEER_RECEIVE);
	}
	for (unsigned int i = 0; i < burst->peers; i++) {
		struct peer_seat *seat = &test->shared->seats[i];

		while (atomic_load_explicit(&seat->posted, memory_order_acquire) !=
		       atomic_load_explicit(&seat->order, memory_order_relaxed)) {
			moved_nothing(test, end_ns, "a peer does not receive");
		}
	}
	land();
	used_us = send_all(test, burst, end_ns);
	for (unsigned int i = 0; i < burst->peers; i++) {
		struct peer_seat *seat = &test->shared->seats[i];

		while (atomic_load_explicit(&seat->done, memory_order_acquire) !=
		       atomic_load_explicit(&seat->order, memory_order_relaxed)) {
			moved_nothing(test, end_ns, "a peer has not received");
		}
	}
	land();
	used_us += test_all(test, burst, end_ns);
	return used_us / (burst->peers * burst->each);
}

static int rising(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* The median of some rounds. */
static double message_us(struct under_test *test, unsigned int peers)
{
	const struct burst burst = {peers, peers < BURST_PEERS ? PEERS_BURST_MAX : 1};
	unsigned int rounds = peers < BURST_PEERS && !test->rank.opt->quick ? ROUNDS : ROUNDS_LEAST;
	double used_us[ROUNDS];

	message_round(test, &burst);
	for (unsigned int r = 0; r < rounds; r++) {
		used_us[r] = message_round(test, &burst);
	}
	qsort(used_us, rounds, sizeof(used_us[0]), rising);
	return used_us[rounds / 2];
}

static double wakes(void)
{
	static const struct timespec pause = {.tv_sec = IDLE_S};
	uint64_t before;

	sleep(1); /* what the traffic started comes to rest */
	before = bench_wakeups();
	nanosleep(&pause, NULL);
	return (double)(bench_wakeups() - before) / IDLE_S;
}

static void step(struct under_test *test, unsigned int count)
{
	struct bench_rank *rank = &test->rank;
	unsigned int from = test->count;
	double more = count - from;
	struct bench_usage before, after;
	double cpu_ms, rate;
	uint64_t ns;

	peers_open(test, count);
	bench_usage_now(&before);
	cpu_ms = process_cpu_ms();
	ns = clock_mono_ns();
	lanes_connect(test, count);
	ns = clock_mono_ns() - ns;
	cpu_ms = process_cpu_ms() - cpu_ms;
	bench_usage_now(&after);
	lanes_register(test, from);
	bench_record(rank, BENCH_LESS, "ms", (double)ns / 1e6 / more, "set-up, %u peers", count);
	bench_record(rank, BENCH_LESS, "ms", cpu_ms / more, "set-up, CPU, %u peers", count);
	bench_record(rank, BENCH_NEITHER, "KiB", (after.anon_kib - before.anon_kib) / more,
		     "heap of one more, %u peers", count);
	bench_record(rank, BENCH_NEITHER, "KiB", (after.rss_kib - before.rss_kib) / more,
		     "RSS of one more, %u peers", count);
	bench_record(rank, BENCH_NEITHER, "", (after.fds - before.fds) / more,
		     "descriptors of one more, %u peers", count);
	bench_record(rank, BENCH_NEITHER, "", after.threads, "threads, %u peers", count);
	rate = wakes();
	bench_record(rank, BENCH_LESS, "1/s", rate, "wakeups idle, %u peers", count);
	bench_record(rank, BENCH_LESS, "us", message_us(test, 1), "8 B to one, CPU, %u peers",
		     count);
	bench_record(rank, BENCH_LESS, "us", message_us(test, count), "8 B to each, CPU, %u peers",
		     count);
	if (rate > WAKES_MOST) {
		bench_die(rank, "too many wakeups a second", (int)rate);
	}
	/* The first brings the threads and what they wait on. */
	if (from > 0 &&
	    (after.threads != before.threads || after.fds - before.fds > LINKS * more)) {
		bench_die(rank, "more threads, or more descriptors than links", (int)after.fds);
	}
}

static void leave(struct under_test *test)
{
	struct bench_rank *rank = &test->rank;
	uint64_t start_ns = clock_mono_ns();

	for (unsigned int i = 0; i < test->count; i++) {
		struct lane *lane = &test->lanes[i];

		rank->api.ops->dereg_mr(&rank->api, lane->send_comm, lane->send_mh);
		rank->api.ops->dereg_mr(&rank->api, lane->recv_comm, lane->recv_mh);
		rank->api.ops->close_send(&rank->api, lane->send_comm);
		rank->api.ops->close_recv(&rank->api, lane->recv_comm);
	}
	rank->api.ops->finalize(&rank->api);
	bench_record(rank, BENCH_LESS, "ms",
		     (double)(clock_mono_ns() - start_ns) / 1e6 / test->count,
		     "closing one, %u peers", test->count);
	for (unsigned int i = 0; i < test->count; i++) {
		peer_order_give(&test->shared->seats[i], PEER_LEAVE);
	}
	netapi_unload(&rank->api);
}

_Noreturn void peers_test_main(const struct bench_options *opt, struct peers_shared *shared)
{
	static struct under_test test;
	unsigned int most = opt->peer_steps[opt->peer_step_count - 1];

	test = (struct under_test){.rank = {.opt = opt, .shared = shared->bench}, .shared = shared};
	setenv("FABRIC_HOST", "0", 1);
	bench_open(&test.rank);
	test.lanes = calloc(most, sizeof(*test.lanes));
	if (!test.lanes) {
		bench_die(&test.rank, "no memory", 0);
	}
	for (unsigned int s = 0; s < opt->peer_step_count; s++) {
		step(&test, opt->peer_steps[s]);
	}
	leave(&test);
	_exit(0);
}
