/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_ARGS_READ_H
#define BRAID_TEST_DRIVER_ARGS_READ_H

#include "test/driver/options.h"

#include <argp.h>
#include <stddef.h>

/*
 * Readers of option values. Each ends the process through argp_error when the text cannot be read.
 */

/** State while parsing: what the next --fault takes along. */
struct parse {
	struct options *opt;
	uint32_t fault_iter;
	uint32_t fault_percent;
};

/** A whole number up to max, with an optional K, M or G. */
uint64_t args_number_read(const struct argp_state *state, const char *text, uint64_t max);
/** Copy text into to[cap]. */
void args_text_copy(const struct argp_state *state, char *to, size_t cap, const char *text);
/** --sizes; list is taken apart. */
void args_sizes_read(const struct argp_state *state, struct options *opt, char *list);
/** Set flags[i] for each name in list; "all" sets every one. False for an unknown word or none. */
bool args_names_read(char *list, const char *(*name)(unsigned), unsigned count, bool *flags);
void args_fault_add(const struct argp_state *state, const struct parse *parse, const char *rule);
/** RANK@ITER[+PERCENT][:MS] */
void args_signal_read(const struct argp_state *state, struct opt_signal *signal, const char *text,
		      bool with_pause);
/** ITER[+PERCENT]:COMMAND */
void args_command_read(const struct argp_state *state, struct options *opt, const char *text);
/** R:NAME=VALUE */
void args_rank_env_read(const struct argp_state *state, struct options *opt, const char *text);
void args_expect_read(const struct argp_state *state, struct options *opt, const char *text);
/** SEED:COUNT[:FIRST] */
void args_train_read(const struct argp_state *state, struct opt_train *train, const char *text);
/** --train-only; list is taken apart. */
void args_classes_read(const struct argp_state *state, struct opt_train *train, char *list);

#endif
