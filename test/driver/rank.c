/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/rank.h"

#include "include/clock.h"
#include "test/driver/call.h"
#include "test/driver/check.h"
#include "test/driver/engine.h"
#include "test/driver/linkcut.h"
#include "test/driver/logger.h"
#include "test/driver/op.h"
#include "test/driver/setup.h"
#include "test/driver/worker.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/** A rank with its two threads. */
struct threads {
	struct rank *rank;
	struct worker service;
	struct worker progress;
	_Atomic int moved; /**< the iteration's data is all there, or it failed */
};

static int run_listen(void *arg)
{
	return setup_listen(arg);
}

static int run_connect(void *arg)
{
	return setup_connect(arg);
}

static int run_close(void *arg)
{
	return setup_close(arg);
}

static int run_engine(void *arg)
{
	struct threads *threads = arg;
	int err;

	threads->rank->report->start_ns = clock_mono_ns();
	err = engine_run(threads->rank);
	threads->rank->report->end_ns = clock_mono_ns();
	atomic_store_explicit(&threads->moved, 1, memory_order_release);
	return err;
}

static int run_churn(void *arg)
{
	struct threads *threads = arg;

	return setup_churn(threads->rank, &threads->moved);
}

static int service_call(struct threads *threads, int (*fn)(void *))
{
	worker_submit(&threads->service, fn, threads->rank);
	return worker_wait(&threads->service);
}

/** Load and init the plugin on the main thread, and look at its devices, as NCCL does. */
static int plugin_open(struct rank *rank)
{
	struct netapi_props props;
	int err = netapi_load(&rank->api, rank->opt->plugin, rank->opt->api);
	enum nccl_result result;

	if (err) {
		return err;
	}
	snprintf(rank->report->plugin_name, sizeof(rank->report->plugin_name), "%s",
		 rank->api.name);
	result = rank->api.ops->init(&rank->api, logger_write);
	if (result == NCCL_RESULT_SUCCESS) {
		result = rank->api.ops->devices(&rank->api, &rank->dev_count);
	}
	if (result != NCCL_RESULT_SUCCESS || rank->dev_count <= 0) {
		fprintf(stderr, "rank %d: init or devices returned %d, %d devices\n", rank->id,
			(int)result, rank->dev_count);
		return -ENODEV;
	}
	for (int dev = 0; dev < rank->dev_count; dev++) {
		result = rank->api.ops->properties(&rank->api, dev, &props);
		if (result != NCCL_RESULT_SUCCESS || !(props.ptr_support & NCCL_PTR_HOST) ||
		    props.device_type != NCCL_NET_DEVICE_HOST) {
			fprintf(stderr, "rank %d: device %d is not usable (result %d)\n", rank->id,
				dev, (int)result);
			return -ENODEV;
		}
	}
	rank->report->dev_count = rank->dev_count;
	if (rank->opt->dev >= rank->dev_count) {
		fprintf(stderr, "rank %d: --dev %d of %d devices\n", rank->id, rank->opt->dev,
			rank->dev_count);
		return -ENODEV;
	}
	return 0;
}

static void plugin_close(struct rank *rank)
{
	if (rank->dev_count) {
		enum nccl_result result = rank->api.ops->finalize(&rank->api);

		if (result != NCCL_RESULT_SUCCESS) {
			tally_add(&rank->report->tally, rank->id, TALLY_NET, 1,
				  "finalize returned %d", (int)result);
		}
	}
	netapi_unload(&rank->api);
}

static int iteration_move(struct threads *threads)
{
	struct rank *rank = threads->rank;

	atomic_store_explicit(&threads->moved, 0, memory_order_release);
	worker_submit(&threads->progress, run_engine, threads);
	if (rank->opt->reg_churn) {
		worker_submit(&threads->service, run_churn, threads);
		worker_wait(&threads->service);
	}
	return worker_wait(&threads->progress);
}

