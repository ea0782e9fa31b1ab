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

struct step {
	const struct repair_path *path; /* after it */
	enum path_state before;
	enum path_event event;
	bool is_legal;
};

/* Nothing when the path is none of this end's. */
static void write_step(const struct sim *sim, unsigned int comm, unsigned int side,
		       const struct step *step)
{
	const struct repair_end *own = sim->hosts[side].end;
	const struct repair_end *peer = sim->hosts[!side].end;

	for (unsigned int p = 0; p < own->path_count; p++) {
		if (step->path == &own->paths[p]) {
			fprintf(steps_out, "%llu %u %s %u %s %s %s %s %d\n",
				(unsigned long long)steps_sim->conf.seed, comm,
				side == SIDE_TX ? "tx" : "rx", p, path_state_name(step->before),
				path_event_name(step->event),
				step->is_legal ? path_state_name(step->path->state) : "ILLEGAL",
				path_state_name(peer->paths[p].state),
				(int)step->path->epoch - (int)peer->paths[p].epoch);
		}
	}
}

/* The linker sends the calls of repair/ here. */
int __real_path_apply(struct repair_path *path, enum path_event event);
int __wrap_path_apply(struct repair_path *path, enum path_event event);

int __wrap_path_apply(struct repair_path *path, enum path_event event)
{
	struct step step = {.path = path, .before = path->state, .event = event};
	int actions = __real_path_apply(path, event);

	if (!steps_out || (actions == PATH_ACT_NONE && path->state == step.before)) {
		return actions;
	}
	step.is_legal = actions >= 0;
	for (unsigned int side = 0; side < SIDE_COUNT; side++) {
		write_step(steps_sim, 0, side, &step);
		if (steps_sim->sibling) {
			write_step(steps_sim->sibling, 1, side, &step);
		}
	}
	return actions;
}
