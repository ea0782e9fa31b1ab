/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_LEN 32

/* Edit distance of two short words. */
static size_t word_distance(const char *a, const char *b)
{
	size_t row[WORD_LEN + 1];
	size_t b_len = strnlen(b, WORD_LEN);

	for (size_t j = 0; j <= b_len; j++) {
		row[j] = j;
	}
	for (size_t i = 0; a[i] != '\0' && i < WORD_LEN; i++) {
		size_t diagonal = row[0];

		row[0] = i + 1;
		for (size_t j = 0; j < b_len; j++) {
			size_t best = diagonal + (a[i] == b[j] ? 0 : 1);

			diagonal = row[j + 1];
			best = row[j] + 1 < best ? row[j] + 1 : best;
			best = diagonal + 1 < best ? diagonal + 1 : best;
			row[j + 1] = best;
		}
	}
	return row[b_len];
}

int fab_word_find(const char *word, const char *const *names, int count, const char *what,
		  char *why, size_t why_len)
{
	int nearest = 0;

	for (int i = 0; i < count; i++) {
		if (strcmp(word, names[i]) == 0) {
			return i;
		}
		if (word_distance(word, names[i]) < word_distance(word, names[nearest])) {
			nearest = i;
		}
	}
	snprintf(why, why_len, "unknown %s '%s', nearest is '%s'", what, word, names[nearest]);
	return -1;
}

int fab_number_parse(const char *key, const char *text, uint64_t max, uint64_t *value, char *why,
		     size_t why_len)
{
	char *end;
	unsigned long long got;

	errno = 0;
	got = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || got > max) {
		snprintf(why, why_len, "%s='%s' is not a whole number from 0 to %llu", key, text,
			 (unsigned long long)max);
		return -EINVAL;
	}
	*value = got;
	return 0;
}

int fab_key_split(const struct fab_keys *keys, char *word, char **value, char *why, size_t why_len)
{
	char *sign = strchr(word, '=');
	int key;

	if (sign == NULL) {
		snprintf(why, why_len, "'%s' is not of the form key=value", word);
		return -1;
	}
	*sign = '\0';
	key = fab_word_find(word, keys->names, keys->count, "key", why, why_len);
	if (key < 0) {
		return -1;
	}
	if ((*keys->seen & 1u << key) != 0) {
		snprintf(why, why_len, "'%s=' is given twice", word);
		return -1;
	}
	*keys->seen |= 1u << key;
	*value = sign + 1;
	return key;
}
