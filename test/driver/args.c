/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/args_read.h"
#include "test/driver/train.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum key {
	KEY_PLUGIN = 'p',
	KEY_API = 'a',
	KEY_RANKS = 'n',
	KEY_OP = 'o',
	KEY_SIZES = 's',
	KEY_ITERS = 'i',
	KEY_PROTO = 'P',
	KEY_JSON = 'j',
	KEY_FABRIC = 'f',
	KEY_QUIET = 'q',
	KEY_RAILS = 'r',
	KEY_CHANNELS = 0x100,
	KEY_DEV,
	KEY_SLICE,
	KEY_RATE,
	KEY_LATENCY,
	KEY_LINK,
	KEY_WIRING,
	KEY_SAMPLES,
	KEY_FAULT,
	KEY_FAULT_ITER,
	KEY_FAULT_PHASE,
	KEY_SEED,
	KEY_TIMEOUT,
	KEY_LINGER,
	KEY_TRAIN,
	KEY_TRAIN_ONLY,
	KEY_TRAIN_LOG,
	KEY_TRAIN_TIMED,
	KEY_SELF_TEST,
	KEY_KEEP,
	KEY_BRIEF,
	KEY_FLUSH,
	KEY_CHURN,
	KEY_CLOSE,
	KEY_ENV,
	KEY_RANK_ENV,
	KEY_WRAPPER,
	KEY_AT,
	KEY_KILL,
	KEY_ABORT,
	KEY_STOP,
	KEY_EXPECT,
	KEY_RANK,
	KEY_SHM,
};

