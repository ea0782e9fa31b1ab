/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/args_read.h"

#include "test/driver/train.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t args_number_read(const struct argp_state *state, const char *text, uint64_t max)
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

void args_text_copy(const struct argp_state *state, char *to, size_t cap, const char *text)
{
	if ((size_t)snprintf(to, cap, "%s", text) >= cap) {
		argp_error(state, "'%s' is longer than %zu characters", text, cap - 1);
	}
}

void args_sizes_read(const struct argp_state *state, struct options *opt, char *list)
{
	char *save = NULL;

	opt->size_count = 0;
	for (char *word = strtok_r(list, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		uint64_t bytes = args_number_read(state, word, 1ULL << 32);

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

bool args_names_read(char *list, const char *(*name)(unsigned), unsigned count, bool *flags)
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

void args_fault_add(const struct argp_state *state, const struct parse *parse, const char *rule)
{
	struct options *opt = parse->opt;

	if (opt->fault_count == OPT_FAULTS_MAX) {
		argp_error(state, "more than %d faults", OPT_FAULTS_MAX);
	}
	struct opt_fault *fault = &opt->faults[opt->fault_count++];

	args_text_copy(state, fault->rule, sizeof(fault->rule), rule);
	fault->iter = parse->fault_iter;
	fault->percent = parse->fault_percent;
}

void args_signal_read(const struct argp_state *state, struct opt_signal *signal, const char *text,
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

void args_command_read(const struct argp_state *state, struct options *opt, const char *text)
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
	args_text_copy(state, command->text, sizeof(command->text), text + used + more + 1);
}

void args_rank_env_read(const struct argp_state *state, struct options *opt, const char *text)
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
	args_text_copy(state, env->text, sizeof(env->text), text + used + 1);
}

void args_expect_read(const struct argp_state *state, struct options *opt, const char *text)
{
	int used = 0;

	if (!strcmp(text, "ok")) {
		opt->expect = EXPECT_OK;
	} else if (!strcmp(text, "remote")) {
		opt->expect = EXPECT_REMOTE;
	} else if (!strcmp(text, "calm")) {
		opt->expect = EXPECT_CALM;
	} else if (sscanf(text, "remote:%u%n", &opt->expect_ms, &used) == 1 && !text[used]) {
		opt->expect = EXPECT_REMOTE;
	} else {
		argp_error(state, "--expect takes ok, calm or remote[:MS]");
	}
}

void args_train_read(const struct argp_state *state, struct opt_train *train, const char *text)
{
	int used = 0;
	int more = 0;

	if (sscanf(text, "%" SCNu64 ":%u%n", &train->seed, &train->fault_count, &used) != 2 ||
	    (text[used] == ':' && sscanf(text + used, ":%u%n", &train->first, &more) != 1) ||
	    text[used + more]) {
		argp_error(state, "'%s' is not SEED:COUNT[:FIRST]", text);
	}
	train->armed = true;
}

void args_classes_read(const struct argp_state *state, struct opt_train *train, char *list)
{
	char *save = NULL;

	train->class_mask = 0;
	for (char *word = strtok_r(list, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		enum train_class class = train_class_find(word);

		if (class == TRAIN_CLASS_COUNT) {
			argp_error(state, "--train-only: no class '%s', see train.h", word);
		}
		train->class_mask |= UINT64_C(1) << class;
	}
}
