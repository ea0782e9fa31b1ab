/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/rule.h"

#include "test/fabric/action.h"
#include "test/fabric/inst.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A rule that is due by time waits so long, so that placements under way outside the gate end; and
 * so long for the gate, which a stopped process may hold. */
#define GATE_SOON_NS 500000ull
#define GATE_MAX_NS  20000000ull

static void fired_log(const char *dir, const struct fab_fired *fired)
{
	char path[PATH_MAX];
	char line[512];
	int len;
	int fd;

	len = snprintf(line, sizeof(line),
		       "{\"t_ns\":%llu,\"rule\":%u,\"action\":\"%s\",\"host\":%u,\"rail\":%u,"
		       "\"seen\":%llu,\"tx_bytes\":%llu,\"rx_bytes\":%llu,\"text\":\"%s\"}\n",
		       (unsigned long long)fired->t_ns, fired->rule_idx,
		       fab_action_name(fired->spec.action), fired->spec.host, fired->spec.rail,
		       (unsigned long long)fired->seen, (unsigned long long)fired->bytes[FAB_TX],
		       (unsigned long long)fired->bytes[FAB_RX], fired->spec.text);
	if (len < 0 || len >= (int)sizeof(line) ||
	    snprintf(path, sizeof(path), "%s/fired.log", dir) >= (int)sizeof(path)) {
		return;
	}
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, line, (size_t)len) != len) {
		fab_complain("%s: %s", path, strerror(errno));
	}
	if (fd >= 0) {
		close(fd);
	}
}

static void fired_record(struct fab_root *root, const char *dir, uint32_t idx)
{
	const struct fab_rule *rule = &root->rules[idx];
	struct fab_port *port = fab_root_port(root, rule->spec.host, rule->spec.rail);
	struct fab_fired now = {
		.rule_idx = idx, .t_ns = fab_now_ns(), .seen = rule->seen, .spec = rule->spec};
	struct fab_fired *fired;
	uint32_t at;

	for (uint32_t d = 0; d < FAB_DIR_COUNT; d++) {
		now.bytes[d] = atomic_load_explicit(&port->bytes[d], memory_order_relaxed);
	}
	fab_mutex_lock(&root->lock); /* the place in the table was another's before */
	at = atomic_fetch_add_explicit(&root->fired_count, 1, memory_order_relaxed);
	fired = &root->fired[at % FAB_MAX_FIRED];
	fired->rule_idx = now.rule_idx;
	fired->t_ns = now.t_ns;
	fired->seen = now.seen;
	memcpy(fired->bytes, now.bytes, sizeof(fired->bytes));
	fired->spec = now.spec;
	atomic_store_explicit(&fired->ready, at + 1, memory_order_release);
	fab_mutex_unlock(&root->lock);
	fired_log(dir, &now);
}

_Static_assert(FAB_MAX_HOSTS <= 256 && FAB_MAX_RAILS <= 256, "a byte each");

/* A new word: state and trigger as given, the rest from what the rule is. By its owner. */
static uint64_t word_store(struct fab_rule *rule, enum fab_rule_state state,
			   enum fab_trigger trigger)
{
	uint64_t armed_count = fab_rule_word(rule) >> 8 * FAB_RULE_BYTE_COUNT;
	uint64_t word = (uint64_t)state << 8 * FAB_RULE_STATE |
			(uint64_t)trigger << 8 * FAB_RULE_TRIGGER |
			(uint64_t)rule->spec.edge << 8 * FAB_RULE_EDGE |
			(uint64_t)rule->spec.dirs << 8 * FAB_RULE_DIRS |
			(uint64_t)rule->spec.host << 8 * FAB_RULE_HOST |
			(uint64_t)rule->spec.rail << 8 * FAB_RULE_RAIL;

	armed_count += state == FAB_RULE_ARMED;
	word |= armed_count << 8 * FAB_RULE_BYTE_COUNT;
	atomic_store_explicit(&rule->word, word, memory_order_release);
	return word;
}

/* From a word that was seen to another state. False: it changed meanwhile. */
static bool word_move(struct fab_rule *rule, uint64_t word, enum fab_rule_state state)
{
	return atomic_compare_exchange_strong(&rule->word, &word, (word & ~0xffull) | state);
}

static bool waits_for_time(uint64_t word)
{
	uint32_t state = fab_rule_byte(word, FAB_RULE_STATE);

	return (state == FAB_RULE_ARMED || state == FAB_RULE_DUE) &&
	       fab_rule_byte(word, FAB_RULE_TRIGGER) == FAB_TRIG_MS;
}

