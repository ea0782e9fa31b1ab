/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/path_list.h"

#include "include/cause.h"
#include "plugin/comm.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
	MORE_BYTES = sizeof(", and 16 more")
};

struct list {
	char *text;
	size_t len_bytes, room_bytes; /* room: without that for MORE_BYTES */
};

/* Whole or not at all. */
static bool __attribute__((format(printf, 2, 3))) add(struct list *list, const char *format, ...)
{
	size_t room_bytes = list->room_bytes - list->len_bytes;
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(list->text + list->len_bytes, room_bytes, format, args);
	va_end(args);
	if (len < 0 || (size_t)len >= room_bytes) {
		list->text[list->len_bytes] = '\0';
		return false;
	}
	list->len_bytes += (size_t)len;
	return true;
}

static enum cause why(const struct repair_path *path)
{
	return path->state == PATH_DOWN ? path->down_cause : path->cause;
}

static bool add_path(struct list *list, const struct comm *comm, unsigned int p, bool is_first)
{
	const struct repair_path *path = &comm->end.paths[p];
	const char *local = comm->paths[p].rail->label;
	const char *remote = comm->paths[p].peer_rail.name;

	if (!is_first) {
		return add(list, ", %s-%s", local, remote);
	}
	if (why(path) == CAUSE_NONE) {
		return add(list, "%s%s: %s-%s", list->len_bytes ? "; " : "",
			   path_state_name(path->state), local, remote);
	}
	return add(list, "%s%s (%s): %s-%s", list->len_bytes ? "; " : "",
		   path_state_name(path->state), cause_name(why(path)), local, remote);
}

void path_list_write(const struct comm *comm, char *text, size_t size_bytes)
{
	struct list list = {.text = text, .room_bytes = size_bytes - MORE_BYTES};
	unsigned int listed_mask = 0, left_count = 0;

	text[0] = '\0';
	for (unsigned int first = 0; first < comm->path_count; first++) {
		const struct repair_path *fate = &comm->end.paths[first];

		for (unsigned int p = first; p < comm->path_count; p++) {
			const struct repair_path *path = &comm->end.paths[p];

			if (listed_mask >> p & 1 || path->state != fate->state ||
			    why(path) != why(fate)) {
				continue;
			}
			left_count += !add_path(&list, comm, p, p == first);
			listed_mask |= 1u << p;
		}
	}
	if (left_count > 0) {
		snprintf(text + list.len_bytes, size_bytes - list.len_bytes, "%sand %u more",
			 list.len_bytes ? ", " : "", left_count);
	}
}
