/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/gpu.h"
#include "test/nccl/matrix/report.h"

#include <errno.h>
#include <stdio.h>

/* A rank that is paused or killed, and a communicator that is given up, in the middle of
 * collectives. */

#define MAX_RULES      8
#define ORDER_DELAY_NS 20000000
#define SURVIVORS_MS   30000

struct trouble {
	struct comm *comm;
	struct op op;
	struct op_run run;
	uint64_t target; /* rank */
	uint64_t iters;
};

static int trouble_begin(struct rank *rank, const struct plan_line *line, struct trouble *trouble)
{
	trouble->comm = comm_find(rank, line->name);
	if (trouble->comm == NULL || plan_number(line, "rank", 1, &trouble->target) != 0 ||
	    plan_number(line, "iters", 1, &trouble->iters) != 0 || trouble->iters == 0) {
		return -EINVAL;
	}
	if (trouble->target == 0 || trouble->target >= (uint64_t)trouble->comm->rank_count) {
		fprintf(stderr,
			"nccl_matrix: plan line %u: rank 0 gives the orders; name another\n",
			line->number);
		return -EINVAL;
	}
	rank->mine->elements = 0;
	rank->mine->wrong = 0;
	int rc = op_pick(line, trouble->comm->rank_count, 0, &trouble->op);

	return rc == -ENOENT ? -EINVAL : rc;
}

/* All ranks start `iters` calls; rank 0 then gives the launcher its order. */
static int launch_and_order(struct rank *rank, struct trouble *trouble, enum shared_order order,
			    uint64_t ms)
{
	int rc = op_prepare(rank, trouble->comm, &trouble->op, &trouble->run);

	rank->salt++;
	rc = rc == 0 ? rank_sync(rank) : rc;
	rank->mine->begin_ns = shared_now_ns();
	if (rc == 0 && rank->rank == 0 && order != ORDER_NONE) {
		/* Ahead of the calls: NCCL may wait inside one. */
		rank->shared->order_rank = (int)trouble->target;
		rank->shared->order_ms = (uint32_t)ms;
		rank->shared->order_at_ns = shared_now_ns() + ORDER_DELAY_NS;
		atomic_store_explicit(&rank->shared->order, (int)order, memory_order_release);
	}
	for (uint64_t i = 0; rc == 0 && i < trouble->iters; i++) {
		rc = op_launch(rank, &trouble->run);
	}
	return rc;
}

int verb_pause(struct rank *rank, const struct plan_line *line)
{
	const struct shared *shared = rank->shared;
	struct trouble trouble = {.iters = 1};
	struct report_sum sum;
	uint64_t ms;
	int rc = trouble_begin(rank, line, &trouble);

	rc = rc == 0 ? plan_number(line, "ms", 800, &ms) : rc;
	rc = rc == 0 ? launch_and_order(rank, &trouble, ORDER_PAUSE, ms) : rc;
	rc = rc == 0 ? op_wait(rank, &trouble.run) : rc;
	rank->mine->end_ns = shared_now_ns();
	rc = rc == 0 ? op_check(rank, &trouble.run) : rc;
	rc = rc == 0 ? rank_sync(rank) : rc;
	if (rc == 0 && rank->rank == 0) {
		report_sum(shared, -1, &sum);
		bool was_running =
			shared->order_begin_ns > sum.begin_ns && shared->order_end_ns < sum.end_ns;

		report_begin(rank, &trouble.op);
		report_number("ms", ms);
		report_number("elements", sum.elements);
		report_number("wrong", sum.wrong);
		report_number("us", sum.took_ns / 1000);
		report_number("stop_ns", shared->order_begin_ns);
		report_number("cont_ns", shared->order_end_ns);
		report_number("running", was_running ? 1 : 0);
		report_end();
		rc = report_verdict(rank, sum.wrong, was_running);
	}
	return rc == 0 ? rank_sync(rank) : rc;
}

/* Rank 0: waits until every other survivor has said what it saw. */
static int wait_survivors(struct rank *rank, int dead)
{
	struct shared *shared = rank->shared;
	uint64_t deadline_ns = shared_now_ns() + (uint64_t)SURVIVORS_MS * 1000000;

	for (int r = 1; r < shared->rank_count; r++) {
		while (r != dead && atomic_load_explicit(&shared->results[r].is_done,
							 memory_order_acquire) == 0) {
			if (shared_now_ns() > deadline_ns) {
				return -ETIMEDOUT;
			}
			shared_nap();
		}
	}
	return 0;
}

