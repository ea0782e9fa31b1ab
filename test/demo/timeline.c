/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/timeline.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** Reads a decimal number and the `stop` character after it; *at moves behind that. */
static int number_read(const char **at, char stop, uint64_t *out)
{
	char *end;

	if (!isdigit((unsigned char)**at)) {
		return -EINVAL;
	}
	errno = 0;
	unsigned long long value = strtoull(*at, &end, 10);

	if (errno || *end != stop) {
		return -EINVAL;
	}
	*at = stop ? end + 1 : end;
	*out = value;
	return 0;
}

static int sample_read(struct timeline *timeline, const char *at)
{
	struct series_point point;
	uint64_t host;
	uint64_t rail;

	if (number_read(&at, ',', &point.time_ns) || number_read(&at, ',', &host) ||
	    number_read(&at, ',', &rail) || number_read(&at, ',', &point.tx_bytes) ||
	    number_read(&at, ',', &point.rx_bytes) || *at) {
		return -EINVAL;
	}
	if (host >= TIMELINE_HOSTS_MAX || rail >= TIMELINE_RAILS_MAX) {
		return -ENOSPC;
	}
	int err = series_add(&timeline->series[host][rail], &point);

	if (err) {
		return err;
	}
	if (host >= timeline->host_count) {
		timeline->host_count = (uint32_t)host + 1;
	}
	if (rail >= timeline->rail_count) {
		timeline->rail_count = (uint32_t)rail + 1;
	}
	timeline->last_ns = point.time_ns;
	return 0;
}

/* "start NUMBER OPERATION PROTOCOL BYTES" */
static int start_read(struct timeline *timeline, uint64_t time_ns, const char *at)
{
	struct iteration iteration = {.start_ns = time_ns};
	const char *size = strrchr(at, ' ');
	uint64_t number;

	if (number_read(&at, ' ', &number) || !size || size < at) {
		return -EINVAL;
	}
	size++;
	if (number_read(&size, '\0', &iteration.size_bytes) ||
	    number != timeline->iteration_count) {
		return -EINVAL;
	}
	if (timeline->iteration_count == TIMELINE_ITERATIONS_MAX) {
		return -ENOSPC;
	}
	iteration.number = (uint32_t)number;
	timeline->iterations[timeline->iteration_count++] = iteration;
	return 0;
}

/* "end NUMBER" */
static int end_read(struct timeline *timeline, uint64_t time_ns, const char *at)
{
	uint64_t number;

	if (number_read(&at, '\0', &number) || number + 1 != timeline->iteration_count) {
		return -EINVAL;
	}
	struct iteration *iteration = &timeline->iterations[number];

	if (iteration->done || time_ns < iteration->start_ns) {
		return -EINVAL;
	}
	iteration->end_ns = time_ns;
	iteration->done = true;
	return 0;
}

static int fired_read(struct timeline *timeline, uint64_t time_ns, const char *rule)
{
	if (strlen(rule) >= TIMELINE_TEXT_MAX || !strstr(rule, " host=")) {
		return -EINVAL;
	}
	if (timeline->fired_count == TIMELINE_FIRED_MAX) {
		return -ENOSPC;
	}
	struct fired *fired = &timeline->fired[timeline->fired_count++];

	fired->at_ns = time_ns;
	strcpy(fired->rule, rule);
	return 0;
}

static int mark_read(struct timeline *timeline, const char *at)
{
	static const char *const ignored[] = {"install ", "kill", "stop", "continue"};
	uint64_t time_ns;

	if (number_read(&at, ',', &time_ns) || strncmp(at, ",,,,", 4) != 0) {
		return -EINVAL;
	}
	at += 4;
	if (strncmp(at, "start ", 6) == 0) {
		return start_read(timeline, time_ns, at + 6);
	}
	if (strncmp(at, "end ", 4) == 0) {
		return end_read(timeline, time_ns, at + 4);
	}
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
		if (strncmp(at, ignored[i], strlen(ignored[i])) == 0) {
			return 0;
		}
	}
	return fired_read(timeline, time_ns, at);
}

int timeline_line(struct timeline *timeline, const char *line)
{
	char text[512];
	size_t len = strcspn(line, "\r\n");

	if (len >= sizeof(text)) {
		return -EINVAL;
	}
	memcpy(text, line, len);
	text[len] = '\0';
	/* A sample's last field, the text, is empty. */
	if (strncmp(text, "sample,", 7) == 0 && text[len - 1] == ',') {
		return sample_read(timeline, text + 7);
	}
	if (strncmp(text, "mark,", 5) == 0) {
		return mark_read(timeline, text + 5);
	}
	return strcmp(text, "kind,time_ns,host,rail,tx_bytes,rx_bytes,text") == 0 ? 0 : -EINVAL;
}

void timeline_clear(struct timeline *timeline)
{
	if (!timeline) {
		return;
	}
	for (uint32_t host = 0; host < TIMELINE_HOSTS_MAX; host++) {
		for (uint32_t rail = 0; rail < TIMELINE_RAILS_MAX; rail++) {
			series_clear(&timeline->series[host][rail]);
		}
	}
	memset(timeline, 0, sizeof(*timeline));
}

struct series_point timeline_moved(const struct timeline *timeline, uint32_t host, uint32_t rail,
				   const struct iteration *iteration)
{
	const struct series *series = &timeline->series[host][rail];
	const struct series_point *a = series_before(series, iteration->start_ns);
	const struct series_point *b =
		series_after(series, iteration->done ? iteration->end_ns : UINT64_MAX);
	struct series_point moved = {0};

	if (a) {
		moved.time_ns = b->time_ns - a->time_ns;
		moved.tx_bytes = b->tx_bytes - a->tx_bytes;
		moved.rx_bytes = b->rx_bytes - a->rx_bytes;
	}
	return moved;
}

const struct iteration *timeline_running(const struct timeline *timeline, uint64_t time_ns)
{
	for (uint32_t i = 0; i < timeline->iteration_count; i++) {
		const struct iteration *iteration = &timeline->iterations[i];

		if (time_ns >= iteration->start_ns &&
		    (!iteration->done || time_ns <= iteration->end_ns)) {
			return iteration;
		}
	}
	return NULL;
}
