/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/** Below this the healthy iterations were bound by the machine rather than by the rails. */
static const double BUSY_SHARE = 0.9;

void report_header(const struct timeline *timeline, const struct demo *demo)
{
	printf("\nall-reduce   time ms   replayed bytes   host %u sent, MB:", demo->host);
	for (uint32_t rail = 0; rail < timeline->rail_count; rail++) {
		printf("  rail %-2u", rail);
	}
	printf("\n");
}

/** Replays are told some moments after they happen, so they belong to the iteration until the next.
 */
static uint64_t replayed_in(const struct timeline *timeline, uint32_t idx,
			    const struct incidents *incidents)
{
	uint64_t to_ns = idx + 1 < timeline->iteration_count
				 ? timeline->iterations[idx + 1].start_ns - 1
				 : timeline->last_ns;

	return facts_replayed(incidents, timeline->iterations[idx].start_ns, to_ns);
}

void report_row(const struct timeline *timeline, const struct demo *demo, uint32_t idx,
		const struct incidents *incidents)
{
	const struct iteration *iteration = &timeline->iterations[idx];

	printf("%10u %9.1f %16" PRIu64 "                   ", idx + 1, iteration_ms(iteration),
	       replayed_in(timeline, idx, incidents));
	for (uint32_t rail = 0; rail < timeline->rail_count; rail++) {
		struct series_point moved = timeline_moved(timeline, demo->host, rail, iteration);

		printf(" %8.3f", (double)moved.tx_bytes / 1e6);
	}
	printf("\n");
	fflush(stdout);
}

static double after_cut_ms(const struct facts *facts, uint64_t time_ns)
{
	return time_ns ? (double)(time_ns - facts->cut_ns) / 1e6 : -1;
}

static const char *traffic_name(const struct demo *demo)
{
	if (demo->has_tx && demo->has_rx) {
		return "sent and received";
	}
	return demo->has_tx ? "sent" : "received";
}

static void share_print(const char *name, double ms, double share)
{
	printf("%-10s %.1f ms an all-reduce", name, ms);
	if (share > 0) {
		printf(", %.1f %% of what the rails then carry", share * 100);
	}
	printf("\n");
}

static void slowdown_print(const struct facts *facts, const struct demo *demo)
{
	if (!(facts->ratio > 0)) {
		return;
	}
	share_print("before:", facts->healthy_ms, facts->healthy_share);
	share_print("after:", facts->degraded_ms, facts->degraded_share);
	printf("slowdown:  %.3f times", facts->ratio);
	if (demo->is_cut) {
		printf("; the rails left would allow %.3f, so %.3f of that", facts->ideal,
		       facts->ratio / facts->ideal);
	}
	printf("\n");
	if (facts->healthy_share > 0 && facts->healthy_share < BUSY_SHARE) {
		printf("           this machine was too busy to keep all rails full, so take the "
		       "slowdown with care; a lower --rate helps\n");
	}
}

void report_facts(const struct facts *facts, const struct demo *demo)
{
	if (facts->iteration) {
		printf("\nfault:     %s, %.1f ms into all-reduce %u\n", demo->rule,
		       (double)(facts->cut_ns - facts->iteration->start_ns) / 1e6,
		       facts->iteration->number + 1);
		printf("rail:      host %u rail %u %s %.3f MB of its usual %.3f MB in it, and "
		       "%" PRIu64 " bytes %s\n",
		       demo->host, demo->rail, traffic_name(demo),
		       (double)facts->carried_bytes / 1e6, (double)facts->share_bytes / 1e6,
		       facts->later_bytes, facts->healed_ns ? "until it was mended" : "later");
	}
	if (facts->noticed_ns) {
		printf("noticed:   %.1f ms after the fault, as: %s\n",
		       after_cut_ms(facts, facts->noticed_ns), facts->cause);
	}
	if (facts->replayed_ns) {
		printf("replayed:  %" PRIu64 " bytes in %" PRIu64 " pieces, the last %.1f ms after "
		       "the fault\n",
		       facts->replayed_bytes, facts->replayed_pieces,
		       after_cut_ms(facts, facts->replayed_ns));
	}
	if (facts->noticed_ns && !facts->replayed_ns) {
		printf("replayed:  nothing, the receivers had it all\n");
	}
	slowdown_print(facts, demo);
	if (facts->healed_ns) {
		printf("mended:    ");
		if (facts->back_ns) {
			printf("the rail carried data again %.0f ms later; %.1f ms an all-reduce "
			       "since\n",
			       (double)(facts->back_ns - facts->healed_ns) / 1e6,
			       facts->recovered_ms);
		} else {
			printf("the rail was not used again\n");
		}
	}
	printf("verdict:   %s%s\n",
	       facts->missing ? "FAIL: " : "PASS: every element of every all-reduce was right",
	       facts->missing ? facts->missing : "");
}

