/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_NCCL_PLAN_H
#define BRAID_TEST_NCCL_PLAN_H

/*
 * A job's plan: a text, one step a line, `VERB NAME key=value...`; `#` begins a comment line. All
 * ranks walk it in step. README.md has the language.
 */

#include <stddef.h>
#include <stdint.h>

#define PLAN_MAX_LINES 512
#define PLAN_MAX_PAIRS 16
#define PLAN_LINE_LEN  1024

enum plan_verb {
	PLAN_COMM,
	PLAN_SPLIT,
	PLAN_DESTROY,
	PLAN_OP,
	PLAN_BENCH,
	PLAN_FAULT,
	PLAN_PAUSE,
	PLAN_KILL,
	PLAN_ABORT,
	PLAN_RULE,
	PLAN_VERB_COUNT
};

struct plan_line {
	enum plan_verb verb;
	const char *name; /* the communicator; several with commas */
	const char *keys[PLAN_MAX_PAIRS];
	const char *values[PLAN_MAX_PAIRS];
	unsigned pair_count;
	unsigned number; /* in the file, from 1 */
	char text[PLAN_LINE_LEN];
};

struct plan {
	struct plan_line lines[PLAN_MAX_LINES];
	unsigned count;
};

/** Reads the plan at `path`. -EINVAL with a line on stderr that says where and what. */
int plan_read(const char *path, struct plan *plan);
const char *plan_verb_name(enum plan_verb verb);
/** The value of `key`, or `other` when the line has none. */
const char *plan_text(const struct plan_line *line, const char *key, const char *other);
/** The same as a number, with an optional K, M or G (1024s). -EINVAL when it is none. */
int plan_number(const struct plan_line *line, const char *key, uint64_t other, uint64_t *value);
/** The idx-th item of a comma list into `item`; -ENOENT past the end, -EINVAL when it is too long.
 */
int plan_item(const char *list, unsigned idx, char *item, size_t item_len);
/** A number as above from a text. */
int plan_parse_number(const char *text, uint64_t *value);

#endif
