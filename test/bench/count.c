/* SPDX-License-Identifier: Apache-2.0 */
#include "test/bench/count.h"

#include "test/bench/bench.h"

#include <stdio.h>
#include <time.h>
#include <valgrind/callgrind.h>

/* The side that runs under callgrind. */

const unsigned int count_bursts[COUNT_BURSTS] = {1, 16};
const unsigned int count_sizes[COUNT_SIZES] = {8, 1u << 20};
const char *const count_kind_names[COUNT_KIND_COUNT] = {
	[COUNT_IRECV] = "irecv",
	[COUNT_ISEND] = "isend",
	[COUNT_TEST_RECV] = "test-recv",
	[COUNT_TEST_SEND] = "test-send",
	[COUNT_EMPTY_ISEND] = "empty-isend",
	[COUNT_EMPTY_TEST] = "empty-test",
};

enum {
	WARM_BURSTS = 4,
	WARM_MESSAGES = 2000, /* in a stream, before anything is counted */
	REST_MS = 15,
};

/** Both ends of the connection over all scenarios: receives are posted ahead, as in a stream. */
struct lane {
	void *requests[BENCH_WINDOW_MAX]; /* by index modulo that */
	unsigned int posted, done;
};

/** One scenario; `counted` is what this pass counts. */
struct scene {
	struct bench_rank *rank;
	struct lane *lane;
	size_t size_bytes;
	unsigned int burst;
	unsigned int ahead; /* receives to be posted when a burst is over */
	enum count_kind counted;
	bool is_warm;
	unsigned int extra;
};

static void rest(void)
{
	static const struct timespec pause = {.tv_nsec = REST_MS * 1000000};

	nanosleep(&pause, NULL);
}

/* Toggling is per thread: the engine's and the plugin's own threads never count. */
static void toggle(const struct scene *scene, enum count_kind kind)
{
	if (scene->is_warm && scene->counted == kind) {
		CALLGRIND_TOGGLE_COLLECT;
	}
}

static void *post(struct scene *scene, enum count_kind kind)
{
	struct bench_rank *rank = scene->rank;
	bool sends = kind == COUNT_ISEND || kind == COUNT_EMPTY_ISEND;
	enum nccl_result result;
	void *request = NULL;

	toggle(scene, kind);
	if (sends) {
		result = rank->api.ops->isend(&rank->api, rank->send_comms[0], rank->send_buf,
					      scene->size_bytes, rank->send_mhs[0], &request);
	} else {
		result = rank->api.ops->irecv(&rank->api, rank->recv_comms[0], rank->recv_buf,
					      count_sizes[COUNT_SIZES - 1], rank->recv_mhs[0],
					      &request);
	}
	toggle(scene, kind);
	if (result != NCCL_RESULT_SUCCESS) {
		bench_die(rank, sends ? "isend" : "irecv", (int)result);
	}
	return request;
}

static bool test_one(struct scene *scene, enum count_kind kind, void *request)
{
	struct bench_rank *rank = scene->rank;
	enum nccl_result result;
	int size = -1;
	int done = 0;

	toggle(scene, kind);
	result = rank->api.ops->test(&rank->api, request, &done, &size);
	toggle(scene, kind);
	if (result != NCCL_RESULT_SUCCESS || (done && size != (int)scene->size_bytes)) {
		bench_die(rank, "test", (int)result);
	}
	return done != 0;
}

/* Until `count` are under way. */
static void post_all(struct scene *scene, enum count_kind kind, unsigned int count)
{
	struct lane *lane = scene->lane;

	while (lane->posted - lane->done < count) {
		void *request = post(scene, kind);

		if (request) {
			lane->requests[lane->posted++ % BENCH_WINDOW_MAX] = request;
		} else {
			scene->extra += scene->is_warm && scene->counted == kind;
			rest();
		}
	}
}

/* In order, as NCCL tests: up to the first that is not done. False: not all up to `end` are. */
static bool test_some(struct scene *scene, enum count_kind kind, unsigned int end)
{
	struct lane *lane = scene->lane;

	while (lane->done != end) {
		if (!test_one(scene, kind, lane->requests[lane->done % BENCH_WINDOW_MAX])) {
			scene->extra += scene->is_warm && scene->counted == kind;
			return false;
		}
		lane->done++;
	}
	return true;
}

/*
 * Rank 1 receives, rank 0 sends; only one of them is ever at work. A receive that is done makes
 * room for the next at once: its clear-to-send entry is what a sender's test may wait for.
 */
