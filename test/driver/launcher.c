/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/launcher.h"

#include "include/clock.h"
#include "test/driver/run.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	END_WAIT_MS = 10000,   /**< for the ranks to close after the end or a failure */
	REMOTE_WAIT_MS = 10000 /**< for survivors of a kill; how long it took is judged later */
};

static volatile sig_atomic_t interrupted;

static void on_signal(int signal)
{
	(void)signal;
	interrupted = 1;
}

/**
 * Must this rank be told that the killed one is gone? Only if it waits for it: NCCL does not call
 * the plugin for what is finished.
 */
static bool is_bereft(const struct run *run, uint32_t rank)
{
	uint32_t open_peers =
		atomic_load_explicit(&run->shared->ranks[rank].open_peers, memory_order_acquire);

	return rank != run->opt->kill.rank && (open_peers >> run->opt->kill.rank & 1);
}

/** After a kill: have all ranks that wait for the dead one been told? */
static bool survivors_told(struct run *run)
{
	bool all = true;
	bool some = false;

	for (uint32_t rank = 0; rank < run->opt->rank_count; rank++) {
		struct rank_report *report = &run->shared->ranks[rank];
		uint64_t at_ns = atomic_load_explicit(&report->net_error_ns, memory_order_acquire);

		if (!is_bereft(run, rank)) {
			continue;
		}
		some = some || at_ns;
		if (!at_ns) {
			all = false;
		} else if (at_ns - run->killed.at_ns > run->remote_max_ns) {
			run->remote_max_ns = at_ns - run->killed.at_ns;
		}
	}
	return all && some;
}

static void ended_early(struct run *run, const char *where)
{
	char how[32];

	for (uint32_t rank = 0; rank < run->opt->rank_count; rank++) {
		if (!run->children.pids[rank]) {
			children_epitaph(&run->children, rank, how, sizeof(how));
			run_fail(run, "%s: rank %u ended early, %s", where, rank, how);
		}
	}
}

/** Something went wrong while the ranks were on their way to the gate? Then say so, stop them. */
static int wait_check(struct run *run, const char *where, uint64_t deadline_ns)
{
	uint32_t running = children_poll(&run->children);
	uint64_t errors = run_tally(run, TALLY_NET);
	bool late = clock_mono_ns() > deadline_ns;

	if (run->killed.done) {
		if (survivors_told(run)) {
			shared_stop(run->shared, STOP_QUIET);
			return -ECONNRESET;
		}
		late = clock_mono_ns() > run->killed.at_ns + REMOTE_WAIT_MS * NS_PER_MS;
		if (late) {
			run_fail(run, "a survivor was not told");
		}
	} else if (errors) {
		run_fail(run, "%s: the plugin returned an error", where);
		shared_stop(run->shared, STOP_QUIET);
		return -ECHILD;
	} else if (running < run->opt->rank_count) {
		ended_early(run, where);
		shared_stop(run->shared, STOP_QUIET);
		return -ECHILD;
	}
	if (interrupted || late) {
		run_fail(run, "%s: %s", where, interrupted ? "interrupted" : "no end in sight");
		shared_stop(run->shared, interrupted ? STOP_QUIET : STOP_DUMP);
		return -ETIMEDOUT;
	}
	return 0;
}

static uint32_t percent_moved(const struct run *run)
{
	uint64_t moved = 0;
	uint64_t total = 0;

	for (uint32_t rank = 0; rank < run->opt->rank_count; rank++) {
		struct rank_report *report = &run->shared->ranks[rank];

		moved += atomic_load_explicit(&report->moved, memory_order_acquire);
		total += atomic_load_explicit(&report->total, memory_order_acquire);
	}
	return total ? (uint32_t)(moved * 100 / total) : 0;
}

/** Wait until all ranks are at the gate; iter is the iteration that runs, or -1. */
static int gate_wait(struct run *run, const char *where, int64_t iter)
{
	uint64_t deadline_ns = clock_mono_ns() + run->opt->timeout_s * NS_PER_SEC;
	bool pending = iter >= 0 && trouble_pending(run, (uint32_t)iter);
	bool fast = false;

	while (!shared_gate_full(run->shared, fast || pending || run->train ? 1 : 20)) {
		fast = trouble_pause_tick(run);
		if (pending) {
			trouble_tick(run, (uint32_t)iter, percent_moved(run));
			pending = trouble_pending(run, (uint32_t)iter);
		}
		if (run->train) {
			train_tick(run->train);
		}
		int err = wait_check(run, where, deadline_ns);

		if (err) {
			return err;
		}
	}
	return 0;
}

