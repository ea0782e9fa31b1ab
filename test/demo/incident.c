/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/incident.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *blank_skip(const char *at)
{
	while (*at && isspace((unsigned char)*at)) {
		at++;
	}
	return at;
}

/**
 * Reads the string that starts at `at`; escapes stay as they are, but for the backslash before a
 * quote or backslash. What does not fit is cut. Returns where it ends, or NULL.
 */
static const char *string_read(const char *at, char *out, size_t cap)
{
	size_t len = 0;

	if (*at++ != '"') {
		return NULL;
	}
	while (*at && *at != '"') {
		if (*at == '\\' && (at[1] == '"' || at[1] == '\\')) {
			at++;
		}
		if (len + 1 < cap) {
			out[len++] = *at;
		}
		at++;
	}
	out[len] = '\0';
	return *at == '"' ? at + 1 : NULL;
}

static void text_take(struct incident *incident, const char *key, const char *value)
{
	char *out = NULL;

	if (strcmp(key, "event") == 0) {
		out = incident->name;
	} else if (strcmp(key, "local") == 0) {
		out = incident->local;
	} else if (strcmp(key, "cause") == 0) {
		out = incident->cause;
	}
	if (out) {
		snprintf(out, INCIDENT_TEXT_MAX, "%s", value);
	}
}

static void number_take(struct incident *incident, const char *key, int64_t value)
{
	if (strcmp(key, "mono_ns") == 0) {
		incident->time_ns = value;
	} else if (strcmp(key, "bytes_replayed") == 0) {
		incident->bytes_replayed = value;
	} else if (strcmp(key, "count") == 0) {
		incident->count = value;
	}
}

/** Reads `"key": value`. Returns where it ends, or NULL. */
static const char *member_read(const char *at, struct incident *incident)
{
	char key[64];
	char value[INCIDENT_TEXT_MAX];
	char *end;

	at = string_read(blank_skip(at), key, sizeof(key));
	if (!at) {
		return NULL;
	}
	at = blank_skip(at);
	if (*at++ != ':') {
		return NULL;
	}
	at = blank_skip(at);
	if (*at == '"') {
		at = string_read(at, value, sizeof(value));
		if (at) {
			text_take(incident, key, value);
		}
		return at;
	}
	long long number = strtoll(at, &end, 10);

	if (end == at) {
		return NULL;
	}
	number_take(incident, key, number);
	return end;
}

int incident_read(const char *line, struct incident *out)
{
	struct incident incident = {.time_ns = -1, .bytes_replayed = -1, .count = -1};
	const char *at = blank_skip(line);

	if (*at != '{') {
		return -EINVAL;
	}
	do {
		at = member_read(at + 1, &incident);
		if (!at) {
			return -EINVAL;
		}
		at = blank_skip(at);
	} while (*at == ',');
	if (*at != '}' || *blank_skip(at + 1) || !incident.name[0] || incident.time_ns < 0) {
		return -EINVAL;
	}
	*out = incident;
	return 0;
}

static int incidents_add(struct incidents *incidents, const char *line)
{
	struct incident incident;
	int err = incident_read(line, &incident);

	if (err) {
		return err;
	}
	if (incidents->count == incidents->cap) {
		size_t cap = incidents->cap ? 2 * incidents->cap : 64;
		struct incident *list = realloc(incidents->list, cap * sizeof(*list));

		if (!list) {
			return -ENOMEM;
		}
		incidents->list = list;
		incidents->cap = cap;
	}
	incidents->list[incidents->count++] = incident;
	return 0;
}

static int file_load(struct incidents *incidents, const char *path)
{
	char line[8192];
	FILE *file = fopen(path, "r");
	int err = 0;

	if (!file) {
		return -errno;
	}
	while (!err && fgets(line, sizeof(line), file)) {
		if (!strchr(line, '\n')) {
			err = feof(file) ? 0 : -EINVAL;
			break;
		}
		err = incidents_add(incidents, line);
	}
	fclose(file);
	return err;
}

int incidents_load(struct incidents *incidents, const char *pattern)
{
	glob_t found;
	int err = 0;

	incidents->count = 0;
	if (glob(pattern, 0, NULL, &found) != 0) {
		return 0;
	}
	for (size_t i = 0; !err && i < found.gl_pathc; i++) {
		err = file_load(incidents, found.gl_pathv[i]);
	}
	globfree(&found);
	return err;
}

void incidents_clear(struct incidents *incidents)
{
	free(incidents->list);
	*incidents = (struct incidents){0};
}
