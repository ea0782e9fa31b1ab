/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_INCLUDE_CONFIG_PARSE_H
#define BRAID_INCLUDE_CONFIG_PARSE_H

/* Checking of single values; used by config.c and its test. No state, no logging. */

#include "include/config.h"

/**
 * Parse the whole of `text` as a number of the row's type (INT, BOOL, BYTES, LINES, FAMILY, STRIPE)
 * within its range.
 * @return NULL and *out set, or a static text saying what is wrong.
 */
const char *config_parse_number(const struct config_row *row, const char *text, int64_t *out);

/**
 * Check `text` against the row's type (STRING, LIST, CIDR).
 * @return NULL, or a static text saying what is wrong.
 */
const char *config_parse_text(const struct config_row *row, const char *text);

/** Changes of one letter (insert, delete, replace) that turn `a` into `b`; at most 64 compared. */
unsigned config_name_distance(const char *a, const char *b);

#endif
