/* SPDX-License-Identifier: Apache-2.0 */
#include "test/sim/trace.h"

#include <stdarg.h>
#include <stdio.h>

void trace_add(struct trace *trace, uint64_t now_ns, const char *fmt, ...)
{
	char *line = trace->lines[trace->count++ % TRACE_LINES];
	int used = snprintf(line, TRACE_LINE_BYTES, "%11.6f ms  ", (double)now_ns / 1e6);
	va_list args;

	va_start(args, fmt);
	vsnprintf(line + used, TRACE_LINE_BYTES - (size_t)used, fmt, args);
	va_end(args);
	if (trace->live) {
		puts(line);
	}
}

void trace_print(const struct trace *trace, uint64_t count)
{
	uint64_t first;

	count = count > TRACE_LINES ? TRACE_LINES : count;
	first = trace->count > count ? trace->count - count : 0;
	for (uint64_t i = first; i < trace->count; i++) {
		puts(trace->lines[i % TRACE_LINES]);
	}
}
