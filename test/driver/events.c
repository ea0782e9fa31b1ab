/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void line_read(struct events *events, uint32_t rank, const char *line)
{
	static const char key[] = "\"bytes_replayed\":";
	const char *at = strstr(line, key);

	events->line_count++;
	if (at) {
		events->replayed_bytes += strtoull(at + sizeof(key) - 1, NULL, 10);
	}
	if (strstr(line, "\"event\":\"path_fault\"")) {
		events->fault_count++;
	}
	if (events->on_line) {
		events->on_line(events->on_line_arg, rank, line);
	}
}

static void file_read(struct events *events, uint32_t rank)
{
	char path[PATH_MAX + 32];
	char line[4096];

	snprintf(path, sizeof(path), "%s/events.rank%u.jsonl", events->dir, rank);
	FILE *file = fopen(path, "r");

	if (!file) {
		return;
	}
	if (fseek(file, events->offset[rank], SEEK_SET) == 0) {
		while (fgets(line, sizeof(line), file) && strchr(line, '\n')) {
			line_read(events, rank, line);
			events->offset[rank] = ftell(file);
		}
	}
	fclose(file);
}

void events_poll(struct events *events, uint32_t rank_count)
{
	for (uint32_t rank = 0; rank < rank_count; rank++) {
		file_read(events, rank);
	}
}
