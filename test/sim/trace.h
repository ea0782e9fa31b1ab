/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_SIM_TRACE_H
#define BRAID_SIM_TRACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	TRACE_LINES = 4096,
	TRACE_LINE_BYTES = 160
};

/** Ring of the last lines of a run; off unless somebody wants to read it. */
struct trace {
	bool on, live; /* live: print at once */
	uint64_t count;
	char lines[TRACE_LINES][TRACE_LINE_BYTES];
};

void trace_add(struct trace *trace, uint64_t now_ns, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/** Print the last count lines. */
void trace_print(const struct trace *trace, uint64_t count);

#define TRACE(sim, ...)                                                                            \
	do {                                                                                       \
		if ((sim)->trace.on) {                                                             \
			trace_add(&(sim)->trace, (sim)->now_ns, __VA_ARGS__);                      \
		}                                                                                  \
	} while (0)

#endif
