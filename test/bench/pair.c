/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/bench/bench.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
	API_OLDEST = 8,
	API_NEWEST = 12,
	SPINS = 2000,
};

static void quiet_log(int level, unsigned long flags, const char *file, int line_no,
		      const char *fmt, ...)
{
	char line[2048];
	va_list args;

	(void)flags;
	if (level > 2 && !getenv("NCCL_DEBUG")) {
		return;
	}
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	if (!bench_repair_heard(line)) {
		fprintf(stderr, "%s:%d %s\n", file, line_no, line);
	}
}

_Noreturn void bench_die(struct bench_rank *rank, const char *what, int result)
{
	if (!atomic_exchange_explicit(&rank->shared->failed, 1, memory_order_acq_rel)) {
		fprintf(stderr, "net_bench: rank %d: %s (%d)\n", rank->id, what, result);
	}
	_exit(1);
}

void bench_sync(struct bench_rank *rank)
{
	static const struct timespec pause = {.tv_nsec = 50000};
	uint64_t end_ns = clock_mono_ns() + BENCH_WAIT_S * NS_PER_SEC;
	_Atomic uint32_t *other = &rank->shared->step[!rank->id];
	unsigned int spins = 0;

	rank->step++;
	atomic_store_explicit(&rank->shared->step[rank->id], rank->step, memory_order_release);
	while (atomic_load_explicit(other, memory_order_acquire) < rank->step) {
		if (atomic_load_explicit(&rank->shared->failed, memory_order_acquire)) {
			_exit(1);
		}
		if (spins++ < SPINS) {
			sched_yield();
			continue;
		}
		if (clock_mono_ns() > end_ns) {
			bench_die(rank, "the other rank did not come", (int)rank->step);
		}
		nanosleep(&pause, NULL);
	}
}

void bench_record(struct bench_rank *rank, enum bench_better better, const char *unit, double value,
		  const char *name, ...)
{
	struct bench_shared *shared = rank->shared;
	struct bench_metric *metric = &shared->metrics[shared->metric_count];
	va_list args;

	if (rank->id != 0) {
		return;
	}
	if (shared->metric_count >= BENCH_METRICS_MAX) {
		bench_die(rank, "too many metrics", BENCH_METRICS_MAX);
	}
	va_start(args, name);
	vsnprintf(metric->name, sizeof(metric->name), name, args);
	va_end(args);
	snprintf(metric->unit, sizeof(metric->unit), "%s", unit);
	metric->better = better;
	metric->value = value;
	shared->metric_count++;
}

/* NCCL takes the newest that it knows. */
static int newest_api(struct bench_rank *rank, const char *path)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	char symbol[32];
	int version = API_NEWEST;

	if (!lib) {
		fprintf(stderr, "%s\n", dlerror());
		bench_die(rank, "cannot load the plugin", 0);
	}
	for (; version >= API_OLDEST; version--) {
		snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", version);
		if (dlsym(lib, symbol)) {
			break;
		}
	}
	dlclose(lib);
	if (version < API_OLDEST) {
		bench_die(rank, "the plugin has no ncclNetPlugin_v8 or newer", 0);
	}
	return version;
}

/* What stands behind its file's name is for it alone. */
static const char *take_plugin(struct bench_rank *rank)
{
	char *spec = strdup(rank->opt->plugins[0]); /* putenv() keeps it */
	char *rest = spec;
	char *path = strsep(&rest, ",");

	while (rest) {
		if (putenv(strsep(&rest, ","))) {
			bench_die(rank, "no memory for a variable", 0);
		}
	}
	return path;
}

