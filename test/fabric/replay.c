/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/fabric_ctl.h"
#include "test/fabric/rule.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Rules out of what fired. */

static bool is_trigger(const char *word)
{
	return strncmp(word, "bytes=", 6) == 0 || strncmp(word, "ms=", 3) == 0 ||
	       strncmp(word, "after_ms=", 9) == 0;
}

/* The n-th time that a flap fires: odd = down. */
static uint32_t nth_time(struct fabric_ctl *ctl, uint32_t number, uint32_t rule_idx)
{
	struct fabric_fired f;
	uint32_t nth = 1;

	for (uint32_t i = 0; i < number; i++) {
		nth += fabric_ctl_fired(ctl, i, &f) == 0 && f.rule_idx == rule_idx;
	}
	return nth;
}

/* How long before it did the first rule fire that found its rail with the same counts? */
static uint64_t standstill_ms(struct fabric_ctl *ctl, uint32_t number,
			      const struct fabric_fired *fired)
{
	struct fabric_fired f;

	for (uint32_t i = 0; i < number; i++) {
		if (fabric_ctl_fired(ctl, i, &f) == 0 && f.host == fired->host &&
		    f.rail == fired->rail && f.tx_bytes == fired->tx_bytes &&
		    f.rx_bytes == fired->rx_bytes) {
			return (fired->t_ns - f.t_ns + 500000) / 1000000;
		}
	}
	return 0;
}

/* The words of the rule but for its trigger. Returns how long they are. */
static size_t words_copy(const char *rule, char *text, size_t len)
{
	char copy[FAB_RULE_TEXT_LEN];
	char *rest = NULL;
	size_t used = 0;

	snprintf(copy, sizeof(copy), "%s", rule);
	for (char *word = strtok_r(copy, " ", &rest); word != NULL && used < len;
	     word = strtok_r(NULL, " ", &rest)) {
		if (!is_trigger(word)) {
			used += (size_t)snprintf(text + used, len - used, "%s%s",
						 used > 0 ? " " : "", word);
		}
	}
	return used < len ? used : len - 1;
}

int fabric_ctl_replay(struct fabric_ctl *ctl, uint32_t number, char *text, size_t len)
{
	struct fab_rule_spec spec;
	struct fabric_fired fired;
	char why[128];
	uint64_t bytes = 0;
	uint64_t after_ms;
	size_t used;
	int rc = fabric_ctl_fired(ctl, number, &fired);

	if (rc != 0) {
		return rc;
	}
	rc = fab_rule_parse(fired.text, &spec, why, sizeof(why));
	if (rc != 0) {
		return rc;
	}
	bytes += (spec.dirs & 1u << FAB_TX) != 0 ? fired.tx_bytes : 0;
	bytes += (spec.dirs & 1u << FAB_RX) != 0 ? fired.rx_bytes : 0;
	if (spec.action == FAB_ACT_FLAP) {
		used = (size_t)snprintf(text, len, "port_%s host=%u rail=%u",
					nth_time(ctl, number, fired.rule_idx) % 2 != 0 ? "down"
										       : "up",
					fired.host, fired.rail);
	} else if (bytes == 0 || spec.trigger == FAB_TRIG_WRITES || spec.trigger == FAB_TRIG_IMMS) {
		snprintf(text, len, "%s", fired.text);
		return 0;
	} else {
		used = words_copy(fired.text, text, len);
	}
	after_ms = standstill_ms(ctl, number, &fired);
	if (bytes > 0 && used < len) {
		used += (size_t)snprintf(text + used, len - used, " bytes=%" PRIu64, bytes);
	}
	if (bytes > 0 && after_ms > 0 && used < len) {
		snprintf(text + used, len - used, " after_ms=%" PRIu64, after_ms);
	}
	return 0;
}