static int setup_phases(struct run *run)
{
	int err = gate_wait(run, "listen", -1);

	if (err) {
		return err;
	}
	shared_gate_open(run->shared);
	err = gate_wait(run, "connect", -1);
	if (err) {
		return err;
	}
	shared_gate_open(run->shared);
	return 0;
}

static void iteration_times(struct run *run, struct iter_record *record)
{
	uint64_t end_ns = 0;

	record->start_ns = UINT64_MAX;
	for (uint32_t rank = 0; rank < run->opt->rank_count; rank++) {
		const struct rank_report *report = &run->shared->ranks[rank];

		if (report->start_ns < record->start_ns) {
			record->start_ns = report->start_ns;
		}
		if (report->end_ns > end_ns) {
			end_ns = report->end_ns;
		}
	}
	record->time_ns = end_ns - record->start_ns;
	record->done = true;
}

/** What a train does between two iterations. */
static int train_before(struct run *run, uint32_t iter)
{
	if (!run->train) {
		return 0;
	}
	train_step(run->train);
	if (run->failure[0]) {
		shared_stop(run->shared, STOP_QUIET);
		return -EPROTO;
	}
	if (train_is_over(run->train)) {
		atomic_store_explicit(&run->shared->iter_end, iter + 1, memory_order_release);
	}
	return 0;
}

static int iteration_run(struct run *run, uint32_t iter)
{
	char text[64];
	int err = gate_wait(run, "prepare", -1);

	if (err) {
		return err;
	}
	record_finish(run);
	record_base(run);
	struct iter_record *record = &run->records[iter];

	record->job = job_at(run->opt, iter);
	run->record_count = iter + 1;
	trouble_tick(run, iter, 0);
	err = train_before(run, iter);
	if (err) {
		return err;
	}
	snprintf(text, sizeof(text), "start %u %s %s %llu", iter, op_name(record->job.op),
		 proto_name(record->job.proto), (unsigned long long)record->job.size_bytes);
	sampler_mark(run->sampler, clock_mono_ns(), text);
	shared_gate_open(run->shared);
	snprintf(text, sizeof(text), "iteration %u", iter);
	err = gate_wait(run, text, iter);
	if (err) {
		return err;
	}
	iteration_times(run, record);
	snprintf(text, sizeof(text), "end %u", iter);
	sampler_mark(run->sampler, clock_mono_ns(), text);
	shared_gate_open(run->shared);
	return 0;
}

/** A pause that outlived its iteration must still end. */
static void stopped_continue(struct run *run)
{
	if (run->stopped.done && !run->continued.done) {
		children_signal(&run->children, run->opt->stop.rank, SIGCONT);
		run->continued.done = true;
	}
}

static void phases_run(struct run *run)
{
	_Atomic uint32_t *count = &run->shared->iter_end;
	int err = setup_phases(run);

	for (uint32_t iter = 0; !err && iter < atomic_load_explicit(count, memory_order_relaxed);
	     iter++) {
		err = iteration_run(run, iter);
	}
	if (!err && run->train) {
		train_on_close(run->train);
	}
	if (!err) {
		err = gate_wait(run, "close", -1);
	}
	record_finish(run);
	if (!err) {
		shared_gate_open(run->shared);
	}
	stopped_continue(run);
	if (run->train) {
		train_on_end(run->train);
	}
	children_finish(&run->children, END_WAIT_MS);
	/* Findings of the ranks' very last checks, and what the fabric has to say. */
	record_finish(run);
	if (run->rails) {
		run->fired_count = rails_fired_list(run->rails, run->fired, RAILS_FIRED_MAX);
	}
	for (uint32_t i = 0; i < run->fired_count; i++) {
		sampler_mark(run->sampler, run->fired[i].at_ns, run->fired[i].rule);
	}
}

static void verdict_ok(struct run *run)
{
	char how[32];

	for (uint32_t rank = 0; rank < run->opt->rank_count; rank++) {
		if (!children_clean(&run->children, rank)) {
			children_epitaph(&run->children, rank, how, sizeof(how));
			run_fail(run, "rank %u did not end cleanly: %s", rank, how);
		}
	}
	if (run_failures(run)) {
		run_fail(run, "checks failed");
	}
	if (run->opt->expect == EXPECT_CALM && run->events.fault_count) {
		run_fail(run, "a path was failed over");
	}
	if (run->opt->stop.armed && !run->stopped.done) {
		run_fail(run, "the run was over before the pause");
	}
}

