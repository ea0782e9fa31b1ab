/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SAMPLE_NS = 5000000 /* the driver's sampling interval */
};

/** The number behind " key=" in a rule. Returns 0 or -EINVAL. */
static int rule_number(const char *rule, const char *key, uint32_t max, uint32_t *out)
{
	char wanted[32];
	char *end;

	snprintf(wanted, sizeof(wanted), " %s=", key);
	const char *at = strstr(rule, wanted);

	if (!at) {
		return -EINVAL;
	}
	at += strlen(wanted);
	unsigned long value = strtoul(at, &end, 10);

	if (end == at || (*end && *end != ' ') || value >= max) {
		return -EINVAL;
	}
	*out = (uint32_t)value;
	return 0;
}

int demo_rule_read(struct demo *demo)
{
	static const char *const cuts[] = {"cut ", "port_down ", "nic_death "};
	const char *rule = demo->rule;
	uint32_t host;
	uint32_t rail;
	int err = rule_number(rule, "host", TIMELINE_HOSTS_MAX, &host);

	if (!err) {
		err = rule_number(rule, "rail", TIMELINE_RAILS_MAX, &rail);
	}
	if (err) {
		return err;
	}
	demo->host = host;
	demo->rail = rail;
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		demo->is_cut |= strncmp(rule, cuts[i], strlen(cuts[i])) == 0;
	}
	demo->has_tx = !strstr(rule, " dir=rx");
	demo->has_rx = !strstr(rule, " dir=tx");
	return 0;
}

static uint64_t bytes_of(const struct demo *demo, const struct series_point *point)
{
	return (demo->has_tx ? point->tx_bytes : 0) + (demo->has_rx ? point->rx_bytes : 0);
}

static int double_compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

/** Median time of the iterations [from, to) that came to their end; 0 for none. */
static double median_ms(const struct timeline *timeline, uint32_t from, uint32_t to)
{
	static double times[TIMELINE_ITERATIONS_MAX];
	uint32_t count = 0;

	for (uint32_t i = from; i < to; i++) {
		if (timeline->iterations[i].done) {
			times[count++] = iteration_ms(&timeline->iterations[i]);
		}
	}
	if (count == 0) {
		return 0;
	}
	qsort(times, count, sizeof(times[0]), double_compare);
	return (times[(count - 1) / 2] + times[count / 2]) / 2;
}

static void traffic_find(struct facts *facts, const struct demo *demo,
			 const struct timeline *timeline)
{
	const struct series *series = &timeline->series[demo->host][demo->rail];
	uint32_t before = facts->iteration->number;
	struct series_point moved;

	for (uint32_t i = 0; i < before; i++) {
		moved = timeline_moved(timeline, demo->host, demo->rail, &timeline->iterations[i]);
		facts->share_bytes += bytes_of(demo, &moved) / before;
	}
	moved = timeline_moved(timeline, demo->host, demo->rail, facts->iteration);
	facts->carried_bytes = bytes_of(demo, &moved);
	const struct series_point *a = series_after(series, facts->cut_ns + SAMPLE_NS);
	const struct series_point *b =
		series_before(series, facts->healed_ns ? facts->healed_ns : UINT64_MAX);

	facts->later_bytes =
		a && b->time_ns > a->time_ns ? bytes_of(demo, b) - bytes_of(demo, a) : 0;
}

/** When the mended rail was seen to carry data again. */
static void back_find(struct facts *facts, const struct demo *demo, const struct timeline *timeline)
{
	const struct series *series = &timeline->series[demo->host][demo->rail];
	const struct series_point *before = series_before(series, facts->healed_ns);
	uint32_t count = timeline->iteration_count;
	uint32_t first = 0;

	for (size_t i = 0; before && !facts->back_ns && i < series->count; i++) {
		if (series->points[i].time_ns > facts->healed_ns &&
		    bytes_of(demo, &series->points[i]) > bytes_of(demo, before)) {
			facts->back_ns = series->points[i].time_ns;
		}
	}
	while (first < count && timeline->iterations[first].start_ns < facts->back_ns) {
		first++;
	}
	if (facts->back_ns) {
		facts->recovered_ms = median_ms(timeline, first, count);
	}
}

uint64_t facts_replayed(const struct incidents *incidents, uint64_t from_ns, uint64_t to_ns)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < incidents->count; i++) {
		const struct incident *incident = &incidents->list[i];

		if (incident->bytes_replayed > 0 && (uint64_t)incident->time_ns >= from_ns &&
		    (uint64_t)incident->time_ns <= to_ns) {
			sum += (uint64_t)incident->bytes_replayed;
		}
	}
	return sum;
}

/** Length of a cause without its remark in brackets. */
static size_t cause_length(const char *cause)
{
	const char *end = strstr(cause, " (");

	return end ? (size_t)(end - cause) : strlen(cause);
}

