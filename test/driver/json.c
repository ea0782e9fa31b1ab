/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static void string_write(FILE *file, const char *text)
{
	fputc('"', file);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\') {
			fprintf(file, "\\%c", c);
		} else if (c < 0x20) {
			fprintf(file, "\\u%04x", c);
		} else {
			fputc(c, file);
		}
	}
	fputc('"', file);
}

static void counters_write(FILE *file, const struct run *run)
{
	fputs("  \"counters\": {", file);
	for (int kind = 0; kind < TALLY_KIND_COUNT; kind++) {
		fprintf(file, "%s\"%s\": %" PRIu64, kind ? ", " : "",
			tally_name((enum tally_kind)kind), run_tally(run, (enum tally_kind)kind));
	}
	fputs("},\n", file);
}

static void findings_write(FILE *file, const struct run *run)
{
	bool first = true;

	fputs("  \"findings\": [", file);
	for (uint32_t rank = 0; rank < run->opt->rank_count; rank++) {
		const struct tally *tally = &run->shared->ranks[rank].tally;

		for (int kind = 0; kind < TALLY_KIND_COUNT; kind++) {
			if (!tally_read(tally, (enum tally_kind)kind)) {
				continue;
			}
			fprintf(file, "%s\n    {\"rank\": %u, \"kind\": \"%s\", \"first\": ",
				first ? "" : ",", rank, tally_name((enum tally_kind)kind));
			string_write(file, tally->first[kind]);
			fputc('}', file);
			first = false;
		}
	}
	fputs("],\n", file);
}

static void ranks_write(FILE *file, const struct run *run)
{
	fputs("  \"ranks\": [", file);
	for (uint32_t rank = 0; rank < run->opt->rank_count; rank++) {
		const struct rank_report *report = &run->shared->ranks[rank];

		fprintf(file,
			"%s\n    {\"rank\": %u, \"devices\": %d, \"calls\": %" PRIu64
			", \"progress_call_max_us\": %.1f, \"progress_call_max\": \"%s\""
			", \"service_call_max_us\": %.1f, \"service_call_max\": \"%s\""
			", \"close_ms\": %.3f, \"net_error\": %d}",
			rank ? "," : "", rank, report->dev_count,
			atomic_load_explicit(&report->call_count, memory_order_relaxed),
			(double)atomic_load_explicit(&report->call_max_ns, memory_order_relaxed) /
				1e3,
			report->call_max_name,
			(double)atomic_load_explicit(&report->setup_max_ns, memory_order_relaxed) /
				1e3,
			report->setup_max_name, (double)report->close_ns / 1e6,
			atomic_load_explicit(&report->net_error, memory_order_acquire));
	}
	fputs("],\n", file);
}

static void faults_write(FILE *file, const struct run *run)
{
	fputs("  \"faults_installed\": [", file);
	for (uint32_t i = 0; i < run->opt->fault_count; i++) {
		fprintf(file,
			"%s\n    {\"iteration\": %u, \"percent\": %u, \"time_ns\": %" PRIu64
			", \"rule\": ",
			i ? "," : "", run->opt->faults[i].iter, run->opt->faults[i].percent,
			run->faults[i].at_ns);
		string_write(file, run->opt->faults[i].rule);
		fputc('}', file);
	}
	fputs("],\n  \"faults_fired\": [", file);
	for (uint32_t i = 0; i < run->fired_count; i++) {
		fprintf(file,
			"%s\n    {\"time_ns\": %" PRIu64 ", \"seen\": %" PRIu64 ", \"rule\": ",
			i ? "," : "", run->fired[i].at_ns, run->fired[i].seen);
		string_write(file, run->fired[i].rule);
		fputc('}', file);
	}
	fputs("],\n", file);
}

static void commands_write(FILE *file, const struct run *run)
{
	fputs("  \"commands\": [", file);
	for (uint32_t i = 0; i < run->opt->command_count; i++) {
		fprintf(file,
			"%s\n    {\"iteration\": %u, \"percent\": %u, \"time_ns\": %" PRIu64
			", \"end_ns\": %" PRIu64 ", \"command\": ",
			i ? "," : "", run->opt->commands[i].iter, run->opt->commands[i].percent,
			run->commands[i].at_ns, run->commands[i].end_ns);
		string_write(file, run->opt->commands[i].text);
		fputc('}', file);
	}
	fputs("],\n", file);
}

static void iterations_write(FILE *file, const struct run *run)
{
	fputs("  \"iterations\": [", file);
	for (uint32_t i = 0; i < run->record_count; i++) {
		const struct iter_record *record = &run->records[i];

		fprintf(file,
			"%s\n    {\"iteration\": %u, \"op\": \"%s\", \"proto\": \"%s\", \"bytes\": "
			"%" PRIu64 ", \"done\": %s, \"start_ns\": %" PRIu64 ", \"ms\": %.3f, "
			"\"replayed_bytes\": %" PRIu64 ", \"faults_fired\": %u, \"wrong\": %s, "
			"\"rail_bytes\": [",
			i ? "," : "", record->job.iter, op_name(record->job.op),
			proto_name(record->job.proto), record->job.size_bytes,
			record->done ? "true" : "false", record->start_ns,
			(double)record->time_ns / 1e6, record->replayed_bytes, record->fired_count,
			record->wrong ? "true" : "false");
		for (uint32_t rail = 0; run->rails && rail < run->opt->rail_count; rail++) {
			fprintf(file, "%s%" PRIu64, rail ? ", " : "", record->rail_bytes[rail]);
		}
		fputs("]}", file);
	}
	fputs("]\n", file);
}

int report_json(const struct run *run, const char *path)
{
	FILE *file = fopen(path, "w");
	const struct options *opt = run->opt;

	if (!file) {
		return -errno;
	}
	fprintf(file, "{\n  \"verdict\": \"%s\",\n  \"reason\": ", run->passed ? "pass" : "fail");
	string_write(file, run->failure);
	fputs(",\n  \"plugin\": ", file);
	string_write(file, opt->plugin);
	fputs(",\n  \"name\": ", file);
	string_write(file, run->shared->ranks[0].plugin_name);
	fprintf(file,
		",\n  \"api\": %d,\n  \"rank_count\": %u,\n  \"channels\": %u,\n  \"rails\": %u,\n"
		"  \"seed\": %u,\n  \"replayed_bytes\": %" PRIu64 ",\n  \"events\": %" PRIu64
		",\n  \"survivors_told_ms\": %.3f,\n",
		opt->api, opt->rank_count, opt->channel_count, opt->rail_count, opt->seed,
		run->events.replayed_bytes, run->events.line_count,
		(double)run->remote_max_ns / 1e6);
	counters_write(file, run);
	findings_write(file, run);
	ranks_write(file, run);
	faults_write(file, run);
	commands_write(file, run);
	iterations_write(file, run);
	fputs("}\n", file);
	return fclose(file) ? -errno : 0;
}