void bench_open(struct bench_rank *rank)
{
	const char *path = take_plugin(rank);
	int version = rank->opt->api ? (int)rank->opt->api : newest_api(rank, path);
	enum nccl_result result;

	if (netapi_load(&rank->api, path, version)) {
		bench_die(rank, "cannot load the plugin", version);
	}
	result = rank->api.ops->init(&rank->api, quiet_log);
	if (result == NCCL_RESULT_SUCCESS) {
		result = rank->api.ops->devices(&rank->api, &rank->dev_count);
	}
	if (result != NCCL_RESULT_SUCCESS || rank->dev_count < 1) {
		bench_die(rank, "init or devices", (int)result);
	}
	rank->buf_bytes = 64u << 20;
	rank->send_buf = mmap(NULL, rank->buf_bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	rank->recv_buf = mmap(NULL, rank->buf_bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (rank->send_buf == MAP_FAILED || rank->recv_buf == MAP_FAILED) {
		bench_die(rank, "no memory for buffers", 0);
	}
}

static void make_comms(struct bench_rank *rank, void *listen_comm, unsigned int i, int dev)
{
	unsigned char handle[NCCL_NET_HANDLE_BYTES];
	uint64_t end_ns = clock_mono_ns() + BENCH_WAIT_S * NS_PER_SEC;
	struct nccl_net_device_handle *dev_handle = NULL;
	enum nccl_result result = NCCL_RESULT_SUCCESS;

	memcpy(handle, rank->shared->handles[i][!rank->id], sizeof(handle));
	while (!rank->send_comms[i] || !rank->recv_comms[i]) {
		if (!rank->send_comms[i]) {
			result = rank->api.ops->connect(&rank->api, dev, handle,
							&rank->send_comms[i], &dev_handle);
		}
		if (!result && !rank->recv_comms[i]) {
			result = rank->api.ops->accept(&rank->api, listen_comm,
						       &rank->recv_comms[i], &dev_handle);
		}
		if (result != NCCL_RESULT_SUCCESS) {
			bench_die(rank, "connect or accept", (int)result);
		}
		if (clock_mono_ns() > end_ns) {
			bench_die(rank, "no connection in time", BENCH_WAIT_S);
		}
		sched_yield();
	}
}

uint64_t bench_connect(struct bench_rank *rank)
{
	unsigned int i = rank->comm_count++;
	/* A ring uses all devices; what is measured elsewhere is about one. */
	bool is_ring = rank->opt->mode == BENCH_RING || rank->opt->mode == BENCH_SLOW;
	int dev = is_ring ? (int)i % rank->dev_count : 0;
	void *listen_comm = NULL;
	enum nccl_result result;
	uint64_t start_ns;

	bench_sync(rank);
	start_ns = clock_mono_ns();
	result = rank->api.ops->listen(&rank->api, dev, rank->shared->handles[i][rank->id],
				       &listen_comm);
	if (result != NCCL_RESULT_SUCCESS) {
		bench_die(rank, "listen", (int)result);
	}
	bench_sync(rank);
	make_comms(rank, listen_comm, i, dev);
	rank->api.ops->close_listen(&rank->api, listen_comm);
	bench_sync(rank);
	return clock_mono_ns() - start_ns;
}

void bench_register(struct bench_rank *rank, unsigned int from)
{
	for (unsigned int i = from; i < rank->comm_count; i++) {
		enum nccl_result result =
			rank->api.ops->reg_mr(&rank->api, rank->send_comms[i], rank->send_buf,
					      rank->buf_bytes, &rank->send_mhs[i]);

		if (result == NCCL_RESULT_SUCCESS) {
			result = rank->api.ops->reg_mr(&rank->api, rank->recv_comms[i],
						       rank->recv_buf, rank->buf_bytes,
						       &rank->recv_mhs[i]);
		}
		if (result != NCCL_RESULT_SUCCESS) {
			bench_die(rank, "regMr", (int)result);
		}
	}
}

void bench_close(struct bench_rank *rank)
{
	for (unsigned int i = 0; i < rank->comm_count; i++) {
		rank->api.ops->dereg_mr(&rank->api, rank->send_comms[i], rank->send_mhs[i]);
		rank->api.ops->dereg_mr(&rank->api, rank->recv_comms[i], rank->recv_mhs[i]);
		rank->api.ops->close_send(&rank->api, rank->send_comms[i]);
		rank->api.ops->close_recv(&rank->api, rank->recv_comms[i]);
	}
	rank->api.ops->finalize(&rank->api);
	netapi_unload(&rank->api);
}
