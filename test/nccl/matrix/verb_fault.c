/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/*
 * A fault in the middle of collectives: some before it, then the rules, then collectives until each
 * rule has fired, some after it; then it is mended and collectives go on until the rail carries its
 * share again. Every one of them is checked.
 */

#define MAX_RULES    8
#define MAX_RAILS    16
#define BEFORE_COUNT 2
#define BACK_MS      15000

struct fault {
	struct comm *comm;
	struct op op;
	uint32_t idxs[MAX_RULES];
	unsigned rule_count;
	struct fabric_fired fired[MAX_RULES];
	bool has_fired[MAX_RULES];
	bool was_running[MAX_RULES]; /* all ranks had begun and not all were done */
	uint64_t elements;
	uint64_t wrong;
	uint64_t iters;
	uint64_t healthy_ns; /* the quickest before */
	uint64_t hit_ns;     /* the slowest one in which a rule fired, or the one behind it */
	uint64_t after_ns;   /* the last after the fault */
	uint64_t back_ms;
	bool is_back;
};

/* One checked collective; sums on rank 0. The results stay as they are until the next barrier. */
static int iterate(struct rank *rank, struct fault *fault, struct report_sum *sum)
{
	rank->mine->elements = 0;
	rank->mine->wrong = 0;
	int rc = op_round(rank, fault->comm, &fault->op);

	rc = rc == 0 ? rank_sync(rank) : rc;
	if (rc == 0) {
		report_sum(rank->shared, -1, sum);
		fault->elements += sum->elements;
		fault->wrong += sum->wrong;
		fault->iters++;
		rc = rank_sync(rank);
	}
	return rc;
}

/* Rank 0: which rules fired by now, and whether the collective just done was running then. */
static bool look_fired(struct rank *rank, struct fault *fault, const struct report_sum *sum)
{
	bool have_all = true;

	for (unsigned i = 0; i < fault->rule_count; i++) {
		struct fabric_fired *fired = &fault->fired[i];

		if (!fault->has_fired[i] &&
		    fabric_ctl_wait_fired(rank->fabric, fault->idxs[i], 0, fired) == 0) {
			fault->has_fired[i] = true;
			fault->was_running[i] =
				fired->t_ns > sum->begin_ns && fired->t_ns < sum->end_ns;
		}
		have_all = have_all && fault->has_fired[i];
	}
	return have_all;
}

static int decide(struct rank *rank, int decision, int *decided)
{
	if (rank->rank == 0) {
		rank->shared->decision = decision;
	}
	int rc = rank_sync(rank);

	*decided = rank->shared->decision;
	return rc == 0 ? rank_sync(rank) : rc;
}

static int hit(struct rank *rank, struct fault *fault, const struct plan_line *line)
{
	struct report_sum sum;
	uint64_t limit_ms;
	int decided = 0;
	int rc = plan_number(line, "max_ms", 5000, &limit_ms);

	for (int i = 0; rc == 0 && i < BEFORE_COUNT; i++) {
		rc = iterate(rank, fault, &sum);
		fault->healthy_ns =
			i == 0 || sum.took_ns < fault->healthy_ns ? sum.took_ns : fault->healthy_ns;
	}
	if (rc == 0 && rank->rank == 0) {
		rc = rules_install(rank, plan_text(line, "rule", ""), fault->idxs,
				   &fault->rule_count);
	}
	uint64_t until_ns = shared_now_ns() + limit_ms * 1000000;

	while (rc == 0 && decided == 0) {
		rc = iterate(rank, fault, &sum);
		fault->hit_ns = sum.took_ns > fault->hit_ns ? sum.took_ns : fault->hit_ns;
		if (rc == 0 && rank->rank == 0) {
			decided = look_fired(rank, fault, &sum) ? 1
				  : shared_now_ns() > until_ns  ? 2
								: 0;
		}
		rc = rc == 0 ? decide(rank, decided, &decided) : rc;
	}
	return rc;
}

static int after(struct rank *rank, struct fault *fault, const struct plan_line *line)
{
	struct report_sum sum;
	uint64_t count;
	uint64_t ms = 0;
	int is_over = 0;
	int rc = plan_number(line, "after", 2, &count);

	rc = rc == 0 ? plan_number(line, "after_ms", 0, &ms) : rc;
	uint64_t until_ns = shared_now_ns() + ms * 1000000;

	for (uint64_t i = 0; rc == 0 && is_over == 0; i++) {
		rc = iterate(rank, fault, &sum);
		fault->after_ns = sum.took_ns;
		if (rc == 0) {
			rc = decide(rank, i + 1 >= count && shared_now_ns() > until_ns ? 1 : 0,
				    &is_over);
		}
	}
	return rc;
}

static uint64_t carried(struct rank *rank, uint32_t host, uint32_t rail)
{
	struct fabric_counters counters;

	if (fabric_ctl_counters(rank->fabric, host, rail, &counters) != 0) {
		return 0;
	}
	return counters.tx_bytes + counters.rx_bytes;
}