static void run_burst(struct scene *scene)
{
	struct bench_rank *rank = scene->rank;
	struct lane *lane = scene->lane;
	bool sends = rank->id == 0;
	unsigned int end = lane->done + scene->burst;

	if (sends) {
		post_all(scene, COUNT_ISEND, scene->burst);
	}
	bench_sync(rank);
	rest();
	/* A message larger than the window needs the sender in between. */
	for (bool all = false; !all;) {
		for (int turn = 0; turn < 2; turn++) {
			if (sends == (turn == 1)) {
				bool done = test_some(
					scene, sends ? COUNT_TEST_SEND : COUNT_TEST_RECV, end);

				if (done && !sends) {
					post_all(scene, COUNT_IRECV, scene->ahead);
				}
				atomic_store_explicit(&rank->shared->done[rank->id], done,
						      memory_order_relaxed);
			}
			bench_sync(rank);
			rest();
		}
		all = atomic_load_explicit(&rank->shared->done[0], memory_order_relaxed) &&
		      atomic_load_explicit(&rank->shared->done[1], memory_order_relaxed);
		bench_sync(rank);
	}
}

static void dump(const struct scene *scene)
{
	char label[64];

	snprintf(label, sizeof(label), "%s/%zu/%u/%u;", count_kind_names[scene->counted],
		 scene->size_bytes, scene->burst, scene->extra);
	CALLGRIND_DUMP_STATS_AT(label);
}

/* Leaves `ahead` receives posted, for the next one. */
static void run_scene(struct scene *scene, unsigned int ahead)
{
	struct bench_rank *rank = scene->rank;
	bool sends = scene->counted == COUNT_ISEND || scene->counted == COUNT_TEST_SEND;

	scene->ahead = scene->burst;
	for (unsigned int i = 0; i < WARM_BURSTS; i++) {
		run_burst(scene);
	}
	CALLGRIND_ZERO_STATS;
	scene->is_warm = true;
	for (unsigned int i = 0; i < COUNT_MESSAGES / scene->burst; i++) {
		run_burst(scene);
	}
	if (sends == (rank->id == 0)) {
		dump(scene);
	}
	scene->is_warm = false;
	scene->ahead = ahead;
	run_burst(scene);
}

/* Rank 0 has no clear-to-send entry; then rank 1 waits for a message that is not sent yet. */
static void run_empty(struct bench_rank *rank, struct lane *lane)
{
	struct scene scene = {.rank = rank,
			      .lane = lane,
			      .size_bytes = count_sizes[0],
			      .burst = 1,
			      .counted = rank->id ? COUNT_EMPTY_TEST : COUNT_EMPTY_ISEND,
			      .is_warm = true};

	bench_sync(rank);
	rest();
	CALLGRIND_ZERO_STATS;
	for (unsigned int i = 0; rank->id == 0 && i < COUNT_MESSAGES; i++) {
		if (post(&scene, COUNT_EMPTY_ISEND)) {
			bench_die(rank, "a send without a receive", 0);
		}
	}
	bench_sync(rank);
	if (rank->id == 1) {
		post_all(&scene, COUNT_IRECV, 1);
		rest();
		CALLGRIND_ZERO_STATS;
		for (unsigned int i = 0; i < COUNT_MESSAGES; i++) {
			if (test_one(&scene, COUNT_EMPTY_TEST,
				     lane->requests[lane->done % BENCH_WINDOW_MAX])) {
				bench_die(rank, "a message that was not sent", 0);
			}
		}
	}
	dump(&scene);
	bench_sync(rank);
	run_burst(&scene);
}

void bench_count(struct bench_rank *rank)
{
	int bursts = count_burst_count(rank->opt);
	int scenes = count_size_count(rank->opt) * bursts * (COUNT_TEST_SEND + 1);
	struct lane lane = {0};

	bench_connect(rank);
	bench_register(rank, 0);
	bench_stream(rank, count_sizes[0], 1, 1, WARM_MESSAGES);
	for (int i = 0; i < scenes; i++) {
		struct scene scene = {.rank = rank,
				      .lane = &lane,
				      .size_bytes = count_sizes[i / (COUNT_TEST_SEND + 1) / bursts],
				      .burst = count_bursts[i / (COUNT_TEST_SEND + 1) % bursts],
				      .counted = (enum count_kind)(i % (COUNT_TEST_SEND + 1))};
		unsigned int next_burst = count_bursts[(i + 1) / (COUNT_TEST_SEND + 1) % bursts];

		if (i == 0 && rank->id == 1) {
			post_all(&scene, COUNT_IRECV, scene.burst);
		}
		run_scene(&scene, i + 1 < scenes ? next_burst : 0);
	}
	run_empty(rank, &lane);
}
