/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/rank.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_RULES 8

int rules_install(struct rank *rank, const char *list, uint32_t *idxs, unsigned *count)
{
	char text[PLAN_LINE_LEN];
	char why[256];
	char *rest;

	*count = 0;
	if (rank->fabric == NULL) {
		fprintf(stderr, "nccl_matrix: a rule, but FABRIC_DIR is not set\n");
		return -EINVAL;
	}
	snprintf(text, sizeof(text), "%s", list);
	for (char *rule = strtok_r(text, "+", &rest); rule != NULL;
	     rule = strtok_r(NULL, "+", &rest)) {
		for (char *comma = rule; (comma = strchr(comma, ',')) != NULL;) {
			*comma = ' ';
		}
		if (*count == MAX_RULES ||
		    fabric_ctl_fault(rank->fabric, rule, &idxs[*count], why, sizeof(why)) != 0) {
			fprintf(stderr, "nccl_matrix: plan line %u: rule '%s': %s\n",
				rank->line->number, rule, *count == MAX_RULES ? "too many" : why);
			return -EINVAL;
		}
		(*count)++;
	}
	return 0;
}

static int verb_rule(struct rank *rank, const struct plan_line *line)
{
	uint32_t idxs[MAX_RULES];
	unsigned count;
	int rc = 0;

	if (rank->rank == 0) {
		rc = rules_install(rank, plan_text(line, "rule", ""), idxs, &count);
	}
	return rc == 0 ? rank_sync(rank) : rc;
}

static int step(struct rank *rank, const struct plan_line *line)
{
	switch (line->verb) {
	case PLAN_COMM:
		return comm_create(rank, line);
	case PLAN_SPLIT:
		return comm_split(rank, line);
	case PLAN_DESTROY:
		return comm_destroy(rank, line->name);
	case PLAN_OP:
		return verb_op(rank, line);
	case PLAN_BENCH:
		return verb_bench(rank, line);
	case PLAN_FAULT:
		return verb_fault(rank, line);
	case PLAN_PAUSE:
		return verb_pause(rank, line);
	case PLAN_KILL:
		return verb_kill(rank, line);
	case PLAN_ABORT:
		return verb_abort(rank, line);
	case PLAN_RULE:
	case PLAN_VERB_COUNT:
		break;
	}
	return verb_rule(rank, line);
}

int rank_run(struct rank *rank, const struct plan *plan)
{
	for (unsigned i = 0; i < plan->count; i++) {
		rank->line = &plan->lines[i];
		if (rank->rank == 0) {
			atomic_store_explicit(&rank->shared->line, rank->line->number,
					      memory_order_release);
		}
		int rc = step(rank, rank->line);

		if (rc != 0) {
			fprintf(stderr, "nccl_matrix: rank %d gave up at plan line %u: %s\n",
				rank->rank, rank->line->number, strerror(-rc));
			return rc;
		}
	}
	for (unsigned i = 0; i < RANK_MAX_COMMS; i++) {
		if (rank->comms[i].name[0] != '\0' &&
		    comm_destroy(rank, rank->comms[i].name) != 0) {
			return -EIO;
		}
	}
	return 0;
}
