/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/bench/bench.h"

#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* One port fails under many connections that all have something under way: how long until every
 * path on it was fenced at both ends and the rest handed over. */

enum {
	SIZE_BYTES = 256 << 10,
	HEAD_START_MS = 5, /* of the traffic */
};

extern char **environ;

static _Atomic unsigned int down_count;
static _Atomic uint64_t last_down_ns;

bool bench_repair_heard(const char *line)
{
	if (strstr(line, "path_down")) {
		atomic_store_explicit(&last_down_ns, clock_mono_ns(), memory_order_relaxed);
		atomic_fetch_add_explicit(&down_count, 1, memory_order_release);
	}
	return strstr(line, "path_") != NULL;
}

static void *post(struct bench_rank *rank, unsigned int i)
{
	bool sends = rank->id == 0;
	void *request = NULL;
	enum nccl_result result =
		sends ? rank->api.ops->isend(&rank->api, rank->send_comms[i], rank->send_buf,
					     SIZE_BYTES, rank->send_mhs[i], &request)
		      : rank->api.ops->irecv(&rank->api, rank->recv_comms[i], rank->recv_buf,
					     SIZE_BYTES, rank->recv_mhs[i], &request);

	if (result != NCCL_RESULT_SUCCESS) {
		bench_die(rank, "isend or irecv", (int)result);
	}
	return request;
}

/* Each connection once round: post what is not, test what is. True when all are done. */
static bool move_all(struct bench_rank *rank, void **requests, bool *done)
{
	unsigned int left = 0;

	for (unsigned int i = 0; i < rank->comm_count; i++) {
		int is_done = 0, size;

		if (!requests[i]) {
			requests[i] = post(rank, i);
		} else if (!done[i]) {
			enum nccl_result result =
				rank->api.ops->test(&rank->api, requests[i], &is_done, &size);

			if (result != NCCL_RESULT_SUCCESS) {
				bench_die(rank, "test", (int)result);
			}
			done[i] = is_done != 0;
		}
		left += !done[i];
	}
	return left == 0;
}

static pid_t start_fault(struct bench_rank *rank)
{
	char path[4200];
	char *dir = getenv("FABRIC_DIR");
	char fault[] = "fault", option[] = "--dir", rule[] = "port_down host=0 rail=0";
	char *argv[] = {path, option, dir, fault, rule, NULL};
	pid_t pid;

	snprintf(path, sizeof(path), "%s/fabricctl", rank->opt->fabric_lib);
	if (!dir || posix_spawn(&pid, path, NULL, NULL, argv, environ)) {
		bench_die(rank, "cannot run fabricctl", 0);
	}
	return pid;
}

void bench_repair(struct bench_rank *rank)
{
	static void *requests[BENCH_COMMS_MAX];
	static bool done[BENCH_COMMS_MAX];
	uint64_t start_ns, fault_ns = 0, done_ns = 0;
	pid_t ctl = 0;

	bench_open(rank);
	while (rank->comm_count < rank->opt->comm_count) {
		bench_connect(rank);
	}
	bench_register(rank, 0);
	bench_sync(rank);
	start_ns = clock_mono_ns();
	/* Both directions of every connection have a path on that rail: two lines each. */
	while (!done_ns ||
	       atomic_load_explicit(&down_count, memory_order_acquire) < 2 * rank->comm_count) {
		uint64_t now_ns = clock_mono_ns();

		if (!done_ns && move_all(rank, requests, done)) {
			done_ns = clock_mono_ns();
		}
		if (!ctl && rank->id == 0 && now_ns - start_ns >= HEAD_START_MS * NS_PER_MS) {
			fault_ns = clock_mono_ns();
			ctl = start_fault(rank);
		}
		if (now_ns - start_ns > BENCH_WAIT_S * NS_PER_SEC) {
			bench_die(rank, "not repaired in time", (int)down_count);
		}
		sched_yield();
	}
	if (ctl && waitpid(ctl, NULL, 0) != ctl) {
		bench_die(rank, "fabricctl", 0);
	}
	bench_record(
		rank, BENCH_LESS, "ms",
		(double)(atomic_load_explicit(&last_down_ns, memory_order_relaxed) - fault_ns) /
			1e6,
		"port down to all replayed, %u comms", rank->comm_count);
	bench_record(rank, BENCH_LESS, "ms", (double)(done_ns - start_ns) / 1e6,
		     "all messages done, %u comms", rank->comm_count);
	bench_sync(rank);
}
