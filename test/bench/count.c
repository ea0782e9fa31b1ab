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
	REST_MS = 15,
};

/** One scenario; `counted` is what this pass counts. */
struct scene {
	struct bench_rank *rank;
	size_t size_bytes;
	unsigned int burst;
	enum count_kind counted;
	bool is_warm;
	unsigned int extra;
	void *requests[BENCH_WINDOW_MAX];
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
					      scene->size_bytes, rank->recv_mhs[0], &request);
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

static void post_all(struct scene *scene, enum count_kind kind)
{
	for (unsigned int i = 0; i < scene->burst; i++) {
		while (!(scene->requests[i] = post(scene, kind))) {
			scene->extra += scene->is_warm && scene->counted == kind;
			rest();
		}
	}
}

/* In order, as NCCL tests: up to the first that is not done. */
static void test_some(struct scene *scene, enum count_kind kind, unsigned int *done)
{
	while (*done < scene->burst) {
		if (!test_one(scene, kind, scene->requests[*done])) {
			scene->extra += scene->is_warm && scene->counted == kind;
			break;
		}
		(*done)++;
	}
}

/* Rank 1 receives, rank 0 sends; only one of them is ever at work. */
static void run_burst(struct scene *scene)
{
	struct bench_rank *rank = scene->rank;
	bool sends = rank->id == 0;
	unsigned int done = 0;

	for (int turn = 0; turn < 2; turn++) {
		if (sends == (turn == 1)) {
			post_all(scene, sends ? COUNT_ISEND : COUNT_IRECV);
		}
		bench_sync(rank);
		rest();
	}
	/* A message larger than the window needs the sender in between. */
	for (bool all = false; !all;) {
		for (int turn = 0; turn < 2; turn++) {
			if (sends == (turn == 1)) {
				test_some(scene, sends ? COUNT_TEST_SEND : COUNT_TEST_RECV, &done);
				atomic_store_explicit(&rank->shared->done[rank->id], done,
						      memory_order_relaxed);
			}
			bench_sync(rank);
			rest();
		}
		all = atomic_load_explicit(&rank->shared->done[0], memory_order_relaxed) +
			      atomic_load_explicit(&rank->shared->done[1], memory_order_relaxed) ==
		      2 * scene->burst;
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

static void run_scene(struct bench_rank *rank, size_t size_bytes, unsigned int burst,
		      enum count_kind counted)
{
	bool sends = counted == COUNT_ISEND || counted == COUNT_TEST_SEND;
	struct scene scene = {
		.rank = rank, .size_bytes = size_bytes, .burst = burst, .counted = counted};

	for (unsigned int i = 0; i < WARM_BURSTS; i++) {
		run_burst(&scene);
	}
	CALLGRIND_ZERO_STATS;
	scene.is_warm = true;
	for (unsigned int i = 0; i < COUNT_MESSAGES / burst; i++) {
		run_burst(&scene);
	}
	if (sends == (rank->id == 0)) {
		dump(&scene);
	}
	bench_sync(rank);
}

/* Rank 0 has no clear-to-send entry; then rank 1 waits for a message that is not sent yet. */
static void run_empty(struct bench_rank *rank)
{
	struct scene scene = {.rank = rank,
			      .size_bytes = 8,
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
		scene.requests[0] = post(&scene, COUNT_IRECV);
		if (!scene.requests[0]) {
			bench_die(rank, "no request", 0);
		}
		rest();
		CALLGRIND_ZERO_STATS;
		for (unsigned int i = 0; i < COUNT_MESSAGES; i++) {
			if (test_one(&scene, COUNT_EMPTY_TEST, scene.requests[0])) {
				bench_die(rank, "a message that was not sent", 0);
			}
		}
	}
	dump(&scene);
	bench_sync(rank);
	if (rank->id == 0) {
		post_all(&scene, COUNT_ISEND);
	}
	for (unsigned int done = 0; done < 1; rest()) {
		test_some(&scene, rank->id ? COUNT_TEST_RECV : COUNT_TEST_SEND, &done);
	}
	bench_sync(rank);
}

void bench_count(struct bench_rank *rank)
{
	bench_connect(rank);
	bench_register(rank, 0);
	for (int s = 0; s < count_size_count(rank->opt); s++) {
		for (int b = 0; b < count_burst_count(rank->opt); b++) {
			for (int kind = 0; kind <= COUNT_TEST_SEND; kind++) {
				run_scene(rank, count_sizes[s], count_bursts[b],
					  (enum count_kind)kind);
			}
		}
	}
	run_empty(rank);
}
