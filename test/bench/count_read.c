/* SPDX-License-Identifier: Apache-2.0 */
#include "test/bench/count.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads the text callgrind writes (manual, "Callgrind Format Specification"): names are given once
 * as "(id) name" and later as "(id)"; cost lines hold a position and the instructions. */

enum {
	IDS_MAX = 8192,
	LINE_MAX_BYTES = 8192,
};

struct names {
	char *of[IDS_MAX];
};

struct reader {
	struct names objects, fns, files;
	const char *object, *fn, *call_object;
	bool is_call_cost;  /* the next cost line is a callee's, inclusive */
	bool is_verbs_call; /* ... and the callee is the verbs library */
	struct count_sum *sum;
};

static const char *name_of(struct names *names, const char *spec)
{
	char *end;
	unsigned long id = strtoul(spec + 1, &end, 10);

	if (spec[0] != '(' || id >= IDS_MAX || *end != ')') {
		return "?";
	}
	if (end[1] == ' ' && !names->of[id]) {
		names->of[id] = strdup(end + 2);
	}
	return names->of[id] ? names->of[id] : "?";
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool is_verbs(const char *object)
{
	return strncmp(base_name(object), "libibverbs", 10) == 0;
}

/* The C library and the loader: their share is a plugin's or the verbs library's. */
static bool is_system(const char *object)
{
	const char *name = base_name(object);

	return strncmp(name, "libc.", 5) == 0 || strncmp(name, "libpthread", 10) == 0 ||
	       strncmp(name, "ld-", 3) == 0;
}

static bool is_bench(const char *object)
{
	return strcmp(base_name(object), "net_bench") == 0;
}

/* By their names: what the compiler put into others is theirs. */
static bool is_ack(const char *fn)
{
	return strstr(fn, "_ack") || strncmp(fn, "ack_", 4) == 0;
}

static void add_fn(struct reader *reader, uint64_t cost)
{
	struct count_sum *sum = reader->sum;
	char name[64];

	sum->acks += is_ack(reader->fn) ? cost : 0;
	snprintf(name, sizeof(name), "%s", reader->fn);
	for (unsigned int i = 0; i < sum->fn_count; i++) {
		if (strcmp(sum->fns[i].name, name) == 0) {
			sum->fns[i].instructions += cost;
			return;
		}
	}
	if (sum->fn_count < COUNT_FNS_MAX) {
		struct count_fn *fn = &sum->fns[sum->fn_count++];

		memcpy(fn->name, name, sizeof(name));
		fn->instructions = cost;
	}
}

/* What a verbs call costs in all, with what it calls in turn, is the verbs library's. */
static void take_cost(struct reader *reader, const char *line)
{
	const char *space = strchr(line, ' ');
	uint64_t cost = space ? strtoull(space + 1, NULL, 10) : 0;

	if (reader->is_call_cost) {
		reader->is_call_cost = false;
		if (reader->is_verbs_call) {
			reader->sum->verbs += cost;
			reader->sum->ack_verbs += is_ack(reader->fn) ? cost : 0;
			reader->sum->plugin -= cost;
		}
		return;
	}
	if (!is_bench(reader->object)) {
		reader->sum->plugin += cost;
	}
	if (strstr(reader->object, ".so") && !is_verbs(reader->object) &&
	    !is_system(reader->object)) {
		add_fn(reader, cost);
	}
}

static void take_line(struct reader *reader, const char *line)
{
	if (strncmp(line, "ob=", 3) == 0) {
		reader->object = name_of(&reader->objects, line + 3);
	} else if (strncmp(line, "fn=", 3) == 0) {
		reader->fn = name_of(&reader->fns, line + 3);
		reader->call_object = NULL;
	} else if (strncmp(line, "cob=", 4) == 0) {
		reader->call_object = name_of(&reader->objects, line + 4);
	} else if (strncmp(line, "cfn=", 4) == 0) {
		name_of(&reader->fns, line + 4);
	} else if (strncmp(line, "calls=", 6) == 0) {
		reader->is_call_cost = true;
		reader->is_verbs_call = reader->call_object && is_verbs(reader->call_object) &&
					!is_verbs(reader->object) && !is_system(reader->object);
		reader->call_object = NULL; /* given anew with each call */
	} else if (strchr("0123456789+-*", line[0]) && line[0]) {
		take_cost(reader, line);
	}
}

static void free_names(struct names *names)
{
	for (unsigned int i = 0; i < IDS_MAX; i++) {
		free(names->of[i]);
	}
}

/* "desc: Trigger: Client Request: KIND/SIZE/BURST/EXTRA;" */
static bool is_wanted(const char *line, const char *label, unsigned int *extra)
{
	const char *at = strstr(line, "Client Request: ");
	size_t len = strlen(label);

	return at && strncmp(at + 16, label, len) == 0 && sscanf(at + 16 + len, "/%u;", extra) == 1;
}

int count_read(const char *path, const char *label, struct count_sum *sum)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	FILE *file = fopen(path, "r");
	char line[LINE_MAX_BYTES];
	bool wanted = false;
	unsigned int extra = 0;

	if (!reader || !file) {
		free(reader);
		if (file) {
			fclose(file);
		}
		return -EIO;
	}
	*reader = (struct reader){.object = "?", .fn = "?", .sum = sum};
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "desc:", 5) == 0) {
			wanted = wanted || is_wanted(line, label, &extra);
		} else if (wanted) {
			take_line(reader, line);
		}
	}
	sum->calls_extra += wanted ? extra : 0;
	fclose(file);
	free_names(&reader->objects);
	free_names(&reader->fns);
	free(reader);
	return wanted ? 0 : -ENOENT;
}
