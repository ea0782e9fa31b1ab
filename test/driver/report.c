/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static bool is_silent(const struct run *run)
{
	return run->opt->brief || run->opt->quiet;
}

/** A byte count the way it is typed: 64M, 4K, 8. */
static const char *bytes_text(char *text, size_t cap, uint64_t bytes)
{
	static const char units[] = {'\0', 'K', 'M', 'G'};
	unsigned unit = 0;

	while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, cap, "%" PRIu64 "%c", bytes, units[unit]);
	return text;
}

static double gbytes_per_s(const struct iter_record *record)
{
	return record->time_ns ? (double)record->job.size_bytes / (double)record->time_ns : 0;
}

void report_header(const struct run *run)
{
	if (is_silent(run)) {
		return;
	}
	printf("%5s %-9s %-6s %9s %10s %7s %10s  %s\n", "iter", "op", "proto", "size", "time ms",
	       "GB/s", "replayed", "sent per rail, MB");
}

void report_iteration(const struct run *run, const struct iter_record *record)
{
	char size[32];

	if (is_silent(run)) {
		return;
	}
	printf("%5u %-9s %-6s %9s %10.3f %7.3f %10" PRIu64 " ", record->job.iter,
	       op_name(record->job.op), proto_name(record->job.proto),
	       bytes_text(size, sizeof(size), record->job.size_bytes),
	       (double)record->time_ns / 1e6, gbytes_per_s(record), record->replayed_bytes);
	for (uint32_t rail = 0; run->rails && rail < run->opt->rail_count; rail++) {
		printf(" %.3f", (double)record->rail_bytes[rail] / 1e6);
	}
	if (record->fired_count) {
		printf("  %u fault%s fired", record->fired_count,
		       record->fired_count > 1 ? "s" : "");
	}
	printf("%s\n", record->wrong ? "  WRONG" : "");
}

static uint64_t time_max_ns(const struct run *run)
{
	uint64_t max = 0;

	for (uint32_t i = 0; i < run->record_count; i++) {
		max = run->records[i].time_ns > max ? run->records[i].time_ns : max;
	}
	return max;
}

void report_verdict(const struct run *run)
{
	for (uint32_t i = 0; i < run->fired_count; i++) {
		printf("fault fired at %" PRIu64 ": %s\n", run->fired[i].seen, run->fired[i].rule);
	}
	for (int kind = 0; kind < TALLY_KIND_COUNT; kind++) {
		uint64_t count = run_tally(run, (enum tally_kind)kind);

		for (uint32_t rank = 0; count && rank < run->opt->rank_count; rank++) {
			const struct tally *tally = &run->shared->ranks[rank].tally;

			if (tally_read(tally, (enum tally_kind)kind)) {
				printf("%s: %" PRIu64 " on rank %u, first: %s\n",
				       tally_name((enum tally_kind)kind),
				       tally_read(tally, (enum tally_kind)kind), rank,
				       tally->first[kind]);
			}
		}
	}
	if (run->killed.done) {
		printf("last survivor told %.1f ms after the kill\n",
		       (double)run->remote_max_ns / 1e6);
	}
	printf("%s: %u iterations, slowest %.3f ms, %" PRIu64 " bytes replayed%s%s\n",
	       run->passed ? "PASS" : "FAIL", run->record_count, (double)time_max_ns(run) / 1e6,
	       run->events.replayed_bytes, run->passed ? "" : "; ", run->failure);
}

void report_brief(const struct run *run)
{
	printf("verdict=%s iterations=%u worst_ms=%.3f fired=%u replayed=%" PRIu64
	       " path_faults=%" PRIu64,
	       run->passed ? "pass" : "fail", run->record_count, (double)time_max_ns(run) / 1e6,
	       run->fired_count, run->events.replayed_bytes, run->events.fault_count);
	for (int kind = 0; kind < TALLY_KIND_COUNT; kind++) {
		printf(" %s=%" PRIu64, tally_name((enum tally_kind)kind),
		       run_tally(run, (enum tally_kind)kind));
	}
	printf(" remote_ms=%.1f reason='%s'\n", (double)run->remote_max_ns / 1e6, run->failure);
}
