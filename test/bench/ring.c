/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "include/limits.h"
#include "test/bench/bench.h"
#include "test/fabric/fabric_ctl.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * Both ranks send to and receive from each other over every connection at once, as two ranks of a
 * ring do, with the connections spread over the devices as NCCL spreads its channels. Where the
 * rails' rate is the limit, what counts is how evenly they are used.
 */

enum {
	WARM_MESSAGES = 8,
	SLOW_SIZE_BYTES = 512 << 10,
	SLOW_RATE_MBPS = 200,
	SLOW_WINDOW = 2,
	SLOW_SETTLE_ROUNDS = 60,
};

struct lane {
	bool sends;
	void *comm, *mh;
	void *requests[BENCH_WINDOW_MAX];
	unsigned int posted, done;
};

struct shape {
	size_t size_bytes;
	unsigned int window;
	unsigned int count;
};

static void post(struct bench_rank *rank, struct lane *lane, const struct shape *shape)
{
	void **request = &lane->requests[lane->posted % shape->window];
	enum nccl_result result =
		lane->sends ? rank->api.ops->isend(&rank->api, lane->comm, rank->send_buf,
						   shape->size_bytes, lane->mh, request)
			    : rank->api.ops->irecv(&rank->api, lane->comm, rank->recv_buf,
						   shape->size_bytes, lane->mh, request);

	if (result != NCCL_RESULT_SUCCESS) {
		bench_die(rank, lane->sends ? "isend" : "irecv", (int)result);
	}
	lane->posted += *request != NULL;
}

/* True when the lane has nothing left to do. */
static bool move(struct bench_rank *rank, struct lane *lane, const struct shape *shape)
{
	if (lane->posted < shape->count && lane->posted - lane->done < shape->window) {
		post(rank, lane, shape);
	}
	if (lane->done < lane->posted) {
		int size = -1, done = 0;
		enum nccl_result result = rank->api.ops->test(
			&rank->api, lane->requests[lane->done % shape->window], &done, &size);

		if (result != NCCL_RESULT_SUCCESS || (done && size != (int)shape->size_bytes)) {
			bench_die(rank, "test", (int)result);
		}
		lane->done += done != 0;
	}
	return lane->done == shape->count;
}

static uint64_t run(struct bench_rank *rank, struct shape shape)
{
	static struct lane lanes[2 * BENCH_COMMS_MAX];
	uint64_t start_ns;
	unsigned int left;

	for (unsigned int i = 0; i < rank->comm_count; i++) {
		lanes[2 * i] = (struct lane){
			.sends = true, .comm = rank->send_comms[i], .mh = rank->send_mhs[i]};
		lanes[2 * i + 1] =
			(struct lane){.comm = rank->recv_comms[i], .mh = rank->recv_mhs[i]};
	}
	bench_sync(rank);
	start_ns = clock_mono_ns();
	do {
		left = 0;
		for (unsigned int i = 0; i < 2 * rank->comm_count; i++) {
			left += !move(rank, &lanes[i], &shape);
		}
		if (clock_mono_ns() - start_ns > BENCH_WAIT_S * NS_PER_SEC) {
			bench_die(rank, "the ring stands still", BENCH_WAIT_S);
		}
		sched_yield();
	} while (left);
	bench_sync(rank);
	return clock_mono_ns() - start_ns;
}

/* What each rail of this host has sent so far. */
static void read_sent(struct bench_rank *rank, struct fabric_ctl *ctl, uint64_t *sent)
{
	for (int rail = 0; ctl && rail < rank->dev_count; rail++) {
		struct fabric_counters counters;

		if (fabric_ctl_counters(ctl, (uint32_t)rank->id, (uint32_t)rail, &counters)) {
			bench_die(rank, "no counters of a rail", rail);
		}
		sent[rail] = counters.tx_bytes - sent[rail];
	}
}

/* The busiest rail's part of what an even spread would give it, in percent. */
static double unevenness(const struct bench_rank *rank, const uint64_t *sent)
{
	uint64_t sum = 0, most = 0;

	for (int rail = 0; rail < rank->dev_count; rail++) {
		sum += sent[rail];
		most = sent[rail] > most ? sent[rail] : most;
	}
	return sum ? (double)most * rank->dev_count * 100 / (double)sum : 100;
}

static void measure(struct bench_rank *rank, struct fabric_ctl *ctl, struct shape shape)
{
	uint64_t sent[RAILS_MAX] = {0};
	unsigned int count = shape.count;
	double uneven;
	uint64_t ns;

	shape.count = WARM_MESSAGES;
	run(rank, shape);
	shape.count = count;
	read_sent(rank, ctl, sent);
	ns = run(rank, shape);
	read_sent(rank, ctl, sent);
	bench_record(rank, BENCH_MORE, "MB/s",
		     (double)rank->comm_count * count * (double)shape.size_bytes * 1e3 / (double)ns,
		     "ring, %zu KiB, %u in flight", shape.size_bytes >> 10, shape.window);
	if (!ctl) {
		return;
	}
	uneven = unevenness(rank, sent);
	bench_record(rank, BENCH_LESS, "% of even", uneven, "  its busiest rail");
	if (rank->id == 0 && rank->opt->most && uneven > rank->opt->most) {
		bench_die(rank, "a rail carries too much", (int)uneven);
	}
}