static const struct argp_option option_table[] = {
	{"plugin", KEY_PLUGIN, "PATH", 0, "The plugin to load, as NCCL would (required)", 1},
	{"api", KEY_API, "N", 0, "Net API version: 6 to 12 (default 8)", 1},
	{"env", KEY_ENV, "NAME=VALUE", 0, "Environment for the ranks; may be repeated", 1},
	{"env-rank", KEY_RANK_ENV, "R:NAME=VALUE", 0, "The same for rank R alone", 1},
	{"wrapper", KEY_WRAPPER, "COMMAND", 0,
	 "Shell words in front of each rank's own command, $RANK is its number: to start it "
	 "elsewhere, as 'ip netns exec host$RANK'",
	 1},
	{"ranks", KEY_RANKS, "N", 0, "Number of processes, 2 to 16 (default 2)", 2},
	{"op", KEY_OP, "LIST", 0,
	 "allreduce, alltoall, sendrecv, stream (one way) or all (default allreduce)", 2},
	{"sizes", KEY_SIZES, "LIST", 0,
	 "Bytes of each rank's buffer, suffixes K M G (default 0,8,4K,1M)", 2},
	{"iters", KEY_ITERS, "K", 0, "Iterations per operation, size and protocol (default 4)", 2},
	{"proto", KEY_PROTO, "LIST", 0,
	 "simple, ll, direct, all, or mix: another one in every iteration (default simple)", 2},
	{"channels", KEY_CHANNELS, "N", 0, "Connections per peer and direction, 1 to 4", 2},
	{"dev", KEY_DEV, "N", 0, "Device for every connection (default: channel modulo devices)",
	 2},
	{"direct-slice", KEY_SLICE, "BYTES", 0, "Longest message of direct (default 1G)", 2},
	{"flush", KEY_FLUSH, NULL, 0, "Call iflush after each receive of simple", 2},
	{"reg-churn", KEY_CHURN, NULL, 0,
	 "Register and deregister memory from the service thread while data moves", 2},
	{"close-at-once", KEY_CLOSE, NULL, 0,
	 "After the last iteration each rank closes without waiting for the others", 2},
	{"fabric-lib", KEY_FABRIC, "DIR", 0, "Folder with the stand-in libibverbs.so.1", 3},
	{"rails", KEY_RAILS, "R", 0, "HCAs per host (default 2)", 3},
	{"rate", KEY_RATE, "MBPS", 0, "MB/s per rail, one or a comma list, 0 = unlimited", 3},
	{"latency", KEY_LATENCY, "US", 0, "One-way latency in microseconds", 3},
	{"link", KEY_LINK, "ib|roce", 0, "Link layer", 3},
	{"wiring", KEY_WIRING, "full|rail", 0, "Which rails reach each other", 3},
	{"fault", KEY_FAULT, "RULE", 0, "Fault rule for the fabric; may be repeated", 4},
	{"fault-iter", KEY_FAULT_ITER, "I", 0,
	 "Install the --fault options after this one before iteration I, counted from 0 over the "
	 "whole run; byte counts in a rule start there",
	 4},
	{"fault-at-phase", KEY_FAULT_PHASE, "PERCENT", 0,
	 "Install the --fault options after this one once PERCENT of the iteration has arrived", 4},
	{"at", KEY_AT, "ITER[+PERCENT]:COMMAND", 0,
	 "Run COMMAND with sh before iteration ITER, or once PERCENT of it has arrived; the run "
	 "fails if the command does. RUN_DIR names the run's folder. May be repeated",
	 4},
	{"kill", KEY_KILL, "RANK@ITER[+PERCENT]", 0, "SIGKILL a rank in an iteration", 4},
	{"abort", KEY_ABORT, "RANK@ITER[+PERCENT]", 0,
	 "The rank closes all connections with requests outstanding, as ncclCommAbort does", 4},
	{"stop", KEY_STOP, "RANK@ITER[+PERCENT]:MS", 0, "SIGSTOP a rank for MS milliseconds", 4},
	{"expect", KEY_EXPECT, "ok|calm|remote[:MS]", 0,
	 "remote: pass if all surviving ranks get ncclRemoteError within MS of --kill or --abort "
	 "(2000), and again whatever they call; calm: pass if no path was failed over",
	 4},
	{"train", KEY_TRAIN, "SEED:COUNT[:FIRST]", 0,
	 "Draw COUNT faults from SEED and mend them, one episode after the other, from episode "
	 "FIRST "
	 "on; --iters is only a bound then. See test/driver/train.h",
	 4},
	{"train-only", KEY_TRAIN_ONLY, "LIST", 0, "Classes of faults that are drawn (all)", 4},
	{"train-timed", KEY_TRAIN_TIMED, NULL, 0,
	 "Faults come at once or by the clock, not at bytes: for rails that only stand by", 4},
	{"train-log", KEY_TRAIN_LOG, "FILE", 0, "What became of each fault, a line each", 4},
	{"self-test", KEY_SELF_TEST, "corrupt", 0, "Flip one element on one rank: must fail", 4},
	{"json", KEY_JSON, "FILE", 0, "Write a summary", 5},
	{"samples", KEY_SAMPLES, "FILE", 0, "Write byte counters every 5 ms as CSV", 5},
	{"brief", KEY_BRIEF, NULL, 0, "Print one line of NAME=VALUE at the end, no iterations", 5},
	{"quiet", KEY_QUIET, NULL, 0, "Print the verdict only", 5},
	{"keep", KEY_KEEP, NULL, 0, "Keep the run's folder", 5},
	{"seed", KEY_SEED, "S", 0, "Seed of the data and of the fabric (default 1)", 6},
	{"timeout", KEY_TIMEOUT, "SEC", 0, "Longest phase or iteration (default 60)", 6},
	{"linger", KEY_LINGER, "MS", 0,
	 "Wait between close and the last look for late writes (default 0)", 6},
	{"rank", KEY_RANK, "R", OPTION_HIDDEN, NULL, 9},
	{"shm-fd", KEY_SHM, "FD", OPTION_HIDDEN, NULL, 9},
	{NULL, 0, NULL, 0, NULL, 0},
};

static const char *op_name_at(unsigned i)
{
	return op_name((enum op_kind)i);
}

static const char *proto_name_at(unsigned i)
{
	return proto_name((enum proto_kind)i);
}

