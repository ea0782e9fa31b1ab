/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_SIM_TRACE_H
#define BRAID_SIM_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct sim;

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

/**
 * Write each step that path_apply() makes in the runs of sim to out: a line of seed, comm, end (tx,
 * rx), path, state, event, new state, the other end's state, and by how much its own epoch is
 * ahead. Steps without a change of state and without an action are left out. NULL: off. The
 * executable is linked with --wrap=path_apply.
 */
void trace_steps(const struct sim *sim, FILE *out);

#define TRACE(sim, ...)                                                                            \
	do {                                                                                       \
		if ((sim)->trace.on) {                                                             \
			trace_add(&(sim)->trace, (sim)->now_ns, __VA_ARGS__);                      \
		}                                                                                  \
	} while (0)

#endif