static void incidents_look(struct facts *facts, const struct incidents *incidents)
{
	for (size_t i = 0; i < incidents->count; i++) {
		const struct incident *incident = &incidents->list[i];
		uint64_t at_ns = (uint64_t)incident->time_ns;

		if (at_ns < facts->cut_ns) {
			continue;
		}
		if (strcmp(incident->name, "path_fault") == 0 &&
		    (!facts->noticed_ns || at_ns < facts->noticed_ns)) {
			facts->noticed_ns = at_ns;
			/* Both ends tell it; "(seen by the peer)" is which of them it was. */
			snprintf(facts->cause, sizeof(facts->cause), "%.*s",
				 (int)cause_length(incident->cause), incident->cause);
		}
		if (incident->bytes_replayed > 0) {
			facts->replayed_bytes += (uint64_t)incident->bytes_replayed;
			facts->replayed_pieces +=
				incident->count > 0 ? (uint64_t)incident->count : 0;
			facts->replayed_ns =
				at_ns > facts->replayed_ns ? at_ns : facts->replayed_ns;
		}
	}
}

/** The driver's own word for what went wrong. */
static const char *failure_find(struct facts *facts, const char *driver)
{
	static const char key[] = "\"reason\": \"";
	const char *at = strstr(driver, key);

	if (!at) {
		return "the run came to no end";
	}
	at += strlen(key);
	snprintf(facts->failure, sizeof(facts->failure), "the run failed: %.*s",
		 (int)strcspn(at, "\"\n"), at);
	return facts->failure;
}

static const char *missing_find(struct facts *facts, const struct demo *demo)
{
	if (!facts->passed) {
		return failure_find(facts, demo->driver);
	}
	if (!facts->cut_ns) {
		return "the fault did not hit: it never came true";
	}
	if (!facts->iteration) {
		return "the fault did not hit: no all-reduce was running";
	}
	if (!demo->is_cut) {
		return NULL;
	}
	if (!facts->carried_bytes || !facts->share_bytes ||
	    facts->carried_bytes >= facts->share_bytes - facts->share_bytes / 50) {
		return "the cut did not hit: the rail did not carry a part of its usual share";
	}
	if (facts->later_bytes) {
		return "the rail carried data after the cut";
	}
	if (!facts->replayed_bytes) {
		return "nothing was sent again";
	}
	if (demo->is_healed && !facts->back_ns) {
		return "the mended rail was not used again";
	}
	return NULL;
}

static bool verdict_read(const char *driver)
{
	return strstr(driver, "\"verdict\": \"pass\"") != NULL;
}

/** A rank of a ring sends 2 (n - 1) / n times its buffer in an all-reduce. */
static void shares_find(struct facts *facts, const struct demo *demo,
			const struct timeline *timeline)
{
	double hosts = timeline->host_count;
	double rate = demo->rate_mbps * timeline->rail_count;

	if (!(rate > 0) || !facts->iteration || hosts < 2) {
		return;
	}
	double least_ms =
		2 * (hosts - 1) / hosts * (double)facts->iteration->size_bytes / (rate * 1e3);

	if (facts->healthy_ms > 0) {
		facts->healthy_share = least_ms / facts->healthy_ms;
	}
	if (facts->degraded_ms > 0) {
		facts->degraded_share =
			least_ms * (demo->is_cut ? facts->ideal : 1) / facts->degraded_ms;
	}
}

static void fired_look(struct facts *facts, const struct timeline *timeline)
{
	for (uint32_t i = 0; i < timeline->fired_count; i++) {
		const struct fired *fired = &timeline->fired[i];

		if (strncmp(fired->rule, "heal ", 5) == 0) {
			facts->healed_ns = facts->healed_ns ? facts->healed_ns : fired->at_ns;
		} else {
			facts->cut_ns = facts->cut_ns ? facts->cut_ns : fired->at_ns;
		}
	}
}

/** Number of the first iteration that saw the rail mended, or their count. */
static uint32_t healed_in(const struct facts *facts, const struct timeline *timeline)
{
	uint32_t i = 0;

	while (i < timeline->iteration_count &&
	       (!facts->healed_ns || !timeline->iterations[i].done ||
		timeline->iterations[i].end_ns < facts->healed_ns)) {
		i++;
	}
	return i;
}

void facts_find(struct facts *facts, const struct demo *demo, const struct timeline *timeline,
		const struct incidents *incidents)
{
	uint32_t count = timeline->iteration_count;

	*facts = (struct facts){.passed = verdict_read(demo->driver)};
	fired_look(facts, timeline);
	if (facts->cut_ns) {
		facts->iteration = timeline_running(timeline, facts->cut_ns);
		incidents_look(facts, incidents);
	}
	if (timeline->rail_count > 1) {
		facts->ideal = (double)timeline->rail_count / (timeline->rail_count - 1);
	}
	if (facts->iteration) {
		traffic_find(facts, demo, timeline);
		facts->healthy_ms = median_ms(timeline, 0, facts->iteration->number);
		facts->degraded_ms = median_ms(timeline, facts->iteration->number + 1,
					       healed_in(facts, timeline));
		if (facts->healed_ns) {
			back_find(facts, demo, timeline);
		}
	} else {
		facts->healthy_ms = median_ms(timeline, 0, count);
	}
	if (facts->healthy_ms > 0 && facts->degraded_ms > 0) {
		facts->ratio = facts->degraded_ms / facts->healthy_ms;
	}
	shares_find(facts, demo, timeline);
	facts->missing = missing_find(facts, demo);
}