static struct fabric_ctl *begin(struct bench_rank *rank)
{
	struct fabric_ctl *ctl = NULL;

	bench_open(rank);
	while (rank->comm_count < rank->opt->comm_count) {
		bench_connect(rank);
	}
	bench_register(rank, 0);
	if (rank->opt->fabric_lib && fabric_ctl_open(getenv("FABRIC_DIR"), &ctl)) {
		bench_die(rank, "no fabric to look at", 0);
	}
	return ctl;
}

void bench_ring(struct bench_rank *rank)
{
	struct fabric_ctl *ctl = begin(rank);
	static const struct {
		unsigned int size_kib, window;
	} rows[] = {{128, 1}, {128, 2}, {128, 8}, {512, 1}, {512, 2}, {512, 8}, {4096, 2}};

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		unsigned int total_kib = (rank->opt->quick ? 16u : 512u) << 10;
		unsigned int count = total_kib / rows[i].size_kib / rank->comm_count;

		measure(rank, ctl,
			(struct shape){.size_bytes = (size_t)rows[i].size_kib << 10,
				       .window = rows[i].window,
				       .count = count ? count : 1});
	}
	fabric_ctl_close(ctl);
}

/* The last rail of host 0 from now on, in MB/s. */
static void set_rate(struct bench_rank *rank, struct fabric_ctl *ctl, unsigned int mbps)
{
	char rule[64];

	bench_sync(rank);
	if (rank->id == 0) {
		snprintf(rule, sizeof(rule), "rate host=0 rail=%d value=%u", rank->dev_count - 1,
			 mbps);
		if (fabric_ctl_fault(ctl, rule, NULL, NULL, 0)) {
			bench_die(rank, "the rate can't be set", (int)mbps);
		}
	}
	bench_sync(rank);
}

/* Messages as in a collective, that need each other: all comms send one, then the next. */
static uint64_t rounds(struct bench_rank *rank, unsigned int count)
{
	uint64_t start_ns = clock_mono_ns();

	for (unsigned int i = 0; i < count; i++) {
		run(rank, (struct shape){.size_bytes = SLOW_SIZE_BYTES,
					 .window = SLOW_WINDOW,
					 .count = SLOW_WINDOW});
	}
	return (clock_mono_ns() - start_ns) / count;
}

/*
 * One rail of one host at a tenth of its rate, and back: the time of a round, beside what the other
 * rails and the tenth would take if they were shared perfectly.
 */
void bench_slow(struct bench_rank *rank)
{
	struct fabric_ctl *ctl = begin(rank);
	unsigned int count = rank->opt->quick ? 20 : 60;
	unsigned int rails = (unsigned int)rank->dev_count;
	uint64_t healthy_ns, ns;

	if (!ctl || rails < 2) {
		bench_die(rank, "it takes a fabric of several rails", (int)rails);
	}
	rounds(rank, count);
	healthy_ns = rounds(rank, count);
	bench_record(rank, BENCH_LESS, "us", (double)healthy_ns / 1e3, "a round, healthy");
	set_rate(rank, ctl, SLOW_RATE_MBPS / 10);
	ns = rounds(rank, 1);
	bench_record(rank, BENCH_LESS, "x", (double)ns / (double)healthy_ns,
		     "first with a rail at 10 %%");
	rounds(rank, SLOW_SETTLE_ROUNDS);
	ns = rounds(rank, 2 * count);
	bench_record(rank, BENCH_LESS, "x", (double)ns / (double)healthy_ns, "then (perfect: %.2f)",
		     rails / (rails - 0.9));
	if (rank->id == 0 && rank->opt->most && ns * 100 > healthy_ns * rank->opt->most) {
		bench_die(rank, "the slow rail still sets the pace, percent of healthy",
			  (int)(ns * 100 / healthy_ns));
	}
	set_rate(rank, ctl, SLOW_RATE_MBPS);
	/* A second's worth; by the clock the ranks could disagree on how many that are. */
	rounds(rank, rails * SLOW_RATE_MBPS * 1000000u /
			     (rank->comm_count * SLOW_WINDOW * SLOW_SIZE_BYTES));
	ns = rounds(rank, count);
	bench_record(rank, BENCH_LESS, "x", (double)ns / (double)healthy_ns,
		     "a second after it is back");
	fabric_ctl_close(ctl);
}