static void deadline_refresh(struct fab_root *root)
{
	uint32_t count = atomic_load_explicit(&root->rule_count, memory_order_acquire);
	uint64_t next_ns = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct fab_rule *rule = &root->rules[i];

		if (waits_for_time(fab_rule_word(rule)) &&
		    (next_ns == 0 || atomic_load(&rule->deadline_ns) < next_ns)) {
			next_ns = atomic_load(&rule->deadline_ns);
		}
	}
	atomic_store_explicit(&root->next_deadline_ns, next_ns, memory_order_seq_cst);
}

static void ring_everybody(struct fab_root *root, const char *dir)
{
	uint32_t count = atomic_load_explicit(&root->inst_count, memory_order_acquire);

	for (uint32_t id = 1; id <= count; id++) {
		struct fab_inst *inst = fab_inst_peer(root, dir, id);

		if (inst != NULL) {
			fab_inst_ring(inst);
		}
	}
}

/* A flap goes on by itself: down, up, down ... Returns when, or 0 at its end. */
static uint64_t flap_next_ns(struct fab_rule *rule)
{
	const uint64_t *args = rule->spec.args;

	rule->phase++;
	if (rule->spec.action != FAB_ACT_FLAP || rule->phase >= 2 * args[FAB_ARG_TIMES]) {
		return 0;
	}
	return fab_now_ns() +
	       args[rule->phase % 2 != 0 ? FAB_ARG_DOWN_MS : FAB_ARG_UP_MS] * 1000000ull;
}

/* It fires (again) at that time. */
static void arm_at(struct fab_root *root, const char *dir, struct fab_rule *rule, uint64_t at_ns)
{
	atomic_store(&rule->deadline_ns, at_ns);
	word_store(rule, FAB_RULE_ARMED, FAB_TRIG_MS);
	fab_mutex_lock(&root->lock);
	deadline_refresh(root);
	fab_mutex_unlock(&root->lock);
	ring_everybody(root, dir);
}

/* Placements need not go through the gate any more for a rule that waited with that word. */
static void ungate(struct fab_root *root, uint64_t word)
{
	if (fab_rule_counts(fab_rule_byte(word, FAB_RULE_TRIGGER)) ||
	    fab_rule_byte(word, FAB_RULE_STATE) == FAB_RULE_DUE) {
		atomic_fetch_sub_explicit(&fab_rule_port(root, word)->armed_count, 1,
					  memory_order_seq_cst);
	}
}

void fab_rule_fire(struct fab_root *root, const char *dir, uint32_t idx, uint64_t word)
{
	struct fab_rule *rule = &root->rules[idx];
	uint64_t next_ns;

	if (!word_move(rule, word, FAB_RULE_FIRING)) {
		return;
	}
	if (rule->spec.args[FAB_ARG_AFTER_MS] != 0 &&
	    fab_rule_counts(fab_rule_byte(word, FAB_RULE_TRIGGER))) {
		ungate(root, word);
		arm_at(root, dir, rule,
		       fab_now_ns() + rule->spec.args[FAB_ARG_AFTER_MS] * 1000000ull);
		return;
	}
	fab_action_apply(root, rule);
	fired_record(root, dir, idx);
	fab_action_tell(root, dir, rule);
	ungate(root, word);
	next_ns = flap_next_ns(rule);
	if (next_ns != 0) {
		arm_at(root, dir, rule, next_ns);
	} else {
		word_store(rule, FAB_RULE_FIRED, rule->spec.trigger);
	}
}

