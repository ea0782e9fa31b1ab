/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/options.h"

#include <argp.h>
#include <errno.h>
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
	{"op", KEY_OP, "LIST", 0, "allreduce, alltoall, sendrecv or all (default allreduce)", 2},
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
	{"stop", KEY_STOP, "RANK@ITER[+PERCENT]:MS", 0, "SIGSTOP a rank for MS milliseconds", 4},
	{"expect", KEY_EXPECT, "ok|remote[:MS]", 0,
	 "remote: pass if all surviving ranks get ncclRemoteError within MS of --kill (2000)", 4},
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

/** State while parsing: what the next --fault takes along. */
struct parse {
	struct options *opt;
	uint32_t fault_iter;
	uint32_t fault_percent;
};

static uint64_t number_read(const struct argp_state *state, const char *text, uint64_t max)
{
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	unsigned shift = 0;

	if (*end == 'K' || *end == 'k') {
		shift = 10;
	} else if (*end == 'M' || *end == 'm') {
		shift = 20;
	} else if (*end == 'G' || *end == 'g') {
		shift = 30;
	}
	end += shift ? 1 : 0;
	if (errno || end == text || *end || *text == '-' || value > (max >> shift)) {
		argp_error(state, "'%s' is not a number up to %llu", text, (unsigned long long)max);
	}
	return (uint64_t)value << shift;
}

static void text_copy(const struct argp_state *state, char *to, size_t cap, const char *text)
{
	if ((size_t)snprintf(to, cap, "%s", text) >= cap) {
		argp_error(state, "'%s' is longer than %zu characters", text, cap - 1);
	}
}

