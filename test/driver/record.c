/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/run.h"

#include <stdarg.h>
#include <stdio.h>

uint64_t run_tally(const struct run *run, enum tally_kind kind)
{
	uint64_t sum = 0;

	for (uint32_t rank = 0; rank < run->opt->rank_count; rank++) {
		sum += tally_read(&run->shared->ranks[rank].tally, kind);
	}
	return sum;
}

uint64_t run_failures(const struct run *run)
{
	uint64_t sum = 0;

	for (int kind = 0; kind < TALLY_KIND_COUNT; kind++) {
		sum += kind == TALLY_WARN ? 0 : run_tally(run, (enum tally_kind)kind);
	}
	return sum;
}

void run_fail(struct run *run, const char *fmt, ...)
{
	va_list args;

	if (!run->failure[0]) {
		va_start(args, fmt);
		vsnprintf(run->failure, sizeof(run->failure), fmt, args);
		va_end(args);
	}
}

/** Bytes all hosts have sent on a rail. */
static uint64_t rail_sent(const struct run *run, uint32_t rail)
{
	uint64_t sum = 0;

	for (uint32_t host = 0; host < run->opt->rank_count; host++) {
		sum += rails_read(run->rails, host, rail).tx;
	}
	return sum;
}

static uint32_t fired_now(struct run *run)
{
	struct rail_fired fired[RAILS_FIRED_MAX];

	return run->rails ? rails_fired_list(run->rails, fired, RAILS_FIRED_MAX) : 0;
}

void record_base(struct run *run)
{
	for (uint32_t rail = 0; run->rails && rail < run->opt->rail_count; rail++) {
		run->rail_base[rail] = rail_sent(run, rail);
	}
	run->replayed_base = run->events.replayed_bytes;
	run->failed_base = run_failures(run);
	run->fired_base = fired_now(run);
}

void record_finish(struct run *run)
{
	if (!run->record_count) {
		return;
	}
	struct iter_record *record = &run->records[run->record_count - 1];

	for (uint32_t rail = 0; run->rails && rail < run->opt->rail_count; rail++) {
		record->rail_bytes[rail] = rail_sent(run, rail) - run->rail_base[rail];
	}
	events_poll(&run->events, run->opt->rank_count);
	record->replayed_bytes = run->events.replayed_bytes - run->replayed_base;
	record->fired_count = fired_now(run) - run->fired_base;
	record->wrong = run_failures(run) > run->failed_base;
	if (record->done && !record->reported) {
		record->reported = true;
		report_iteration(run, record);
	}
}
