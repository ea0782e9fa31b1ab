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
	uint32_t at = atomic_fetch_add_explicit(&root->fired_count, 1, memory_order_relaxed);
	struct fab_fired *fired = &root->fired[at % FAB_MAX_FIRED];

	fired->rule_idx = idx;
	fired->t_ns = fab_now_ns();
	fired->seen = rule->seen;
	for (uint32_t d = 0; d < FAB_DIR_COUNT; d++) {
		fired->bytes[d] = atomic_load_explicit(&port->bytes[d], memory_order_relaxed);
	}
	fired->spec = rule->spec;
	atomic_store_explicit(&fired->ready, at + 1, memory_order_release);
	fired_log(dir, fired);
}

static void deadline_refresh(struct fab_root *root)
{
	uint32_t count = atomic_load_explicit(&root->rule_count, memory_order_acquire);
	uint64_t next_ns = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct fab_rule *rule = &root->rules[i];

		if (atomic_load_explicit(&rule->state, memory_order_acquire) == FAB_RULE_ARMED &&
		    rule->spec.trigger == FAB_TRIG_MS &&
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
	rule->spec.trigger = FAB_TRIG_MS;
	atomic_store(&rule->deadline_ns, at_ns);
	atomic_store_explicit(&rule->state, FAB_RULE_ARMED, memory_order_release);
	fab_mutex_lock(&root->lock);
	deadline_refresh(root);
	fab_mutex_unlock(&root->lock);
	ring_everybody(root, dir);
}

/* Placements need not go through the gate for this rule any more. */
static void ungate(struct fab_root *root, struct fab_rule *rule)
{
	struct fab_port *port = fab_root_port(root, rule->spec.host, rule->spec.rail);

	if (fab_rule_counts(rule->spec.trigger) || atomic_exchange(&rule->gated, 0) != 0) {
		atomic_fetch_sub_explicit(&port->armed_count, 1, memory_order_seq_cst);
	}
}

void fab_rule_fire(struct fab_root *root, const char *dir, uint32_t idx)
{
	struct fab_rule *rule = &root->rules[idx];
	uint32_t armed = FAB_RULE_ARMED;
	uint64_t next_ns;

	if (!atomic_compare_exchange_strong(&rule->state, &armed, FAB_RULE_FIRING)) {
		return;
	}
	if (rule->spec.args[FAB_ARG_AFTER_MS] != 0 && fab_rule_counts(rule->spec.trigger)) {
		ungate(root, rule);
		arm_at(root, dir, rule,
		       fab_now_ns() + rule->spec.args[FAB_ARG_AFTER_MS] * 1000000ull);
		return;
	}
	fab_action_apply(root, rule);
	fired_record(root, dir, idx);
	fab_action_tell(root, dir, rule);
	ungate(root, rule);
	next_ns = flap_next_ns(rule);
	if (next_ns != 0) {
		arm_at(root, dir, rule, next_ns);
	} else {
		atomic_store_explicit(&rule->state, FAB_RULE_FIRED, memory_order_release);
	}
}

int fab_rule_add(struct fab_root *root, const char *dir, const struct fab_rule_spec *spec,
		 uint32_t *rule_idx)
{
	struct fab_port *port = fab_root_port(root, spec->host, spec->rail);
	uint32_t count;
	uint32_t idx = 0;

	fab_mutex_lock(&root->lock);
	count = atomic_load_explicit(&root->rule_count, memory_order_relaxed);
	idx = count;
	if (idx == FAB_MAX_RULES) { /* a fired rule is history, kept in fired[] */
		for (idx = 0; idx < count; idx++) {
			if (atomic_load_explicit(&root->rules[idx].state, memory_order_acquire) ==
			    FAB_RULE_FIRED) {
				break;
			}
		}
	}
	if (idx == FAB_MAX_RULES) {
		fab_mutex_unlock(&root->lock);
		return -ENOSPC;
	}
	root->rules[idx].spec = *spec;
	root->rules[idx].seen = 0;
	root->rules[idx].phase = 0;
	atomic_store(&root->rules[idx].deadline_ns, fab_now_ns() + spec->count * 1000000ull);
	atomic_store(&root->rules[idx].gated, 0);
	atomic_store_explicit(&root->rules[idx].state, FAB_RULE_ARMED, memory_order_release);
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
		fab_rule_fire(root, dir, idx);
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
static void time_up(struct fab_root *root, const char *dir, uint32_t idx, uint64_t now_ns)
{
	struct fab_rule *rule = &root->rules[idx];
	struct fab_port *port = fab_root_port(root, rule->spec.host, rule->spec.rail);
	bool held;

	if (atomic_exchange(&rule->gated, 1) == 0) {
		atomic_fetch_add_explicit(&port->armed_count, 1, memory_order_seq_cst);
		atomic_store(&rule->deadline_ns, now_ns + GATE_SOON_NS);
		return;
	}
	held = fab_mutex_trylock(&port->gate);
	if (held || now_ns > atomic_load(&rule->deadline_ns) + GATE_MAX_NS) {
		fab_rule_fire(root, dir, idx);
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
		struct fab_rule *rule = &root->rules[i];

		if (atomic_load_explicit(&rule->state, memory_order_acquire) == FAB_RULE_ARMED &&
		    rule->spec.trigger == FAB_TRIG_MS &&
		    atomic_load(&rule->deadline_ns) <= now_ns) {
			time_up(root, dir, i, now_ns);
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
