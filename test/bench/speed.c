/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/bench/bench.h"

#include <time.h>

/* Latency, rate and bandwidth, set-up and memory of a few connections. */

enum {
	QUICK_SHIFT = 4,
};

static void run_latency(struct bench_rank *rank)
{
	static const unsigned int sizes[] = {8, 1024, 8192, 65536};

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		unsigned int count = 8000 >> (rank->opt->quick ? QUICK_SHIFT : 0);
		uint64_t start_ns;

		bench_ping_pong(rank, sizes[i], 100);
		bench_sync(rank);
		start_ns = clock_mono_ns();
		bench_ping_pong(rank, sizes[i], count);
		bench_record(rank, BENCH_LESS, "us",
			     (double)(clock_mono_ns() - start_ns) / 2000.0 / count,
			     "latency one way, %u B", sizes[i]);
		bench_sync(rank);
	}
}

static void run_rate(struct bench_rank *rank, unsigned int comms)
{
	static const unsigned int windows[] = {1, 2, 4, 8, 16, 32};
	unsigned int count = 16000 >> (rank->opt->quick ? QUICK_SHIFT : 0);

	count /= comms;
	for (unsigned int i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
		unsigned int messages = windows[i] == 1 ? count / 4 : count;
		uint64_t ns;

		if (comms > 1 && windows[i] != 8) {
			continue;
		}
		ns = bench_stream(rank, 8, comms, windows[i], messages);
		bench_record(rank, BENCH_MORE, "1000/s",
			     (double)comms * messages * 1e6 / (double)ns,
			     "8 B messages, %u in flight, %u comm%s", windows[i], comms,
			     comms > 1 ? "s" : "");
	}
}

static void run_bandwidth(struct bench_rank *rank, unsigned int comms)
{
	static const unsigned int sizes[] = {64u << 10, 1u << 20, 8u << 20};

	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t total = (2048ull << 20) >> (rank->opt->quick ? QUICK_SHIFT : 0);
		unsigned int count;
		uint64_t ns;

		total = total < (uint64_t)sizes[i] * 8000 ? total : (uint64_t)sizes[i] * 8000;
		count = (unsigned int)(total / sizes[i] / comms);
		count = count ? count : 1;
		if (comms > 1 && sizes[i] != 1u << 20) {
			continue;
		}
		bench_stream(rank, sizes[i], comms, 8, 8);
		ns = bench_stream(rank, sizes[i], comms, 8, count);
		bench_record(rank, BENCH_MORE, "MB/s",
			     (double)comms * count * sizes[i] * 1e3 / (double)ns,
			     "bandwidth %u KiB, 8 in flight, %u comm%s", sizes[i] >> 10, comms,
			     comms > 1 ? "s" : "");
	}
}

static void record_usage(struct bench_rank *rank, const char *what, const struct bench_usage *from,
			 const struct bench_usage *to, double parts)
{
	const struct {
		const char *name, *unit;
		double value;
	} rows[] = {
		{"RSS", "KiB", to->rss_kib - from->rss_kib},
		{"PSS", "KiB", to->pss_kib - from->pss_kib},
		{"PSS, heap", "KiB", to->anon_kib - from->anon_kib},
		{"descriptors", "", to->fds - from->fds},
		{"threads", "", to->threads - from->threads},
		{"QPs", "", to->qps - from->qps},
		{"MRs", "", to->mrs - from->mrs},
	};

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		bench_record(rank, BENCH_NEITHER, rows[i].unit, rows[i].value / parts, "%s, %s",
			     what, rows[i].name);
	}
}

double bench_wakes(struct bench_rank *rank, const char *when)
{
	uint64_t before;
	double rate;
	time_t seconds = rank->opt->quick ? 1 : 2;
	struct timespec pause = {.tv_sec = seconds};

	bench_sync(rank);
	before = bench_wakeups();
	nanosleep(&pause, NULL);
	rate = (double)(bench_wakeups() - before) / (double)seconds;
	bench_record(rank, BENCH_NEITHER, "1/s", rate, "wakeups idle, %s", when);
	bench_sync(rank);
	return rate;
}

/* All in one process pair: connections first, so that their cost is not hidden by the traffic. */
void bench_speed(struct bench_rank *rank)
{
	struct bench_usage bare, open, first, all;
	uint64_t more_ns = 0;
	uint64_t first_ns;

	bench_usage_read(rank, &bare);
	bench_open(rank);
	bench_usage_read(rank, &open);
	first_ns = bench_connect(rank);
	bench_usage_read(rank, &first);
	bench_wakes(rank, "1 comm each way");
	for (unsigned int i = 1; i < rank->opt->comm_count; i++) {
		more_ns += bench_connect(rank);
	}
	bench_usage_read(rank, &all);
	bench_wakes(rank, "all comms");
	bench_register(rank, 0);
	run_latency(rank);
	run_rate(rank, 1);
	run_rate(rank, rank->opt->comm_count);
	run_bandwidth(rank, 1);
	run_bandwidth(rank, rank->opt->comm_count);
	bench_record(rank, BENCH_LESS, "ms", (double)first_ns / 1e6, "set-up, first each way");
	bench_record(rank, BENCH_LESS, "ms", (double)more_ns / 1e6 / (rank->opt->comm_count - 1),
		     "set-up, one more each way");
	record_usage(rank, "process", &bare, &open, 1);
	record_usage(rank, "first peer", &open, &first, 1);
	record_usage(rank, "comm each way", &first, &all, rank->opt->comm_count - 1);
}
