/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/bench/bench.h"

#include <stdio.h>
#include <time.h>

/* What more connections and more rails cost, and what nothing at all costs. */

enum {
	MESSAGES = 16000,
	QUICK_MESSAGES = 1000,
	IN_FLIGHT = 16,
	WAKES_MOST = 5, /* a second, with every connection idle */
};

static double cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

/* 8 bytes round robin over the connections, about as many in flight whatever their number. */
static void measure_messages(struct bench_rank *rank, unsigned int comms, const char *what)
{
	unsigned int window = IN_FLIGHT / comms ? IN_FLIGHT / comms : 1;
	unsigned int count = (rank->opt->quick ? QUICK_MESSAGES : MESSAGES) / comms;
	double start_us, used_us;
	uint64_t ns;

	count = count ? count : 1;
	bench_stream(rank, 8, comms, window, count / 4 + 1);
	start_us = cpu_us();
	ns = bench_stream(rank, 8, comms, window, count);
	used_us = cpu_us() - start_us;
	bench_record(rank, BENCH_LESS, "us", (double)ns / 1e3 / comms / count, "8 B message, %s",
		     what);
	bench_record(rank, BENCH_LESS, "us", used_us / comms / count,
		     "8 B message, sender's CPU, %s", what);
}

void bench_growth(struct bench_rank *rank)
{
	static const unsigned int steps[] = {1, 10, 100, BENCH_GROWTH_COMMS};

	bench_open(rank);
	for (unsigned int s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
		unsigned int from = rank->comm_count;
		struct bench_usage before, after;
		char what[BENCH_NAME_MAX];
		uint64_t ns = 0;

		bench_usage_read(rank, &before);
		while (rank->comm_count < steps[s]) {
			ns += bench_connect(rank);
		}
		bench_usage_read(rank, &after);
		bench_register(rank, from);
		snprintf(what, sizeof(what), "comms: %u", steps[s]);
		bench_record(rank, BENCH_LESS, "ms", (double)ns / 1e6 / (steps[s] - from),
			     "set-up, one more each way, %s", what);
		bench_record(rank, BENCH_NEITHER, "KiB",
			     (after.anon_kib - before.anon_kib) / (steps[s] - from),
			     "heap, one more each way, %s", what);
		measure_messages(rank, steps[s], what);
	}
}

void bench_rails(struct bench_rank *rank)
{
	struct bench_usage before, after;
	uint64_t ns;

	bench_open(rank);
	bench_connect(rank); /* the first brings the threads and the link */
	bench_usage_read(rank, &before);
	ns = bench_connect(rank);
	bench_usage_read(rank, &after);
	bench_register(rank, 0);
	bench_record(rank, BENCH_LESS, "ms", (double)ns / 1e6, "set-up, one more each way");
	bench_record(rank, BENCH_NEITHER, "KiB", (after.anon_kib - before.anon_kib) / 2,
		     "heap of one comm");
	bench_record(rank, BENCH_NEITHER, "", (after.qps - before.qps) / 2, "QPs of one comm");
	bench_record(rank, BENCH_NEITHER, "", (after.mrs - before.mrs) / 2, "MRs of one comm");
	measure_messages(rank, 1, "1 comm");
}

void bench_idle(struct bench_rank *rank)
{
	/* What looks after a stream may go on for a moment. */
	static const struct timespec pause = {.tv_nsec = 500000000};
	double rate;

	bench_open(rank);
	while (rank->comm_count < rank->opt->comm_count) {
		bench_connect(rank);
	}
	bench_register(rank, 0);
	measure_messages(rank, rank->comm_count, "before");
	nanosleep(&pause, NULL);
	rate = bench_wakes(rank, "all comms");
	if (rate > WAKES_MOST) {
		bench_die(rank, "too many wakeups a second", (int)rate);
	}
}
