/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/gpu.h"
#include "test/nccl/matrix/launcher.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const struct argp_option options[] = {
	{"ranks", 'n', "N", 0, "Ranks, each a process (2 to 8; default 2)", 0},
	{"hosts", 'H', "N", 0, "Emulated hosts they are spread over (default: one each)", 0},
	{"plan", 'p', "FILE", 0, "What to do; README.md has the language", 0},
	{"nccl", 'l', "FILE", 0, "libnccl.so.2 to open (default: found by the loader)", 0},
	{"step-limit", 's', "SECONDS", 0, "Longest one collective may take (default 60)", 0},
	{"limit", 'L', "SECONDS", 0, "Longest the job may take (default 300)", 0},
	{"corrupt", 'c', "LINE", 0, "Self-test: spoil one element at this line of the plan", 0},
	{"logs", 'o', "DIR", 0, "Standard error of rank R goes to DIR/err.R", 0},
	{0},
};

static error_t take(int key, char *arg, struct argp_state *state)
{
	struct launcher_options *opts = state->input;

	switch (key) {
	case 'n':
		opts->rank_count = atoi(arg);
		return 0;
	case 'H':
		opts->host_count = atoi(arg);
		return 0;
	case 'p':
		opts->plan_path = arg;
		return 0;
	case 'l':
		opts->nccl_path = arg;
		return 0;
	case 's':
		opts->step_limit_ms = (uint64_t)atoi(arg) * 1000;
		return 0;
	case 'L':
		opts->limit_ms = (uint64_t)atoi(arg) * 1000;
		return 0;
	case 'c':
		opts->corrupt_line = atoi(arg);
		return 0;
	case 'o':
		opts->log_dir = arg;
		return 0;
	case ARGP_KEY_END:
		if (opts->plan_path == NULL) {
			argp_error(state, "which plan? --plan FILE");
		}
		if (opts->rank_count < 2 || opts->rank_count > VALUE_MAX_RANKS) {
			argp_error(state, "--ranks must be 2 to %d", VALUE_MAX_RANKS);
		}
		if (opts->host_count == 0) {
			opts->host_count = opts->rank_count;
		}
		if (opts->host_count < 1 || opts->rank_count % opts->host_count != 0) {
			argp_error(state, "--hosts must divide --ranks");
		}
		if (opts->step_limit_ms == 0 || opts->limit_ms == 0) {
			argp_error(state, "limits are whole seconds above 0");
		}
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = take,
		.doc = "Walks a plan of NCCL collectives in several ranks, each taken by NCCL for "
		       "a "
		       "machine of its own, checks every element of every result, and prints a "
		       "line "
		       "of JSON a step. Exit status 0: all right; 1: not; 77: no GPU.",
	};
	struct launcher_options opts = {
		.rank_count = 2, .step_limit_ms = 60000, .limit_ms = 300000, .corrupt_line = -1};

	if (argp_parse(&argp, argc, argv, 0, NULL, &opts) != 0) {
		return 1;
	}
	return launcher_run(&opts);
}
