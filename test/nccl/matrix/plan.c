/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct verb_spec {
	const char *name;
	const char *keys; /* each between blanks */
};

#define OP_KEYS " coll type red bytes place reg root "

static const struct verb_spec specs[] = {
	[PLAN_COMM] = {"comm", " algo proto blocking "},
	[PLAN_SPLIT] = {"split", " from by "},
	[PLAN_DESTROY] = {"destroy", " "},
	[PLAN_OP] = {"op", OP_KEYS "iters "},
	[PLAN_BENCH] = {"bench", OP_KEYS "iters warm "},
	[PLAN_FAULT] = {"fault", OP_KEYS "rule heal max_ms after after_ms label "},
	[PLAN_PAUSE] = {"pause", OP_KEYS "rank ms iters "},
	[PLAN_KILL] = {"kill", OP_KEYS "rank iters "},
	[PLAN_ABORT] = {"abort", OP_KEYS "rule heal hold_ms iters "},
	[PLAN_RULE] = {"rule", " rule "},
};

static_assert(sizeof(specs) / sizeof(specs[0]) == PLAN_VERB_COUNT, "a row per verb");

const char *plan_verb_name(enum plan_verb verb)
{
	return specs[verb].name;
}

static int complain(const struct plan_line *line, const char *what, const char *word)
{
	fprintf(stderr, "nccl_matrix: plan line %u: %s '%s'\n", line->number, what, word);
	return -EINVAL;
}

static int pair_add(struct plan_line *line, char *word)
{
	char *equals = strchr(word, '=');
	char wanted[32];

	if (equals == NULL || line->pair_count == PLAN_MAX_PAIRS) {
		return complain(line, "no key=value, or too many:", word);
	}
	*equals = '\0';
	if (snprintf(wanted, sizeof(wanted), " %s ", word) >= (int)sizeof(wanted) ||
	    strstr(specs[line->verb].keys, wanted) == NULL) {
		return complain(line, "this verb has no", word);
	}
	line->keys[line->pair_count] = word;
	line->values[line->pair_count] = equals + 1;
	line->pair_count++;
	return 0;
}

static int line_parse(struct plan_line *line)
{
	char *rest;
	char *word = strtok_r(line->text, " \t\n", &rest);
	unsigned verb = 0;

	while (verb < PLAN_VERB_COUNT && strcmp(word, specs[verb].name) != 0) {
		verb++;
	}
	if (verb == PLAN_VERB_COUNT) {
		return complain(line, "unknown verb", word);
	}
	line->verb = (enum plan_verb)verb;
	line->name = "";
	word = strtok_r(NULL, " \t\n", &rest);
	if (word != NULL && strchr(word, '=') == NULL) {
		line->name = word;
		word = strtok_r(NULL, " \t\n", &rest);
	}
	if (line->name[0] == '\0' && line->verb != PLAN_RULE) {
		return complain(line, "which communicator?", specs[verb].name);
	}
	for (; word != NULL; word = strtok_r(NULL, " \t\n", &rest)) {
		if (pair_add(line, word) != 0) {
			return -EINVAL;
		}
	}
	return 0;
}

int plan_read(const char *path, struct plan *plan)
{
	FILE *file = fopen(path, "re");
	unsigned number = 0;
	int rc = 0;

	if (file == NULL) {
		fprintf(stderr, "nccl_matrix: %s: %s\n", path, strerror(errno));
		return -EINVAL;
	}
	plan->count = 0;
	while (rc == 0 && plan->count < PLAN_MAX_LINES) {
		struct plan_line *line = &plan->lines[plan->count];

		memset(line, 0, sizeof(*line));
		if (fgets(line->text, sizeof(line->text), file) == NULL) {
			break;
		}
		line->number = ++number;
		if (line->text[strspn(line->text, " \t\n")] == '\0' || line->text[0] == '#') {
			continue;
		}
		rc = line_parse(line);
		plan->count++;
	}
	if (rc == 0 && plan->count == PLAN_MAX_LINES) {
		fprintf(stderr, "nccl_matrix: %s: more than %d steps\n", path, PLAN_MAX_LINES - 1);
		rc = -EINVAL;
	}
	fclose(file);
	return rc;
}

const char *plan_text(const struct plan_line *line, const char *key, const char *other)
{
	for (unsigned i = 0; i < line->pair_count; i++) {
		if (strcmp(line->keys[i], key) == 0) {
			return line->values[i];
		}
	}
	return other;
}

int plan_parse_number(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;

	if (end == text || errno != 0 || text[0] == '-' || end[shift != 0] != '\0' ||
	    number > UINT64_MAX >> shift) {
		return -EINVAL;
	}
	*value = (uint64_t)number << shift;
	return 0;
}

int plan_number(const struct plan_line *line, const char *key, uint64_t other, uint64_t *value)
{
	const char *text = plan_text(line, key, NULL);

	if (text == NULL) {
		*value = other;
		return 0;
	}
	return plan_parse_number(text, value) == 0 ? 0 : complain(line, "no number:", text);
}

int plan_item(const char *list, unsigned idx, char *item, size_t item_len)
{
	for (; idx > 0; idx--) {
		list = strchr(list, ',');
		if (list == NULL) {
			return -ENOENT;
		}
		list++;
	}
	size_t len = strcspn(list, ",");

	if (len >= item_len) {
		return -EINVAL;
	}
	memcpy(item, list, len);
	item[len] = '\0';
	return 0;
}
