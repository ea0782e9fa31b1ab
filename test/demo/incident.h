/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DEMO_INCIDENT_H
#define BRAID_TEST_DEMO_INCIDENT_H

#include <stddef.h>
#include <stdint.h>

enum {
	INCIDENT_TEXT_MAX = 128
};

/** One line of the plugin's event file (plugin/events.h); what a line lacks is "" or -1. */
struct incident {
	int64_t time_ns; /**< "mono_ns" */
	int64_t bytes_replayed;
	int64_t count;
	char name[INCIDENT_TEXT_MAX]; /**< "event" */
	char local[INCIDENT_TEXT_MAX];
	char cause[INCIDENT_TEXT_MAX];
};

/** Growing list; all zero is an empty one. */
struct incidents {
	struct incident *list;
	size_t count;
	size_t cap;
};

/** Read one JSON object without inner ones. Returns 0, or -EINVAL with *out unchanged. */
int incident_read(const char *line, struct incident *out);

/**
 * Read every file a glob(7) pattern names, in place of what the list held. A last line without its
 * newline is left for the next call. Returns 0, -EINVAL for a line that is no event, -ENOMEM.
 */
int incidents_load(struct incidents *incidents, const char *pattern);
/** Free the list; it is empty after that. */
void incidents_clear(struct incidents *incidents);

#endif