static int kill_report(struct rank *rank, const struct trouble *trouble)
{
	const struct shared *shared = rank->shared;
	int dead = (int)trouble->target;
	int rc = wait_survivors(rank, dead);
	bool is_ok = rc == 0;

	report_begin(rank, &trouble->op);
	report_number("killed", trouble->target);
	printf(",\"survivors\":[");
	for (int r = 0; r < shared->rank_count; r++) {
		const struct shared_result *result = &shared->results[r];

		if (r == dead) {
			continue;
		}
		is_ok = is_ok && result->error == NCCL_REMOTE;
		printf("%s{\"rank\":%d,\"error\":\"%s\",\"notice_ms\":%.1f,\"abort_ms\":%.1f}",
		       r > 0 ? "," : "", r, nccl_result_name(result->error),
		       (double)((int64_t)result->error_ns - (int64_t)shared->order_begin_ns) / 1e6,
		       (double)result->abort_ns / 1e6);
	}
	printf("]");
	report_end();
	return report_verdict(rank, 0, is_ok);
}

/* The last step of its plan: a communicator with a dead member can only be aborted. */
int verb_kill(struct rank *rank, const struct plan_line *line)
{
	struct trouble trouble = {.iters = 1};
	int rc = trouble_begin(rank, line, &trouble);

	rc = rc == 0 ? launch_and_order(rank, &trouble, ORDER_KILL, 0) : rc;
	if (rc == 0) {
		rc = op_wait(rank, &trouble.run);
	}
	if (rc == 0) {
		fprintf(stderr, "nccl_matrix: rank %d: the collective ended before the kill\n",
			rank->rank);
		return -EPROTO;
	}
	if (rc != -EIO) {
		return rc;
	}
	rc = comm_abort(rank, trouble.comm);
	for (unsigned i = 0; rc == 0 && i < RANK_MAX_COMMS; i++) {
		if (rank->comms[i].name[0] != '\0') {
			rc = comm_abort(rank, &rank->comms[i]);
		}
	}
	atomic_store_explicit(&rank->mine->is_done, 1, memory_order_release);
	return rc == 0 && rank->rank == 0 ? kill_report(rank, &trouble) : rc;
}

/* Rank 0: all rules fired, and a while more. */
static int wait_fired(struct rank *rank, const uint32_t *idxs, unsigned count, uint64_t hold_ms)
{
	for (unsigned i = 0; i < count; i++) {
		if (fabric_ctl_wait_fired(rank->fabric, idxs[i], 10000, NULL) != 0) {
			fprintf(stderr, "nccl_matrix: plan line %u: a rule never fired\n",
				rank->line->number);
			return -ETIMEDOUT;
		}
	}
	uint64_t until_ns = shared_now_ns() + hold_ms * 1000000;

	while (shared_now_ns() < until_ns) {
		shared_nap();
	}
	return 0;
}

static void abort_report(struct rank *rank, const struct trouble *trouble)
{
	const struct shared *shared = rank->shared;
	uint64_t slowest_ns = 0;

	for (int r = 0; r < shared->rank_count; r++) {
		slowest_ns = shared->results[r].abort_ns > slowest_ns ? shared->results[r].abort_ns
								      : slowest_ns;
	}
	report_begin(rank, &trouble->op);
	report_number("abort_ms", slowest_ns / 1000000);
	report_end();
}

int verb_abort(struct rank *rank, const struct plan_line *line)
{
	struct trouble trouble = {.iters = 1};
	uint32_t idxs[MAX_RULES];
	unsigned count = 0;
	uint64_t hold_ms;
	int rc = trouble_begin(rank, line, &trouble);

	rc = rc == 0 ? plan_number(line, "hold_ms", 300, &hold_ms) : rc;
	if (rc == 0 && rank->rank == 0) {
		rc = rules_install(rank, plan_text(line, "rule", ""), idxs, &count);
	}
	rc = rc == 0 ? launch_and_order(rank, &trouble, ORDER_NONE, 0) : rc;
	if (rc == 0 && rank->rank == 0) {
		rc = wait_fired(rank, idxs, count, hold_ms);
	}
	rc = rc == 0 ? rank_sync(rank) : rc;
	if (rc == 0 && gpu_stream_poll(trouble.comm->stream) != -EAGAIN) {
		fprintf(stderr, "nccl_matrix: rank %d: nothing was running to be aborted\n",
			rank->rank);
		rc = -EPROTO;
	}
	rc = rc == 0 ? comm_abort(rank, trouble.comm) : rc;
	rc = rc == 0 ? rank_sync(rank) : rc;
	if (rc == 0 && rank->rank == 0) {
		abort_report(rank, &trouble);
		rc = rules_install(rank, plan_text(line, "heal", ""), idxs, &count);
	}
	return rc == 0 ? rank_sync(rank) : rc;
}
