/* SPDX-License-Identifier: Apache-2.0 */
#include "test/sim/sim.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	LINES_SHOWN = 120,
	KEY_MARKS = 256,
	KEY_BITES,
	KEY_STEPS
};

struct args {
	uint64_t seed, run_count;
	bool trace, need_marks, bites;
	const char *steps_path;
};

static const struct argp_option options[] = {
	{"seed", 's', "N", 0, "first seed (default 1)", 0},
	{"runs", 'r', "N", 0, "number of seeds, one run each (default 1)", 0},
	{"trace", 't', NULL, 0, "print what happens", 0},
	{"need-marks", KEY_MARKS, NULL, 0, "fail when one of the rare situations never came up", 0},
	{"expect-failure", KEY_BITES, NULL, 0,
	 "for broken builds: succeed when a run fails, fail when all hold", 0},
	{"trace-steps", KEY_STEPS, "FILE", 0,
	 "write each step of a path to FILE: seed, comm, end, path, state, event, new state, state "
	 "of the other end, lead of the own epoch",
	 0},
	{0}};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct args *args = state->input;

	switch (key) {
	case 's':
		args->seed = strtoull(arg, NULL, 0);
		return 0;
	case 'r':
		args->run_count = strtoull(arg, NULL, 0);
		return 0;
	case 't':
		args->trace = true;
		return 0;
	case KEY_MARKS:
		args->need_marks = true;
		return 0;
	case KEY_BITES:
		args->bites = true;
		return 0;
	case KEY_STEPS:
		args->steps_path = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Counts runs in which each situation came up; returns how many never did. */
static unsigned int print_marks(const uint64_t *counts)
{
	static const struct {
		const char *name, *text;
	} marks[] = {
#define MARK_ROW(name, text) {#name, text},
		MARK_LIST(MARK_ROW)
#undef MARK_ROW
	};
	unsigned int missing = 0;

	for (unsigned int m = 0; m < MARK_COUNT; m++) {
		printf("%9llu  %-18s %s\n", (unsigned long long)counts[m], marks[m].name,
		       marks[m].text);
		missing += counts[m] == 0;
	}
	return missing;
}

static void show_failure(struct sim *sim, uint64_t seed)
{
	printf("seed %llu failed: %s\n", (unsigned long long)seed, sim->failure);
	if (sim->trace.live) {
		return;
	}
	sim->trace.on = true; /* the same run once more, this time noting what happens */
	sim_run(sim, seed);
	trace_print(&sim->trace, LINES_SHOWN);
	if (sim->sibling && sim->sibling->failed) {
		printf("the second comm:\n");
		trace_print(&sim->sibling->trace, LINES_SHOWN);
	}
	printf("seed %llu failed: %s\nall of it: --seed %llu --trace\n", (unsigned long long)seed,
	       sim->failure, (unsigned long long)seed);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int run_all(struct sim *sim, const struct args *args)
{
	static uint64_t counts[MARK_COUNT];
	double start = now_s();
	unsigned int missing;

	for (uint64_t i = 0; i < args->run_count; i++) {
		uint64_t seed = args->seed + i;

		memset(sim->marks, 0, sizeof(sim->marks));
		if (!sim_run(sim, seed)) {
			if (args->bites) {
				printf("found by run %llu: seed %llu: %s\n",
				       (unsigned long long)i + 1, (unsigned long long)seed,
				       sim->failure);
				return 0;
			}
			show_failure(sim, seed);
			return 1;
		}
		for (unsigned int m = 0; m < MARK_COUNT; m++) {
			counts[m] += sim->marks[m / 64] >> m % 64 & 1;
		}
	}
	if (args->bites) {
		printf("%llu runs held, though the code is broken on purpose\n",
		       (unsigned long long)args->run_count);
		return 1;
	}
	missing = print_marks(counts);
	printf("%llu runs held, %.0f a second\n", (unsigned long long)args->run_count,
	       (double)args->run_count / (now_s() - start));
	if (args->need_marks && missing) {
		printf("%u situations never came up\n", missing);
		return 1;
	}
	return 0;
}

/* run_all() with the steps written to a file. */
static int run_traced(struct sim *sim, const struct args *args)
{
	FILE *out = fopen(args->steps_path, "w");
	int rc;

	if (!out) {
		perror(args->steps_path);
		return 2;
	}
	trace_steps(sim, out);
	rc = run_all(sim, args);
	trace_steps(NULL, NULL);
	if (ferror(out) | fclose(out)) {
		perror(args->steps_path);
		return 2;
	}
	return rc;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		options,
		parse,
		NULL,
		"Both ends of a comm over a simulated network, one seed, one run. Byte-exact "
		"checks, late writes, bounded progress.",
		NULL,
		NULL,
		NULL};
	struct args args = {.seed = 1, .run_count = 1};
	struct sim *sim;
	int rc;

	if (argp_parse(&argp, argc, argv, 0, NULL, &args)) {
		return 2;
	}
	sim = calloc(2, sizeof(*sim));
	if (!sim) {
		perror("calloc");
		return 2;
	}
	sim->trace.on = args.trace;
	sim->trace.live = args.trace;
	rc = args.steps_path ? run_traced(sim, &args) : run_all(sim, &args);
	free(sim);
	return rc;
}
