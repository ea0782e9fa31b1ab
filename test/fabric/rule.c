/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/rule.h"

#include "test/fabric/inst.h"

#include <infiniband/verbs.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool trigger_counts(enum fab_trigger trigger)
{
	return trigger == FAB_TRIG_BYTES || trigger == FAB_TRIG_WRITES || trigger == FAB_TRIG_IMMS;
}

static void event_to_inst(struct fab_inst *inst, void *arg)
{
	fab_inst_post_event(inst, arg);
}

static void ring_inst(struct fab_inst *inst, void *arg)
{
	(void)arg;
	fab_inst_ring(inst);
}

static void flags_set(struct fab_port *port, uint32_t bits)
{
	atomic_fetch_or_explicit(&port->flags, bits, memory_order_seq_cst);
}

static uint32_t dir_bits(uint32_t dirs, uint32_t tx_bit, uint32_t rx_bit)
{
	return ((dirs & 1u << FAB_TX) != 0 ? tx_bit : 0) |
	       ((dirs & 1u << FAB_RX) != 0 ? rx_bit : 0);
}

static void port_set(_Atomic uint64_t field[FAB_DIR_COUNT], uint32_t dirs, uint64_t value)
{
	for (uint32_t d = 0; d < FAB_DIR_COUNT; d++) {
		if ((dirs & 1u << d) != 0) {
			atomic_store_explicit(&field[d], value, memory_order_seq_cst);
		}
	}
}

static int port_heal(struct fab_port *port)
{
	uint32_t was;

	port_set(port->late_ns, FAB_DIR_BOTH, 0);
	was = atomic_exchange_explicit(&port->flags, 0, memory_order_seq_cst);
	return (was & FAB_DOWN) != 0 ? IBV_EVENT_PORT_ACTIVE : -1;
}

/* Changes the port; the type of event due on its host, or -1. */
static int action_apply(struct fab_port *port, const struct fab_rule_spec *spec)
{
	uint32_t was;

	switch (spec->action) {
	case FAB_ACT_CUT:
		flags_set(port, dir_bits(spec->dirs, FAB_CUT_TX, FAB_CUT_RX));
		return -1;
	case FAB_ACT_ACK_LOSS:
		flags_set(port, dir_bits(spec->dirs, FAB_ACK_TX, FAB_ACK_RX));
		return -1;
	case FAB_ACT_PORT_DOWN:
		was = atomic_fetch_or_explicit(&port->flags, FAB_DOWN, memory_order_seq_cst);
		return (was & FAB_DOWN) == 0 ? IBV_EVENT_PORT_ERR : -1;
	case FAB_ACT_PORT_UP:
		was = atomic_fetch_and_explicit(&port->flags, ~FAB_DOWN, memory_order_seq_cst);
		return (was & FAB_DOWN) != 0 ? IBV_EVENT_PORT_ACTIVE : -1;
	case FAB_ACT_NIC_DEATH:
		was = atomic_fetch_or_explicit(&port->flags, FAB_DEAD, memory_order_seq_cst);
		atomic_fetch_add_explicit(&port->dead_count, 1, memory_order_seq_cst);
		return (was & FAB_DEAD) == 0 ? IBV_EVENT_DEVICE_FATAL : -1;
	case FAB_ACT_HEAL:
		return port_heal(port);
	case FAB_ACT_LATE:
		port_set(port->late_ns, spec->dirs, spec->args[FAB_ARG_DELAY_MS] * 1000000ull);
		return -1;
	case FAB_ACT_RATE:
		atomic_store_explicit(&port->rate_pinned, 1, memory_order_relaxed);
		atomic_store_explicit(&port->rate_bps, spec->args[FAB_ARG_VALUE] * 1000000ull,
				      memory_order_relaxed);
		return -1;
	case FAB_ACT_COUNT:
	default:
		return -1;
	}
}

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

void fab_rule_fire(struct fab_root *root, const char *dir, uint32_t idx)
{
	struct fab_rule *rule = &root->rules[idx];
	const struct fab_rule_spec *spec = &rule->spec;
	struct fab_port *port = fab_root_port(root, spec->host, spec->rail);
	uint32_t armed = FAB_RULE_ARMED;
	struct fab_event event = {.number = 1};
	int type;

	if (!atomic_compare_exchange_strong(&rule->state, &armed, FAB_RULE_FIRED)) {
		return;
	}
	type = action_apply(port, spec);
	fired_record(root, dir, idx);
	if (trigger_counts(spec->trigger)) {
		atomic_fetch_sub_explicit(&port->armed_count, 1, memory_order_seq_cst);
	}
	if (type >= 0) {
		event.type = (uint32_t)type;
		event.kind = type == IBV_EVENT_DEVICE_FATAL ? FAB_EVENT_DEVICE : FAB_EVENT_PORT;
		fab_inst_each(root, dir, spec->host, spec->rail, event_to_inst, &event);
	} else {
		fab_inst_each(root, dir, spec->host, spec->rail, ring_inst, NULL);
	}
}

static void deadline_refresh(struct fab_root *root)
{
	uint32_t count = atomic_load_explicit(&root->rule_count, memory_order_acquire);
	uint64_t next_ns = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct fab_rule *rule = &root->rules[i];

		if (atomic_load_explicit(&rule->state, memory_order_acquire) == FAB_RULE_ARMED &&
		    rule->spec.trigger == FAB_TRIG_MS &&
		    (next_ns == 0 || rule->deadline_ns < next_ns)) {
			next_ns = rule->deadline_ns;
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
	root->rules[idx].deadline_ns = fab_now_ns() + spec->count * 1000000ull;
	atomic_store_explicit(&root->rules[idx].state, FAB_RULE_ARMED, memory_order_release);
	if (idx == count) {
		atomic_store_explicit(&root->rule_count, count + 1, memory_order_release);
	}
	if (trigger_counts(spec->trigger)) {
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
		    rule->spec.trigger == FAB_TRIG_MS && rule->deadline_ns <= now_ns) {
			fab_rule_fire(root, dir, i);
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
