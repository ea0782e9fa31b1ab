/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/gpu.h"
#include "test/nccl/matrix/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_AT_ONCE 4

static void result_clear(struct rank *rank)
{
	rank->mine->elements = 0;
	rank->mine->wrong = 0;
}

/* The communicators of a list, for an operation on all of them at once. */
static int find_comms(struct rank *rank, const struct plan_line *line, struct comm **comms,
		      unsigned *count)
{
	char name[COMM_NAME_LEN];
	int rc;

	for (*count = 0; (rc = plan_item(line->name, *count, name, sizeof(name))) == 0;
	     (*count)++) {
		if (*count == MAX_AT_ONCE || (comms[*count] = comm_find(rank, name)) == NULL) {
			return -EINVAL;
		}
	}
	return rc == -ENOENT ? 0 : rc;
}

static int round_of(struct rank *rank, struct comm **comms, unsigned count, const struct op *op)
{
	struct op_run runs[MAX_AT_ONCE];
	int rc = 0;

	if (count == 1) {
		return op_round(rank, comms[0], op);
	}
	for (unsigned i = 0; rc == 0 && i < count; i++) {
		rc = op_prepare(rank, comms[i], op, &runs[i]);
		rank->salt++;
	}
	rc = rc == 0 ? rank_sync(rank) : rc;
	rank->mine->begin_ns = shared_now_ns();
	for (unsigned i = 0; rc == 0 && i < count; i++) {
		rc = op_launch(rank, &runs[i]);
	}
	for (unsigned i = 0; rc == 0 && i < count; i++) {
		rc = op_wait(rank, &runs[i]);
	}
	rank->mine->end_ns = shared_now_ns();
	for (unsigned i = 0; rc == 0 && i < count; i++) {
		rc = op_check(rank, &runs[i]);
	}
	return rc;
}

static int fewest_ranks(struct comm **comms, unsigned count)
{
	int fewest = comms[0]->rank_count;

	for (unsigned i = 1; i < count; i++) {
		fewest = comms[i]->rank_count < fewest ? comms[i]->rank_count : fewest;
	}
	return fewest;
}

int verb_op(struct rank *rank, const struct plan_line *line)
{
	struct comm *comms[MAX_AT_ONCE];
	struct report_sum sum;
	uint64_t iters;
	unsigned count;
	struct op op;
	int rc = find_comms(rank, line, comms, &count);

	rc = rc == 0 ? plan_number(line, "iters", 1, &iters) : rc;
	for (unsigned i = 0; rc == 0; i++) {
		rc = op_pick(line, fewest_ranks(comms, count), i, &op);
		if (rc != 0) {
			break;
		}
		result_clear(rank);
		for (uint64_t k = 0; rc == 0 && k < iters; k++) {
			rc = round_of(rank, comms, count, &op);
		}
		rc = rc == 0 ? rank_sync(rank) : rc;
		if (rc == 0 && rank->rank == 0) {
			report_sum(rank->shared, -1, &sum);
			report_begin(rank, &op);
			report_number("iters", iters);
			report_number("elements", sum.elements);
			report_number("wrong", sum.wrong);
			report_number("us", sum.took_ns / 1000);
			report_end();
			rc = report_verdict(rank, sum.wrong, true);
		}
		rc = rc == 0 ? rank_sync(rank) : rc;
	}
	return rc == -ENOENT ? 0 : rc;
}

/* `count` calls in a row, one wait. */
static int burst(struct rank *rank, struct op_run *run, uint64_t count)
{
	int rc = rank_sync(rank);

	rank->mine->begin_ns = shared_now_ns();
	for (uint64_t i = 0; rc == 0 && i < count; i++) {
		rc = op_launch(rank, run);
	}
	rc = rc == 0 ? op_wait(rank, run) : rc;
	rank->mine->end_ns = shared_now_ns();
	return rc;
}

static int bench_one(struct rank *rank, struct comm *comm, const struct op *op, uint64_t warm,
		     uint64_t iters)
{
	struct op_run run;
	struct report_sum sum;
	int rc = op_prepare(rank, comm, op, &run);

	rank->salt++;
	result_clear(rank);
	rc = rc == 0 ? burst(rank, &run, warm) : rc;
	rc = rc == 0 ? burst(rank, &run, iters) : rc;
	rc = rc == 0 ? op_check(rank, &run) : rc;
	rc = rc == 0 ? rank_sync(rank) : rc;
	if (rc == 0 && rank->rank == 0) {
		report_sum(rank->shared, -1, &sum);
		report_begin(rank, op);
		report_number("iters", iters);
		report_number("elements", sum.elements);
		report_number("wrong", sum.wrong);
		report_number("ns_each", sum.took_ns / iters);
		report_end();
		rc = report_verdict(rank, sum.wrong, true);
	}
	return rc == 0 ? rank_sync(rank) : rc;
}

int verb_bench(struct rank *rank, const struct plan_line *line)
{
	struct comm *comm = comm_find(rank, line->name);
	uint64_t warm;
	uint64_t iters;
	struct op op;

	if (comm == NULL || plan_number(line, "iters", 20, &iters) != 0 || iters == 0 ||
	    plan_number(line, "warm", 2, &warm) != 0) {
		return -EINVAL;
	}
	for (unsigned i = 0;; i++) {
		int rc = op_pick(line, comm->rank_count, i, &op);

		if (rc != 0) {
			return rc == -ENOENT ? 0 : rc;
		}
		rc = bench_one(rank, comm, &op, warm, iters);
		if (rc != 0) {
			return rc;
		}
	}
}