static void verdict_remote(struct run *run)
{
	uint64_t failures = run_failures(run);

	if (!run->killed.done) {
		run_fail(run, "the run was over before the kill");
	}
	if (!survivors_told(run)) {
		run_fail(run, "a survivor was not told");
	} else if (run->remote_max_ns > run->opt->expect_ms * NS_PER_MS) {
		run_fail(run, "the last survivor was told after %llu ms",
			 (unsigned long long)(run->remote_max_ns / NS_PER_MS));
	}
	for (uint32_t rank = 0; rank < run->opt->rank_count; rank++) {
		int error = atomic_load_explicit(&run->shared->ranks[rank].net_error,
						 memory_order_acquire);

		if (is_bereft(run, rank) && error != NCCL_RESULT_REMOTE) {
			run_fail(run, "rank %u was told %d, not ncclRemoteError", rank, error);
		}
	}
	if (failures > run_tally(run, TALLY_NET)) {
		run_fail(run, "checks failed");
	}
}

static void verdict(struct run *run)
{
	if (run->opt->expect == EXPECT_REMOTE) {
		verdict_remote(run);
	} else {
		verdict_ok(run);
	}
	for (uint32_t i = 0; i < run->opt->fault_count; i++) {
		if (!run->faults[i].done) {
			run_fail(run, "fault '%s' was never installed", run->opt->faults[i].rule);
		}
	}
	for (uint32_t i = 0; i < run->opt->command_count; i++) {
		if (!run->commands[i].done) {
			run_fail(run, "command '%s' never ran", run->opt->commands[i].text);
		}
	}
	run->passed = !run->failure[0];
}

static int dir_create(struct run *run)
{
	const char *tmp = getenv("TMPDIR");
	char path[PATH_MAX];

	snprintf(run->dir, sizeof(run->dir), "%s/braid_driver.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(run->dir)) {
		return -errno;
	}
	snprintf(path, sizeof(path), "%s/fabric", run->dir);
	snprintf(run->events.dir, sizeof(run->events.dir), "%s", run->dir);
	return mkdir(path, 0700) < 0 ? -errno : 0;
}

static int entry_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void dir_destroy(const struct run *run)
{
	if (run->opt->keep) {
		fprintf(stderr, "driver: kept %s\n", run->dir);
	} else if (run->dir[0]) {
		nftw(run->dir, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
	}
}

/** Everything that exists before the ranks do. */
static int run_open(struct run *run)
{
	const struct options *opt = run->opt;
	char fabric_dir[PATH_MAX];
	int err = dir_create(run);

	if (!err) {
		err = shared_create(&run->shared, &run->shm_fd);
	}
	if (err) {
		return err;
	}
	run->shared->opt = *opt;
	atomic_init(&run->shared->iter_end, job_count(opt));
	run->records = calloc(job_count(opt) + 1, sizeof(*run->records));
	if (!run->records) {
		return -ENOMEM;
	}
	if (opt->fabric_lib[0]) {
		snprintf(fabric_dir, sizeof(fabric_dir), "%s/fabric", run->dir);
		err = rails_open(&run->rails, fabric_dir);
	}
	if (!err && opt->train.armed) {
		err = train_create(&run->train, run);
	}
	if (!err && opt->samples[0]) {
		err = run->rails ? sampler_start(&run->sampler, opt->samples, run->rails, opt)
				 : -EINVAL;
	}
	return err;
}

static void run_close(struct run *run)
{
	sampler_stop(run->sampler);
	train_destroy(run->train);
	rails_close(run->rails);
	dir_destroy(run);
	free(run->records);
	shared_unmap(run->shared);
	if (run->shm_fd >= 0) {
		close(run->shm_fd);
	}
}

static int run_report(struct run *run)
{
	verdict(run);
	if (run->train) {
		train_finish(run->train);
	}
	if (run->opt->brief) {
		report_brief(run);
	} else {
		report_verdict(run);
	}
	if (run->opt->json[0]) {
		int err = report_json(run, run->opt->json);

		if (err) {
			fprintf(stderr, "driver: %s: %s\n", run->opt->json, strerror(-err));
			return 1;
		}
	}
	return run->passed ? 0 : 1;
}

int launcher_run(const struct options *opt)
{
	struct run run = {.opt = opt, .shm_fd = -1};
	struct sigaction action = {.sa_handler = on_signal};
	int status = 1;
	int err;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN); /* a reader that leaves must not leave the run's folder behind */
	setvbuf(stdout, NULL, _IOLBF, 0);
	err = run_open(&run);
	if (!err) {
		report_header(&run);
		err = children_start(&run.children, opt, run.dir, run.shm_fd);
	}
	if (err) {
		fprintf(stderr, "driver: cannot start: %s\n", strerror(-err));
		if (run.shared) {
			shared_stop(run.shared, STOP_QUIET);
		}
		children_finish(&run.children, END_WAIT_MS);
	} else {
		phases_run(&run);
		status = run_report(&run);
	}
	run_close(&run);
	return status;
}
