/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void report_sum(const struct shared *shared, int except, struct report_sum *sum)
{
	uint64_t first_ns = UINT64_MAX;

	memset(sum, 0, sizeof(*sum));
	for (int r = 0; r < shared->rank_count; r++) {
		const struct shared_result *result = &shared->results[r];

		if (r == except) {
			continue;
		}
		sum->elements += result->elements;
		sum->wrong += result->wrong;
		sum->begin_ns = result->begin_ns > sum->begin_ns ? result->begin_ns : sum->begin_ns;
		sum->end_ns = result->end_ns > sum->end_ns ? result->end_ns : sum->end_ns;
		first_ns = result->begin_ns < first_ns ? result->begin_ns : first_ns;
	}
	sum->took_ns = sum->end_ns - first_ns;
}

void report_number(const char *key, uint64_t value)
{
	printf(",\"%s\":%" PRIu64, key, value);
}

void report_text(const char *key, const char *value)
{
	printf(",\"%s\":\"%s\"", key,
	       value); /* texts of the plan and of NCCL's tables: no quotes */
}

void report_begin(const struct rank *rank, const struct op *op)
{
	printf("{\"kind\":\"%s\"", plan_verb_name(rank->line->verb));
	report_number("line", rank->line->number);
	report_text("comm", rank->line->name);
	if (op != NULL) {
		report_text("coll", op_coll_name(op->coll));
		report_text("type", op_type_name(op->type));
		report_text("red", op_red_name(op->red));
		report_number("bytes", op->bytes);
		report_text("place", op->place == OP_IN_PLACE ? "in" : "out");
		report_number("reg", op->is_registered ? 1 : 0);
	}
}

void report_end(void)
{
	printf("}\n");
	fflush(stdout);
}

int report_verdict(struct rank *rank, uint64_t wrong, bool is_right)
{
	rank->shared->wrong_total += wrong;
	rank->shared->bad_count += wrong > 0 || !is_right ? 1 : 0;
	return 0;
}

int report_job(const struct shared *shared, const int *codes, uint64_t began_ns)
{
	bool is_ok = shared->bad_count == 0;

	printf("{\"kind\":\"job\",\"ranks\":%d,\"wrong\":%" PRIu64
	       ",\"bad_steps\":%d,\"seconds\":%.3f,\"codes\":[",
	       shared->rank_count, shared->wrong_total, shared->bad_count,
	       (double)(shared_now_ns() - began_ns) / 1e9);
	for (int r = 0; r < shared->rank_count; r++) {
		printf("%s%d", r > 0 ? "," : "", codes[r]);
		is_ok = is_ok && codes[r] == 0;
	}
	printf("],\"errors\":[");
	for (int r = 0; r < shared->rank_count; r++) {
		const struct shared_result *result = &shared->results[r];

		/* Since its step began, so that a failure's speed can be told. */
		printf("%s{\"error\":\"%s\",\"ms\":%.1f}", r > 0 ? "," : "",
		       result->error != 0 ? nccl_result_name(result->error) : "none",
		       result->error != 0 && result->error_ns > result->begin_ns
			       ? (double)(result->error_ns - result->begin_ns) / 1e6
			       : 0.0);
	}
	printf("],\"line\":%u,\"ok\":%s}\n",
	       atomic_load_explicit(&shared->line, memory_order_acquire), is_ok ? "true" : "false");
	fflush(stdout);
	return is_ok ? 0 : 1;
}
