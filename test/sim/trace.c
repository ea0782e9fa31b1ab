/* SPDX-License-Identifier: Apache-2.0 */
#include "test/sim/trace.h"

#include "test/sim/sim.h"

#include <stdarg.h>

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

static const struct sim *steps_sim;
static FILE *steps_out;

void trace_steps(const struct sim *sim, FILE *out)
{
	steps_sim = sim;
	steps_out = out;
}

/* The linker sends the calls of repair/ here. */
int __real_path_apply(struct repair_path *path, enum path_event event);
int __wrap_path_apply(struct repair_path *path, enum path_event event);

int __wrap_path_apply(struct repair_path *path, enum path_event event)
{
	enum path_state before = path->state;
	int actions = __real_path_apply(path, event);

	if (!steps_out || (actions == PATH_ACT_NONE && path->state == before)) {
		return actions;
	}
	for (unsigned int side = 0; side < SIDE_COUNT; side++) {
		const struct repair_end *own = steps_sim->hosts[side].end;
		const struct repair_end *peer = steps_sim->hosts[!side].end;

		for (unsigned int p = 0; p < own->path_count; p++) {
			if (path == &own->paths[p]) {
				fprintf(steps_out, "%llu %s %u %s %s %s %s %d\n",
					(unsigned long long)steps_sim->conf.seed,
					side == SIDE_TX ? "tx" : "rx", p, path_state_name(before),
					path_event_name(event),
					actions < 0 ? "ILLEGAL" : path_state_name(path->state),
					path_state_name(peer->paths[p].state),
					(int)path->epoch - (int)peer->paths[p].epoch);
			}
		}
	}
	return actions;
}
