/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/gate.h"

static bool port_armed(const struct fab_port *port)
{
	return atomic_load_explicit(&port->armed_count, memory_order_seq_cst) != 0;
}

void fab_gate_enter(struct fab_gate *gate)
{
	gate->tx_locked = port_armed(gate->tx);
	gate->rx_locked = gate->rx != gate->tx && port_armed(gate->rx);
	/* In address order, as every gate does. */
	if (gate->tx_locked && (!gate->rx_locked || gate->tx < gate->rx)) {
		fab_mutex_lock(&gate->tx->gate);
		if (gate->rx_locked) {
			fab_mutex_lock(&gate->rx->gate);
		}
	} else if (gate->rx_locked) {
		fab_mutex_lock(&gate->rx->gate);
		if (gate->tx_locked) {
			fab_mutex_lock(&gate->tx->gate);
		}
	}
}

void fab_gate_leave(struct fab_gate *gate)
{
	if (gate->tx_locked) {
		fab_mutex_unlock(&gate->tx->gate);
	}
	if (gate->rx_locked) {
		fab_mutex_unlock(&gate->rx->gate);
	}
	gate->tx_locked = false;
	gate->rx_locked = false;
}

/* How often one placement counts for the rule: 0, 1, or 2 for a loopback seen from both sides. */
static uint64_t rule_weight(const struct fab_gate *gate, uint64_t word)
{
	const struct fab_port *port = fab_rule_port(gate->root, word);
	uint32_t dirs = fab_rule_byte(word, FAB_RULE_DIRS);
	uint64_t weight = 0;

	if (gate->tx_locked && port == gate->tx && (dirs & 1u << FAB_TX) != 0) {
		weight++;
	}
	if ((gate->rx_locked || (gate->tx_locked && gate->rx == gate->tx)) && port == gate->rx &&
	    (dirs & 1u << FAB_RX) != 0) {
		weight++;
	}
	return weight;
}

static bool rule_waits(uint64_t word, enum fab_trigger trigger)
{
	return fab_rule_byte(word, FAB_RULE_STATE) == FAB_RULE_ARMED &&
	       fab_rule_byte(word, FAB_RULE_TRIGGER) == trigger;
}

static bool rules_count(const struct fab_gate *gate, enum fab_trigger trigger, enum fab_edge edge,
			uint64_t amount)
{
	uint32_t count = atomic_load_explicit(&gate->root->rule_count, memory_order_acquire);
	bool fired = false;

	if (!gate->tx_locked && !gate->rx_locked) {
		return false;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct fab_rule *rule = &gate->root->rules[i];
		uint64_t word = fab_rule_word(rule);
		uint64_t weight;

		if (!rule_waits(word, trigger) ||
		    (trigger == FAB_TRIG_IMMS && fab_rule_byte(word, FAB_RULE_EDGE) != edge)) {
			continue;
		}
		/* a rule of another port is counted under that port's lock, by others */
		weight = rule_weight(gate, word);
		if (weight == 0) {
			continue;
		}
		rule->seen += amount * weight;
		if (rule->seen >= rule->spec.count) {
			fab_rule_fire(gate->root, gate->dir, i, word);
			fired = true;
		}
	}
	return fired;
}

uint64_t fab_gate_allow(const struct fab_gate *gate, uint64_t want)
{
	uint32_t count = atomic_load_explicit(&gate->root->rule_count, memory_order_acquire);

	if (!gate->tx_locked && !gate->rx_locked) {
		return want;
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct fab_rule *rule = &gate->root->rules[i];
		uint64_t word = fab_rule_word(rule);
		uint64_t weight;
		uint64_t left;

		if (!rule_waits(word, FAB_TRIG_BYTES)) {
			continue;
		}
		weight = rule_weight(gate, word);
		if (weight == 0) {
			continue;
		}
		left = (rule->spec.count - rule->seen + weight - 1) / weight;
		want = left < want ? left : want;
	}
	return want;
}

static void port_count(_Atomic uint64_t *counter, uint64_t amount)
{
	atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

void fab_gate_bytes(const struct fab_gate *gate, uint64_t bytes)
{
	port_count(&gate->tx->bytes[FAB_TX], bytes);
	port_count(&gate->rx->bytes[FAB_RX], bytes);
	rules_count(gate, FAB_TRIG_BYTES, FAB_EDGE_AFTER, bytes);
}

void fab_gate_write(const struct fab_gate *gate)
{
	rules_count(gate, FAB_TRIG_WRITES, FAB_EDGE_AFTER, 1);
}

bool fab_gate_imm(const struct fab_gate *gate, enum fab_edge edge)
{
	return rules_count(gate, FAB_TRIG_IMMS, edge, 1);
}