static void text_write(FILE *file, const char *key, const char *text)
{
	fprintf(file, "  \"%s\": \"", key);
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
	fputs("\",\n", file);
}

static void iterations_write(FILE *file, const struct demo *demo, const struct timeline *timeline)
{
	fputs("  \"iterations\": [", file);
	for (uint32_t i = 0; i < timeline->iteration_count; i++) {
		const struct iteration *iteration = &timeline->iterations[i];

		fprintf(file, "%s\n    {\"number\": %u, \"done\": %s, \"ms\": %.3f, \"sent\": [",
			i ? "," : "", i + 1, iteration->done ? "true" : "false",
			iteration_ms(iteration));
		for (uint32_t rail = 0; rail < timeline->rail_count; rail++) {
			struct series_point moved =
				timeline_moved(timeline, demo->host, rail, iteration);

			fprintf(file, "%s%" PRIu64, rail ? ", " : "", moved.tx_bytes);
		}
		fputs("]}", file);
	}
	fputs("],\n", file);
}

static void facts_write(FILE *file, const struct facts *facts)
{
	fprintf(file, "  \"back_after_mending_ms\": %.3f,\n  \"recovered_ms\": %.3f,\n",
		facts->back_ns ? (double)(facts->back_ns - facts->healed_ns) / 1e6 : -1,
		facts->recovered_ms);
	fprintf(file,
		"  \"fault_iteration\": %d,\n  \"noticed_ms\": %.3f,\n  \"replayed_ms\": %.3f,\n"
		"  \"usual_bytes\": %" PRIu64 ",\n  \"carried_bytes\": %" PRIu64
		",\n  \"later_bytes\": %" PRIu64 ",\n  \"replayed_bytes\": %" PRIu64
		",\n  \"replayed_pieces\": %" PRIu64
		",\n  \"healthy_ms\": %.3f,\n  \"degraded_ms\": %.3f,\n  \"ratio\": %.4f,\n"
		"  \"ideal_ratio\": %.4f,\n  \"healthy_share\": %.4f,\n  \"degraded_share\": "
		"%.4f,\n",
		facts->iteration ? (int)facts->iteration->number + 1 : -1,
		after_cut_ms(facts, facts->noticed_ns), after_cut_ms(facts, facts->replayed_ns),
		facts->share_bytes, facts->carried_bytes, facts->later_bytes, facts->replayed_bytes,
		facts->replayed_pieces, facts->healthy_ms, facts->degraded_ms, facts->ratio,
		facts->ideal, facts->healthy_share, facts->degraded_share);
}

int report_json(const char *path, const struct facts *facts, const struct demo *demo,
		const struct timeline *timeline)
{
	FILE *file = fopen(path, "w");

	if (!file) {
		return -errno;
	}
	fputs("{\n", file);
	text_write(file, "verdict", facts->missing ? "fail" : "pass");
	text_write(file, "reason", facts->missing ? facts->missing : "");
	text_write(file, "fault", demo->rule);
	text_write(file, "noticed_as", facts->cause);
	fprintf(file,
		"  \"hosts\": %u,\n  \"rails\": %u,\n  \"rate_mbps\": %g,\n  \"host\": %u,\n"
		"  \"rail\": %u,\n",
		timeline->host_count, timeline->rail_count, demo->rate_mbps, demo->host,
		demo->rail);
	facts_write(file, facts);
	iterations_write(file, demo, timeline);
	fprintf(file, "  \"driver\": %s}\n", demo->driver[0] ? demo->driver : "null\n");
	return fclose(file) ? -errno : 0;
}