int fab_rule_add(struct fab_root *root, const char *dir, const struct fab_rule_spec *spec,
		 uint32_t *rule_idx)
{
	struct fab_port *port = fab_root_port(root, spec->host, spec->rail);
	struct fab_rule *rule;
	uint64_t word;
	uint32_t count;
	uint32_t idx = 0;

	fab_mutex_lock(&root->lock);
	count = atomic_load_explicit(&root->rule_count, memory_order_relaxed);
	idx = count;
	if (idx == FAB_MAX_RULES) { /* a fired rule is history, kept in fired[] */
		for (idx = 0; idx < count; idx++) {
			word = fab_rule_word(&root->rules[idx]);
			if (fab_rule_byte(word, FAB_RULE_STATE) == FAB_RULE_FIRED) {
				break;
			}
		}
	}
	if (idx == FAB_MAX_RULES) {
		fab_mutex_unlock(&root->lock);
		return -ENOSPC;
	}
	rule = &root->rules[idx];
	rule->spec = *spec;
	rule->seen = 0;
	rule->phase = 0;
	atomic_store(&rule->deadline_ns, fab_now_ns() + spec->count * 1000000ull);
	word = word_store(rule, FAB_RULE_ARMED, spec->trigger);
	if (idx == count) {
		atomic_store_explicit(&root->rule_count, count + 1, memory_order_release);
	}
	if (fab_rule_counts(spec->trigger)) {
		atomic_fetch_add_explicit(&port->armed_count, 1, memory_order_seq_cst);
	}
	if (spec->trigger == FAB_TRIG_MS) {
		deadline_refresh(root);
	}
	fab_mutex_unlock(&root->lock);
	if (spec->trigger == FAB_TRIG_NOW) {
		fab_rule_fire(root, dir, idx, word);
	} else if (spec->trigger == FAB_TRIG_MS) {
		ring_everybody(root, dir);
	}
	if (rule_idx != NULL) {
		*rule_idx = idx;
	}
	return 0;
}

/* A rule is due by time. It fires between two placements like those that count, so that the bytes
 * it is recorded at are the bytes it found. */
static void time_up(struct fab_root *root, const char *dir, uint32_t idx, uint64_t word)
{
	struct fab_rule *rule = &root->rules[idx];
	struct fab_port *port = fab_rule_port(root, word);
	uint64_t deadline_ns = atomic_load(&rule->deadline_ns);
	uint64_t now_ns = fab_now_ns();
	bool held;

	if (fab_rule_byte(word, FAB_RULE_STATE) == FAB_RULE_ARMED) {
		if (!atomic_compare_exchange_strong(&rule->deadline_ns, &deadline_ns,
						    now_ns + GATE_SOON_NS)) {
			return; /* somebody else is at it */
		}
		atomic_fetch_add_explicit(&port->armed_count, 1, memory_order_seq_cst);
		if (!word_move(rule, word, FAB_RULE_DUE)) {
			atomic_fetch_sub_explicit(&port->armed_count, 1, memory_order_seq_cst);
		}
		return;
	}
	held = fab_mutex_trylock(&port->gate);
	if (held || now_ns > deadline_ns + GATE_MAX_NS) {
		fab_rule_fire(root, dir, idx, word);
	}
	if (held) {
		fab_mutex_unlock(&port->gate);
	}
}

void fab_rule_tick(struct fab_root *root, const char *dir, uint64_t now_ns)
{
	uint64_t next_ns = atomic_load_explicit(&root->next_deadline_ns, memory_order_seq_cst);
	uint32_t count;

	if (next_ns == 0 || now_ns < next_ns) {
		return;
	}
	count = atomic_load_explicit(&root->rule_count, memory_order_acquire);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t word = fab_rule_word(&root->rules[i]);

		if (waits_for_time(word) && atomic_load(&root->rules[i].deadline_ns) <= now_ns) {
			time_up(root, dir, i, word);
		}
	}
	fab_mutex_lock(&root->lock);
	deadline_refresh(root);
	fab_mutex_unlock(&root->lock);
}

static int line_is_blank(const char *line)
{
	return line[strspn(line, " \t\r\n")] == '\0' || line[strspn(line, " \t\r\n")] == '#';
}

/* One pass over the file: parses, and installs when `root` is given. */
static int file_pass(struct fab_root *root, const char *dir, const char *path, FILE *file)
{
	char line[1024];
	char why[256];
	int number = 0;

	while (fgets(line, sizeof(line), file) != NULL) {
		struct fab_rule_spec spec;

		number++;
		if (line_is_blank(line)) {
			continue;
		}
		if (fab_rule_parse(line, &spec, why, sizeof(why)) != 0) {
			fab_complain("%s:%d: %s", path, number, why);
			return -EINVAL;
		}
		if (root != NULL && fab_rule_add(root, dir, &spec, NULL) != 0) {
			fab_complain("%s:%d: too many rules", path, number);
			return -ENOSPC;
		}
	}
	return 0;
}

int fab_rule_load(struct fab_root *root, const char *dir, const char *path)
{
	FILE *file = fopen(path, "re");
	int rc;

	if (file == NULL) {
		rc = -errno;
		fab_complain("%s: %s", path, strerror(errno));
		return rc;
	}
	rc = file_pass(NULL, dir, path, file);
	if (rc == 0) {
		rewind(file);
		rc = file_pass(root, dir, path, file);
	}
	fclose(file);
	return rc;
}
