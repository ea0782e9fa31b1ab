/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_RULE_H
#define BRAID_TEST_FABRIC_RULE_H

#include "test/fabric/root.h"

#include <stdbool.h>
#include <stddef.h>

/**
 * Parses one rule (README.md has the language). On a mistake fills `why` (at most `why_len` bytes,
 * with the nearest word that would have been right) and returns -EINVAL.
 */
int fab_rule_parse(const char *text, struct fab_rule_spec *spec, char *why, size_t why_len);

/** Installs a rule. One without trigger fires before the call returns. `rule_idx` may be NULL.
 * Returns 0, or -ENOSPC when FAB_MAX_RULES are armed. */
int fab_rule_add(struct fab_root *root, const char *dir, const struct fab_rule_spec *spec,
		 uint32_t *rule_idx);

/** Reads a file of rules, one a line, # begins a comment. Complains on stderr with file and line.
 * All lines are parsed before the first rule is installed. */
int fab_rule_load(struct fab_root *root, const char *dir, const char *path);

/** Fires every FAB_TRIG_MS rule that is due. Cheap when none is. */
void fab_rule_tick(struct fab_root *root, const char *dir, uint64_t now_ns);

/** Fires rule `idx`, which was seen waiting with that word, unless it changed meanwhile: state
 * first, then events, then the log. */
void fab_rule_fire(struct fab_root *root, const char *dir, uint32_t idx, uint64_t word);

static inline uint64_t fab_rule_word(const struct fab_rule *rule)
{
	return atomic_load_explicit(&rule->word, memory_order_acquire);
}

static inline uint32_t fab_rule_byte(uint64_t word, enum fab_rule_byte byte)
{
	return (uint32_t)(word >> 8 * byte) & 0xff;
}

static inline struct fab_port *fab_rule_port(struct fab_root *root, uint64_t word)
{
	return fab_root_port(root, fab_rule_byte(word, FAB_RULE_HOST),
			     fab_rule_byte(word, FAB_RULE_RAIL));
}

/** Does the trigger count what is placed? */
static inline bool fab_rule_counts(enum fab_trigger trigger)
{
	return trigger == FAB_TRIG_BYTES || trigger == FAB_TRIG_WRITES || trigger == FAB_TRIG_IMMS;
}

const char *fab_action_name(enum fab_action action);

#endif
