/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Points behind `"key":` in line, or NULL. */
static const char *field(const char *line, const char *key)
{
	char wanted[32];
	int len = snprintf(wanted, sizeof(wanted), "\"%s\":", key);
	const char *at = strstr(line, wanted);

	return at ? at + len : NULL;
}

static uint64_t number(const char *line, const char *key)
{
	const char *at = field(line, key);

	return at ? strtoull(at, NULL, 10) : 0;
}

/** Of "fab3:1" the 3. */
static uint32_t rail(const char *line, const char *key)
{
	const char *at = field(line, key);
	unsigned value = 0;

	return at && sscanf(at, "\"%*[a-z]%u", &value) == 1 ? value : UINT32_MAX;
}

static bool text_is(const char *line, const char *key, const char *text)
{
	const char *at = field(line, key);
	size_t len = strlen(text);

	return at && *at == '"' && strncmp(at + 1, text, len) == 0 && at[1 + len] == '"';
}

/** The rank whose process the peer is: "node:4711 at ..." */
static uint32_t peer_rank(const struct watch *watch, const char *line)
{
	const char *at = field(line, "peer");
	int pid = 0;

	if (at && sscanf(at, "\"%*[^:\"]:%d", &pid) == 1) {
		for (uint32_t rank = 0; rank < watch->children->count; rank++) {
			if (watch->children->pids[rank] == pid) {
				return rank;
			}
		}
	}
	return UINT32_MAX;
}

static struct watch_path *path_of(struct watch *watch, uint32_t rank, const char *line)
{
	uint64_t comm = number(line, "comm");
	uint32_t idx = (uint32_t)number(line, "path");

	for (uint32_t i = 0; i < watch->count; i++) {
		struct watch_path *path = &watch->paths[i];

		if (path->rank == rank && path->comm == comm && path->path == idx) {
			return path;
		}
	}
	if (watch->count == WATCH_PATHS_MAX) {
		return NULL;
	}
	struct watch_path *path = &watch->paths[watch->count++];

	*path = (struct watch_path){
		.rank = rank,
		.peer = peer_rank(watch, line),
		.comm = comm,
		.path = idx,
		.local = rail(line, "local"),
		.remote = rail(line, "remote"),
		.is_up = true,
	};
	return path;
}

static enum watch_kind kind_of(const char *line)
{
	static const struct {
		const char *name;
		enum watch_kind kind;
	} kinds[] = {
		{"path_fault", WATCH_FAULT},
		{"path_down", WATCH_DOWN},
		{"path_up", WATCH_UP},
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (text_is(line, "event", kinds[i].name)) {
			return kinds[i].kind;
		}
	}
	return WATCH_OTHER;
}

struct watch_event watch_line(struct watch *watch, uint32_t rank, const char *line)
{
	struct watch_event event = {.kind = kind_of(line)};

	if (event.kind == WATCH_OTHER) {
		return event;
	}
	struct watch_path *path = path_of(watch, rank, line);

	if (!path) {
		return (struct watch_event){.kind = WATCH_OTHER};
	}
	path->is_up = event.kind == WATCH_UP;
	event.path = path;
	event.mono_ns = number(line, "mono_ns");
	event.replayed_bytes = number(line, "bytes_replayed");
	return event;
}