static error_t traffic_option(int key, char *arg, struct argp_state *state)
{
	struct options *opt = ((struct parse *)state->input)->opt;

	switch (key) {
	case KEY_RANKS:
		opt->rank_count = (uint32_t)args_number_read(state, arg, OPT_RANKS_MAX);
		return 0;
	case KEY_CHANNELS:
		opt->channel_count = (uint32_t)args_number_read(state, arg, OPT_CHANNELS_MAX);
		return 0;
	case KEY_OP:
		if (!args_names_read(arg, op_name_at, OP_KIND_COUNT, opt->ops)) {
			argp_error(state, "--op: unknown operation");
		}
		return 0;
	case KEY_PROTO:
		opt->mix = !strcmp(arg, "mix");
		if (!args_names_read(opt->mix ? (char[]){"all"} : arg, proto_name_at,
				     PROTO_KIND_COUNT, opt->protos)) {
			argp_error(state, "--proto: unknown protocol");
		}
		return 0;
	case KEY_SIZES:
		args_sizes_read(state, opt, arg);
		return 0;
	case KEY_ITERS:
		opt->iter_count = (uint32_t)args_number_read(state, arg, 1000000);
		return 0;
	case KEY_DEV:
		opt->dev = (int)args_number_read(state, arg, 63);
		return 0;
	case KEY_SLICE:
		opt->direct_slice_bytes = args_number_read(state, arg, 1ULL << 30) & ~127ULL;
		return 0;
	case KEY_FLUSH:
		opt->flush = true;
		return 0;
	case KEY_CHURN:
		opt->reg_churn = true;
		return 0;
	case KEY_CLOSE:
		opt->close_at_once = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t trouble_option(int key, char *arg, struct argp_state *state)
{
	struct parse *parse = state->input;
	struct options *opt = parse->opt;

	switch (key) {
	case KEY_FAULT:
		args_fault_add(state, parse, arg);
		return 0;
	case KEY_FAULT_ITER:
		parse->fault_iter = (uint32_t)args_number_read(state, arg, 1000000);
		parse->fault_percent = 0;
		return 0;
	case KEY_FAULT_PHASE:
		parse->fault_percent = (uint32_t)args_number_read(state, arg, 99);
		return 0;
	case KEY_AT:
		args_command_read(state, opt, arg);
		return 0;
	case KEY_KILL:
		args_signal_read(state, &opt->kill, arg, false);
		return 0;
	case KEY_ABORT:
		args_signal_read(state, &opt->kill, arg, false);
		opt->kill.is_abort = true;
		return 0;
	case KEY_STOP:
		args_signal_read(state, &opt->stop, arg, true);
		return 0;
	case KEY_EXPECT:
		args_expect_read(state, opt, arg);
		return 0;
	case KEY_TRAIN:
		args_train_read(state, &opt->train, arg);
		return 0;
	case KEY_TRAIN_ONLY:
		args_classes_read(state, &opt->train, arg);
		return 0;
	case KEY_TRAIN_TIMED:
		opt->train.timed = true;
		return 0;
	case KEY_TRAIN_LOG:
		args_text_copy(state, opt->train.log, sizeof(opt->train.log), arg);
		return 0;
	case KEY_SELF_TEST:
		if (strcmp(arg, "corrupt") != 0) {
			argp_error(state, "--self-test takes corrupt");
		}
		opt->corrupt = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t fabric_option(int key, char *arg, struct argp_state *state)
{
	struct options *opt = ((struct parse *)state->input)->opt;

	switch (key) {
	case KEY_FABRIC:
		args_text_copy(state, opt->fabric_lib, sizeof(opt->fabric_lib), arg);
		return 0;
	case KEY_RAILS:
		opt->rail_count = (uint32_t)args_number_read(state, arg, 64);
		return 0;
	case KEY_RATE:
		args_text_copy(state, opt->rate_mbps, sizeof(opt->rate_mbps), arg);
		return 0;
	case KEY_LATENCY:
		opt->latency_us = (uint32_t)args_number_read(state, arg, 1000000);
		return 0;
	case KEY_LINK:
		args_text_copy(state, opt->link, sizeof(opt->link), arg);
		return 0;
	case KEY_WIRING:
		args_text_copy(state, opt->wiring, sizeof(opt->wiring), arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t output_option(int key, char *arg, struct argp_state *state)
{
	struct options *opt = ((struct parse *)state->input)->opt;

	switch (key) {
	case KEY_JSON:
		args_text_copy(state, opt->json, sizeof(opt->json), arg);
		return 0;
	case KEY_SAMPLES:
		args_text_copy(state, opt->samples, sizeof(opt->samples), arg);
		return 0;
	case KEY_BRIEF:
		opt->brief = true;
		return 0;
	case KEY_QUIET:
		opt->quiet = true;
		return 0;
	case KEY_KEEP:
		opt->keep = true;
		return 0;
	case KEY_SEED:
		opt->seed = (uint32_t)args_number_read(state, arg, UINT32_MAX);
		return 0;
	case KEY_TIMEOUT:
		opt->timeout_s = (uint32_t)args_number_read(state, arg, 86400);
		return 0;
	case KEY_LINGER:
		opt->linger_ms = (uint32_t)args_number_read(state, arg, 60000);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void options_check(const struct argp_state *state, const struct options *opt)
{
	if (!opt->plugin[0]) {
		argp_error(state, "--plugin is missing");
	}
	if (opt->api < 6 || opt->api > 12) {
		argp_error(state, "--api takes 6 to 12");
	}
	if (opt->rank_count < 2 || !opt->channel_count || !opt->iter_count || !opt->timeout_s) {
		argp_error(state, "at least 2 ranks, 1 channel, 1 iteration and 1 second");
	}
	if ((opt->kill.armed && opt->kill.rank >= opt->rank_count) ||
	    (opt->stop.armed && opt->stop.rank >= opt->rank_count)) {
		argp_error(state, "--kill, --stop: no such rank");
	}
	for (uint32_t i = 0; i < opt->rank_env_count; i++) {
		if (opt->rank_envs[i].rank >= opt->rank_count) {
			argp_error(state, "--env-rank: no such rank");
		}
	}
	if (opt->fault_count && !opt->fabric_lib[0]) {
		argp_error(state, "--fault needs --fabric-lib");
	}
	if (opt->train.armed &&
	    (!opt->fabric_lib[0] || opt->rail_count < 2 || opt->rail_count > TRAIN_RAILS_MAX ||
	     strchr(opt->rate_mbps, ','))) {
		argp_error(state, "--train needs --fabric-lib, 2 to %d rails and one --rate",
			   TRAIN_RAILS_MAX);
	}
	if (opt->expect == EXPECT_REMOTE && !opt->kill.armed) {
		argp_error(state, "--expect remote needs --kill or --abort");
	}
}

static error_t option_parse(int key, char *arg, struct argp_state *state)
{
	static error_t (*const groups[])(int, char *, struct argp_state *) = {
		traffic_option, trouble_option, fabric_option, output_option};
	struct options *opt = ((struct parse *)state->input)->opt;

	switch (key) {
	case KEY_PLUGIN:
		args_text_copy(state, opt->plugin, sizeof(opt->plugin), arg);
		return 0;
	case KEY_API:
		opt->api = (int)args_number_read(state, arg, 99);
		return 0;
	case KEY_ENV:
		if (opt->env_count == OPT_ENVS_MAX || !strchr(arg, '=')) {
			argp_error(state, "--env NAME=VALUE, at most %d", OPT_ENVS_MAX);
		}
		args_text_copy(state, opt->envs[opt->env_count++], OPT_TEXT_MAX, arg);
		return 0;
	case KEY_RANK_ENV:
		args_rank_env_read(state, opt, arg);
		return 0;
	case KEY_WRAPPER:
		args_text_copy(state, opt->wrapper, sizeof(opt->wrapper), arg);
		return 0;
	case KEY_RANK:
		opt->rank = (int)args_number_read(state, arg, OPT_RANKS_MAX - 1);
		return 0;
	case KEY_SHM:
		opt->shm_fd = (int)args_number_read(state, arg, INT_MAX);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", arg);
		return 0;
	case ARGP_KEY_END:
		if (opt->rank < 0) {
			options_check(state, opt);
		}
		return 0;
	default:
		for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
			if (groups[i](key, arg, state) == 0) {
				return 0;
			}
		}
		return ARGP_ERR_UNKNOWN;
	}
}

void options_parse(struct options *opt, int argc, char **argv)
{
	static const struct argp argp = {
		option_table,
		option_parse,
		NULL,
		"Play NCCL against a net plugin: start N ranks, move data the way NCCL does, and "
		"check every element, the memory around it and everything that must stay "
		"untouched.\v"
		"Exit status: 0 only if everything was verified, 1 if not, 2 for a bad command "
		"line. NCCL_DEBUG sets how much of the plugin's log is printed.\n\n"
		"Example: two ranks, four rails, one of them cut after 10 MB of iteration 3:\n"
		"  braid_driver -p ./libnccl-net-braid.so -f ./fabric -r 4 -s 64M -i 8 \\\n"
		"    --fault-iter 3 --fault 'cut host=0 rail=1 bytes=10000000'",
		NULL,
		NULL,
		NULL};
	struct parse parse = {.opt = opt};

	*opt = (struct options){
		.api = 8,
		.dev = -1,
		.rank_count = 2,
		.channel_count = 1,
		.ops = {[OP_ALLREDUCE] = true},
		.protos = {[PROTO_SIMPLE] = true},
		.sizes = {0, 8, 4096, 1 << 20},
		.size_count = 4,
		.iter_count = 4,
		.direct_slice_bytes = 1ULL << 30,
		.rail_count = 2,
		.seed = 1,
		.timeout_s = 60,
		.expect_ms = 2000,
		.train = {.class_mask = UINT64_MAX},
		.rank = -1,
		.shm_fd = -1,
	};
	argp_parse(&argp, argc, argv, 0, NULL, &parse);
}