/* Rank 0: every rail that had a fault carried at least a quarter of an equal share since `before`.
 */
static bool all_carry(struct rank *rank, struct fault *fault, uint64_t before[][MAX_RAILS])
{
	bool do_carry = true;

	for (unsigned i = 0; i < fault->rule_count; i++) {
		uint32_t host = fault->fired[i].host;
		uint64_t total = 0;
		uint64_t used = 0;

		for (uint32_t rail = 0; rail < MAX_RAILS; rail++) {
			uint64_t now = carried(rank, host, rail);

			total += now - before[i][rail];
			used += now > 0 ? 1 : 0;
		}
		uint32_t rail = fault->fired[i].rail;
		uint64_t mine = carried(rank, host, rail) - before[i][rail];

		do_carry = do_carry && mine * used * 4 >= total && total > 0;
	}
	return do_carry;
}

static int back(struct rank *rank, struct fault *fault, const struct plan_line *line)
{
	uint64_t before[MAX_RULES][MAX_RAILS];
	struct report_sum sum;
	uint32_t idxs[MAX_RULES];
	unsigned count;
	uint64_t began_ns = shared_now_ns();
	int decided = 0;
	int rc = 0;

	if (rank->rank == 0) {
		rc = rules_install(rank, plan_text(line, "heal", ""), idxs, &count);
	}
	while (rc == 0 && decided == 0) {
		for (unsigned i = 0; i < fault->rule_count; i++) {
			for (uint32_t rail = 0; rail < MAX_RAILS; rail++) {
				before[i][rail] = carried(rank, fault->fired[i].host, rail);
			}
		}
		rc = iterate(rank, fault, &sum);
		fault->back_ms = (shared_now_ns() - began_ns) / 1000000;
		if (rc == 0 && rank->rank == 0) {
			fault->is_back = all_carry(rank, fault, before);
			decided = fault->is_back ? 1 : fault->back_ms > BACK_MS ? 2 : 0;
		}
		rc = rc == 0 ? decide(rank, decided, &decided) : rc;
	}
	return rc;
}

static bool has_all_fired(const struct fault *fault)
{
	for (unsigned i = 0; i < fault->rule_count; i++) {
		if (!fault->has_fired[i]) {
			return false;
		}
	}
	return true;
}

/* A rule that has not fired would do so later, in a step that is not about it: the plan ends. */
static int report(struct rank *rank, const struct fault *fault, const struct plan_line *line)
{
	bool is_ok = fault->wrong == 0;
	bool was_running = false; /* one is enough: a rule without a trigger fires ahead */

	report_begin(rank, &fault->op);
	report_text("label", plan_text(line, "label", ""));
	report_text("rule", plan_text(line, "rule", ""));
	report_number("iters", fault->iters);
	report_number("elements", fault->elements);
	report_number("wrong", fault->wrong);
	printf(",\"fired\":[");
	for (unsigned i = 0; i < fault->rule_count; i++) {
		was_running = was_running || fault->was_running[i];
		printf("%s{\"t_ns\":%llu,\"seen\":%llu,\"running\":%s}", i > 0 ? "," : "",
		       (unsigned long long)fault->fired[i].t_ns,
		       (unsigned long long)fault->fired[i].seen,
		       fault->was_running[i] ? "true" : "false");
	}
	printf("]");
	report_number("healthy_us", fault->healthy_ns / 1000);
	report_number("hit_us", fault->hit_ns / 1000);
	report_number("after_us", fault->after_ns / 1000);
	if (plan_text(line, "heal", NULL) != NULL) {
		report_number("back_ms", fault->back_ms);
		report_number("is_back", fault->is_back ? 1 : 0);
		is_ok = is_ok && fault->is_back;
	}
	is_ok = is_ok && was_running && has_all_fired(fault);
	report_text("verdict", is_ok ? "ok" : "wrong");
	report_end();
	report_verdict(rank, fault->wrong, is_ok);
	return has_all_fired(fault) ? 0 : -ENODATA;
}

int verb_fault(struct rank *rank, const struct plan_line *line)
{
	for (unsigned idx = 0;; idx++) {
		struct fault fault;

		memset(&fault, 0, sizeof(fault));
		fault.comm = comm_find(rank, line->name);
		if (fault.comm == NULL) {
			return -EINVAL;
		}
		int rc = op_pick(line, fault.comm->rank_count, idx, &fault.op);

		if (rc != 0) {
			return rc == -ENOENT ? 0 : rc;
		}
		rc = hit(rank, &fault, line);
		rc = rc == 0 ? after(rank, &fault, line) : rc;
		if (rc == 0 && plan_text(line, "heal", NULL) != NULL) {
			rc = back(rank, &fault, line);
		}
		if (rc == 0 && rank->rank == 0) {
			rc = report(rank, &fault, line);
		}
		rc = rc == 0 ? rank_sync(rank) : rc;
		if (rc != 0) {
			return rc;
		}
	}
}
