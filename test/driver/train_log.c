/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/run.h"
#include "test/driver/train_state.h"

#include <errno.h>
#include <inttypes.h>

/*
 * Lines of words, for awk. Times are microseconds from the fault; "-" where there is none.
 *
 *   hit EPISODE CLASS GROUP ALONE FIRED NOTICED REPLAYED BYTES RULE...
 *   back EPISODE TIME                 from mending to the last path that came back
 *   end EPISODES STRUCK ITERATIONS BYTES LINKS CALL_MAX VERDICT
 */

static const char *const group_names[TRAIN_GROUP_COUNT] = {
	[TRAIN_EVENT] = "event",   [TRAIN_SILENT] = "silent", [TRAIN_MILD] = "mild",
	[TRAIN_HINDER] = "hinder", [TRAIN_OTHER] = "other",
};

int train_log_open(struct train *train)
{
	const char *path = train->run->opt->train.log;

	if (path[0]) {
		train->log = fopen(path, "we");
		if (!train->log) {
			return -errno;
		}
		setvbuf(train->log, NULL, _IOLBF, 0);
	}
	return 0;
}

void train_log_close(struct train *train)
{
	if (train->log) {
		fclose(train->log);
	}
}

static const char *time_text(char *text, size_t cap, uint64_t at_ns, uint64_t from_ns)
{
	if (!at_ns) {
		return "-";
	}
	snprintf(text, cap, "%" PRIu64, (at_ns - from_ns) / 1000);
	return text;
}

static void hit_print(FILE *file, const struct train_episode *episode, const struct train_hit *hit)
{
	enum train_group group = train_class_group(hit->class);
	char noticed[32];
	char replayed[32];

	fprintf(file, "hit %u %s %s %d %d %s %s %" PRIu64 " ", episode->number,
		train_class_name(hit->class), group_names[group], hit->is_alone, hit->fired,
		time_text(noticed, sizeof(noticed), hit->noticed_ns, hit->fired_ns),
		time_text(replayed, sizeof(replayed), hit->replayed_ns, hit->fired_ns),
		hit->replayed_bytes);
	if (hit->rule[0]) {
		fputs(hit->rule, file);
	} else {
		fprintf(file, "%s host=%u for_ms=%u", train_class_name(hit->class), hit->host,
			hit->for_ms);
	}
	fprintf(file, " # %u ms after %s\n", hit->after_ms, hit->at_mend ? "mending" : "the start");
}

void train_log_episode(struct train *train)
{
	const struct train_episode *episode = &train->episode;

	bool is_calm = true; /* after the mending */

	for (uint32_t i = 0; train->log && i < episode->hit_count; i++) {
		hit_print(train->log, episode, &episode->hits[i]);
		is_calm = is_calm && !episode->hits[i].at_mend;
	}
	if (train->log && is_calm && train->mend_ns && train->back_ns > train->mend_ns) {
		fprintf(train->log, "back %u %" PRIu64 "\n", episode->number,
			(train->back_ns - train->mend_ns) / 1000);
	}
}

static uint64_t links_harmed(const struct run *run)
{
	uint64_t sum = 0;

	for (uint32_t rank = 0; rank < run->opt->rank_count; rank++) {
		sum += atomic_load_explicit(&run->shared->ranks[rank].links_harmed,
					    memory_order_relaxed);
	}
	return sum;
}

static uint64_t call_max_ns(const struct run *run)
{
	uint64_t max = 0;

	for (uint32_t rank = 0; rank < run->opt->rank_count; rank++) {
		uint64_t ns = atomic_load_explicit(&run->shared->ranks[rank].call_max_ns,
						   memory_order_relaxed);

		max = ns > max ? ns : max;
	}
	return max;
}

void train_log_end(struct train *train)
{
	const struct run *run = train->run;
	const struct opt_train *opt = &run->opt->train;

	if (train->log) {
		fprintf(train->log, "end %u %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
			train->next_number - opt->first, train->struck_count, run->record_count,
			run->events.replayed_bytes, links_harmed(run), call_max_ns(run) / 1000,
			run->passed ? "pass" : "fail");
	}
	if (run->passed) {
		return;
	}
	printf("train %" PRIu64 " failed in episode %u, rail %u spared%s; its faults:\n", opt->seed,
	       train->episode.number, train->episode.spared,
	       train->rails.keep_spared ? ", not all paths back at its start" : "");
	for (uint32_t i = 0; i < train->episode.hit_count; i++) {
		hit_print(stdout, &train->episode, &train->episode.hits[i]);
	}
}
