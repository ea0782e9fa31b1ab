/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/tally.h"

#include <stdarg.h>
#include <stdio.h>

const char *tally_name(enum tally_kind kind)
{
#define TALLY_NAME(id, name, help) [TALLY_##id] = name,
	static const char *const names[TALLY_KIND_COUNT] = {TALLY_TABLE(TALLY_NAME)};
#undef TALLY_NAME

	return names[kind];
}

uint64_t tally_read(const struct tally *tally, enum tally_kind kind)
{
	return atomic_load_explicit(&tally->count[kind], memory_order_acquire);
}

void tally_add(struct tally *tally, int rank, enum tally_kind kind, uint64_t n, const char *fmt,
	       ...)
{
	char line[sizeof(tally->first[0])];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	if (atomic_fetch_add_explicit(&tally->count[kind], n, memory_order_acq_rel) == 0) {
		snprintf(tally->first[kind], sizeof(tally->first[kind]), "%s", line);
		if (kind != TALLY_WARN) {
			fprintf(stderr, "rank %d: %s: %s\n", rank, tally_name(kind), line);
		}
	}
}