/** All iterations, from connecting to the last check before the connections are closed. */
static int iterations_run(struct threads *threads)
{
	struct rank *rank = threads->rank;
	_Atomic uint32_t *count = &rank->shared->iter_end;
	int err = 0;

	for (uint32_t iter = 0; !err && iter < atomic_load_explicit(count, memory_order_acquire);
	     iter++) {
		rank->job = job_at(rank->opt, iter);
		op_begin(rank);
		err = shared_gate_pass(rank->shared);
		if (!err) {
			err = iteration_move(threads);
		}
		if (!err && rank->opt->close_at_once &&
		    iter + 1 == atomic_load_explicit(count, memory_order_acquire)) {
			err = service_call(threads, run_close);
		}
		if (!err) {
			err = shared_gate_pass(rank->shared);
		}
		if (!err) {
			op_end(rank);
		}
	}
	return err;
}

/** The last look: nothing may be written once everything is closed. */
static void rank_look_back(struct rank *rank)
{
	struct timespec linger = {rank->opt->linger_ms / 1000,
				  (long)(rank->opt->linger_ms % 1000) * 1000000L};

	nanosleep(&linger, NULL);
	check_out_untouched(rank);
	for (uint32_t i = 0; i < rank->conn_count; i++) {
		check_conn(rank, &rank->conns[i]);
	}
}

static int rank_connected(struct threads *threads)
{
	struct rank *rank = threads->rank;
	int err = setup_plan(rank);

	if (!err) {
		err = service_call(threads, run_listen);
	}
	if (!err) {
		err = shared_gate_pass(rank->shared);
	}
	if (!err) {
		err = service_call(threads, run_connect);
	}
	if (!err) {
		err = shared_gate_pass(rank->shared);
	}
	if (!err) {
		err = iterations_run(threads);
	}
	/* Also after an error, as ncclCommAbort does it: with requests outstanding. */
	int close_err = service_call(threads, run_close);

	if (err == -ECONNABORTED) { /* the process lives on until the others were told */
		err = shared_gate_pass(rank->shared);
	}
	if (!err) {
		rank_look_back(rank);
		err = shared_gate_pass(rank->shared);
	}
	setup_free(rank);
	return err ? err : close_err;
}

static int rank_with_threads(struct rank *rank)
{
	struct threads threads = {.rank = rank};
	int err = worker_start(&threads.service, "service");

	if (err) {
		return err;
	}
	err = worker_start(&threads.progress, "progress");
	if (!err) {
		err = rank_connected(&threads);
		worker_stop(&threads.progress);
	}
	worker_stop(&threads.service);
	return err;
}

static int rank_with_buffers(struct rank *rank)
{
	uint64_t max_bytes = job_size_max(rank->opt);
	int err = guarded_create(&rank->in, max_bytes);

	if (!err) {
		err = guarded_create(&rank->out, max_bytes);
	}
	if (!err) {
		err = rank_with_threads(rank);
	}
	guarded_destroy(&rank->out);
	guarded_destroy(&rank->in);
	return err;
}

int rank_run(const struct options *opt)
{
	struct rank rank = {.id = opt->rank};
	struct linkcut *linkcut = NULL;
	int err = shared_map(&rank.shared, opt->shm_fd);

	if (err) {
		fprintf(stderr, "rank %d: no shared memory: %s\n", opt->rank, strerror(-err));
		return 3;
	}
	rank.opt = &rank.shared->opt;
	rank.report = &rank.shared->ranks[rank.id];
	logger_init(&rank.report->tally, rank.id);
	err = plugin_open(&rank);
	if (!err && rank.opt->train.armed) {
		err = linkcut_start(&linkcut, rank.shared, (uint32_t)rank.id);
	}
	if (!err) {
		err = rank_with_buffers(&rank);
	}
	linkcut_stop(linkcut);
	plugin_close(&rank);
	shared_unmap(rank.shared);
	if (err && err != -ECANCELED && err != -EREMOTEIO) {
		fprintf(stderr, "rank %d: %s\n", opt->rank, strerror(-err));
	}
	return err ? 3 : 0;
}
