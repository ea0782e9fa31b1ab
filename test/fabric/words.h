/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_WORDS_H
#define BRAID_TEST_FABRIC_WORDS_H

#include <stddef.h>
#include <stdint.h>

/* Words and numbers of the small languages that people write: fault rules, made-up hosts. */

/** Index of `word` among `count` names, or -1 with the complaint in `why` (at most `why_len`
 * bytes), which names `what` kind of word it is and the nearest that would have been right. */
int fab_word_find(const char *word, const char *const *names, int count, const char *what,
		  char *why, size_t why_len);

/** A decimal whole number from 0 to `max`. 0, or -EINVAL with the complaint about `key` in `why`.
 */
int fab_number_parse(const char *key, const char *text, uint64_t max, uint64_t *value, char *why,
		     size_t why_len);

/** The keys that a line may have, and those it had so far. */
struct fab_keys {
	const char *const *names;
	int count;      /* at most 32 */
	uint32_t *seen; /* 1 << index */
};

/** Splits "key=value" in place: the key's index, and *value behind the sign. -1 with the complaint
 * in `why` when it is no such word, the key is unknown or was there before. */
int fab_key_split(const struct fab_keys *keys, char *word, char **value, char *why, size_t why_len);

#endif