static void sizes_read(const struct argp_state *state, struct options *opt, char *list)
{
	char *save = NULL;

	opt->size_count = 0;
	for (char *word = strtok_r(list, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		uint64_t bytes = number_read(state, word, 1ULL << 32);

		if (bytes % 4 || opt->size_count == OPT_SIZES_MAX) {
			argp_error(state, "size %s: a multiple of 4, at most %d sizes", word,
				   OPT_SIZES_MAX);
		}
		opt->sizes[opt->size_count++] = bytes;
	}
	if (!opt->size_count) {
		argp_error(state, "--sizes is empty");
	}
}

/** Set flags[i] for each name in list; "all" sets every one. False for an unknown word or none. */
static bool names_read(char *list, const char *(*name)(unsigned), unsigned count, bool *flags)
{
	char *save = NULL;
	bool some = false;

	memset(flags, 0, count * sizeof(*flags));
	for (char *word = strtok_r(list, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		bool all = !strcmp(word, "all");
		bool known = all;

		for (unsigned i = 0; i < count; i++) {
			if (all || !strcmp(word, name(i))) {
				flags[i] = true;
				known = true;
			}
		}
		if (!known) {
			return false;
		}
		some = true;
	}
	return some;
}

static const char *op_name_at(unsigned i)
{
	return op_name((enum op_kind)i);
}

static const char *proto_name_at(unsigned i)
{
	return proto_name((enum proto_kind)i);
}

static void fault_add(const struct argp_state *state, const struct parse *parse, const char *rule)
{
	struct options *opt = parse->opt;

	if (opt->fault_count == OPT_FAULTS_MAX) {
		argp_error(state, "more than %d faults", OPT_FAULTS_MAX);
	}
	struct opt_fault *fault = &opt->faults[opt->fault_count++];

	text_copy(state, fault->rule, sizeof(fault->rule), rule);
	fault->iter = parse->fault_iter;
	fault->percent = parse->fault_percent;
}

/** RANK@ITER[+PERCENT][:MS] */
static void signal_read(const struct argp_state *state, struct opt_signal *signal, const char *text,
			bool with_pause)
{
	int used = 0;
	int more = 0;

	signal->percent = 0;
	if (sscanf(text, "%u@%u%n", &signal->rank, &signal->iter, &used) != 2 ||
	    (text[used] == '+' && sscanf(text + used, "+%u%n", &signal->percent, &more) != 1)) {
		argp_error(state, "'%s' is not RANK@ITER[+PERCENT]", text);
	}
	used += more;
	more = 0;
	if (with_pause && sscanf(text + used, ":%u%n", &signal->pause_ms, &more) != 1) {
		argp_error(state, "'%s' lacks :MS", text);
	}
	if (text[used + more] || signal->percent > 99) {
		argp_error(state, "'%s': cannot be read", text);
	}
	signal->armed = true;
}

/** ITER[+PERCENT]:COMMAND */
static void command_read(const struct argp_state *state, struct options *opt, const char *text)
{
	int used = 0;
	int more = 0;

	if (opt->command_count == OPT_COMMANDS_MAX) {
		argp_error(state, "more than %d commands", OPT_COMMANDS_MAX);
	}
	struct opt_command *command = &opt->commands[opt->command_count++];

	command->percent = 0;
	if (sscanf(text, "%u%n", &command->iter, &used) != 1 ||
	    (text[used] == '+' && sscanf(text + used, "+%u%n", &command->percent, &more) != 1) ||
	    text[used + more] != ':' || !text[used + more + 1] || command->percent > 99) {
		argp_error(state, "'%s' is not ITER[+PERCENT]:COMMAND", text);
	}
	text_copy(state, command->text, sizeof(command->text), text + used + more + 1);
}

/** R:NAME=VALUE */
static void rank_env_read(const struct argp_state *state, struct options *opt, const char *text)
{
	int used = 0;

	if (opt->rank_env_count == OPT_ENVS_MAX) {
		argp_error(state, "more than %d variables of ranks", OPT_ENVS_MAX);
	}
	struct opt_rank_env *env = &opt->rank_envs[opt->rank_env_count++];

	if (sscanf(text, "%u%n", &env->rank, &used) != 1 || text[used] != ':' ||
	    !strchr(text, '=')) {
		argp_error(state, "'%s' is not R:NAME=VALUE", text);
	}
	text_copy(state, env->text, sizeof(env->text), text + used + 1);
}

static void expect_read(const struct argp_state *state, struct options *opt, const char *text)
{
	int used = 0;

	if (!strcmp(text, "ok")) {
		opt->expect = EXPECT_OK;
	} else if (!strcmp(text, "remote")) {
		opt->expect = EXPECT_REMOTE;
	} else if (sscanf(text, "remote:%u%n", &opt->expect_ms, &used) == 1 && !text[used]) {
		opt->expect = EXPECT_REMOTE;
	} else {
		argp_error(state, "--expect takes ok or remote[:MS]");
	}
}

static error_t traffic_option(int key, char *arg, struct argp_state *state)
{
	struct options *opt = ((struct parse *)state->input)->opt;

	switch (key) {
	case KEY_RANKS:
		opt->rank_count = (uint32_t)number_read(state, arg, OPT_RANKS_MAX);
		return 0;
	case KEY_CHANNELS:
		opt->channel_count = (uint32_t)number_read(state, arg, OPT_CHANNELS_MAX);
		return 0;
	case KEY_OP:
		if (!names_read(arg, op_name_at, OP_KIND_COUNT, opt->ops)) {
			argp_error(state, "--op: unknown operation");
		}
		return 0;
	case KEY_PROTO:
		opt->mix = !strcmp(arg, "mix");
		if (!names_read(opt->mix ? (char[]){"all"} : arg, proto_name_at, PROTO_KIND_COUNT,
				opt->protos)) {
			argp_error(state, "--proto: unknown protocol");
		}
		return 0;
	case KEY_SIZES:
		sizes_read(state, opt, arg);
		return 0;
	case KEY_ITERS:
		opt->iter_count = (uint32_t)number_read(state, arg, 1000000);
		return 0;
	case KEY_DEV:
		opt->dev = (int)number_read(state, arg, 63);
		return 0;
	case KEY_SLICE:
		opt->direct_slice_bytes = number_read(state, arg, 1ULL << 30) & ~127ULL;
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
		fault_add(state, parse, arg);
		return 0;
	case KEY_FAULT_ITER:
		parse->fault_iter = (uint32_t)number_read(state, arg, 1000000);
		parse->fault_percent = 0;
		return 0;
	case KEY_FAULT_PHASE:
		parse->fault_percent = (uint32_t)number_read(state, arg, 99);
		return 0;
	case KEY_AT:
		command_read(state, opt, arg);
		return 0;
	case KEY_KILL:
		signal_read(state, &opt->kill, arg, false);
		return 0;
	case KEY_STOP:
		signal_read(state, &opt->stop, arg, true);
		return 0;
	case KEY_EXPECT:
		expect_read(state, opt, arg);
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
		text_copy(state, opt->fabric_lib, sizeof(opt->fabric_lib), arg);
		return 0;
	case KEY_RAILS:
		opt->rail_count = (uint32_t)number_read(state, arg, 64);
		return 0;
	case KEY_RATE:
		text_copy(state, opt->rate_mbps, sizeof(opt->rate_mbps), arg);
		return 0;
	case KEY_LATENCY:
		opt->latency_us = (uint32_t)number_read(state, arg, 1000000);
		return 0;
	case KEY_LINK:
		text_copy(state, opt->link, sizeof(opt->link), arg);
		return 0;
	case KEY_WIRING:
		text_copy(state, opt->wiring, sizeof(opt->wiring), arg);
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
		text_copy(state, opt->json, sizeof(opt->json), arg);
		return 0;
	case KEY_SAMPLES:
		text_copy(state, opt->samples, sizeof(opt->samples), arg);
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
		opt->seed = (uint32_t)number_read(state, arg, UINT32_MAX);
		return 0;
	case KEY_TIMEOUT:
		opt->timeout_s = (uint32_t)number_read(state, arg, 86400);
		return 0;
	case KEY_LINGER:
		opt->linger_ms = (uint32_t)number_read(state, arg, 60000);
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
	if (opt->expect == EXPECT_REMOTE && !opt->kill.armed) {
		argp_error(state, "--expect remote needs --kill");
	}
}

static error_t option_parse(int key, char *arg, struct argp_state *state)
{
	static error_t (*const groups[])(int, char *, struct argp_state *) = {
		traffic_option, trouble_option, fabric_option, output_option};
	struct options *opt = ((struct parse *)state->input)->opt;

	switch (key) {
	case KEY_PLUGIN:
		text_copy(state, opt->plugin, sizeof(opt->plugin), arg);
		return 0;
	case KEY_API:
		opt->api = (int)number_read(state, arg, 99);
		return 0;
	case KEY_ENV:
		if (opt->env_count == OPT_ENVS_MAX || !strchr(arg, '=')) {
			argp_error(state, "--env NAME=VALUE, at most %d", OPT_ENVS_MAX);
		}
		text_copy(state, opt->envs[opt->env_count++], OPT_TEXT_MAX, arg);
		return 0;
	case KEY_RANK_ENV:
		rank_env_read(state, opt, arg);
		return 0;
	case KEY_WRAPPER:
		text_copy(state, opt->wrapper, sizeof(opt->wrapper), arg);
		return 0;
	case KEY_RANK:
		opt->rank = (int)number_read(state, arg, OPT_RANKS_MAX - 1);
		return 0;
	case KEY_SHM:
		opt->shm_fd = (int)number_read(state, arg, INT_MAX);
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
		.rank = -1,
		.shm_fd = -1,
	};
	argp_parse(&argp, argc, argv, 0, NULL, &parse);
}
