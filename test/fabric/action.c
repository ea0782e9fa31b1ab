/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/action.h"

#include "test/fabric/inst.h"

#include <infiniband/verbs.h>

#define NO_EVENT UINT32_MAX

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

static uint32_t port_down(struct fab_port *port)
{
	uint32_t was = atomic_fetch_or_explicit(&port->flags, FAB_DOWN, memory_order_seq_cst);

	return (was & FAB_DOWN) == 0 ? IBV_EVENT_PORT_ERR : NO_EVENT;
}

static uint32_t port_up(struct fab_port *port)
{
	uint32_t was = atomic_fetch_and_explicit(&port->flags, ~FAB_DOWN, memory_order_seq_cst);

	return (was & FAB_DOWN) != 0 ? IBV_EVENT_PORT_ACTIVE : NO_EVENT;
}

static uint32_t port_die(struct fab_port *port)
{
	uint32_t was = atomic_fetch_or_explicit(&port->flags, FAB_DEAD, memory_order_seq_cst);

	atomic_fetch_add_explicit(&port->dead_count, 1, memory_order_seq_cst);
	return (was & FAB_DEAD) == 0 ? IBV_EVENT_DEVICE_FATAL : NO_EVENT;
}

static uint32_t port_pull(struct fab_port *port)
{
	uint32_t was =
		atomic_fetch_or_explicit(&port->flags, FAB_DOWN | FAB_GONE, memory_order_seq_cst);

	atomic_fetch_add_explicit(&port->pull_count, 1, memory_order_seq_cst);
	return (was & FAB_DOWN) == 0 ? IBV_EVENT_PORT_ERR : NO_EVENT;
}

static uint32_t port_heal(struct fab_port *port)
{
	uint32_t was;

	port_set(port->late_ns, FAB_DIR_BOTH, 0);
	port_set(port->drop_ppb, FAB_DIR_BOTH, 0);
	port_set(port->delay_ns, FAB_DIR_BOTH, 0);
	port_set(port->jitter_ns, FAB_DIR_BOTH, 0);
	for (uint32_t call = 0; call < FAB_CALL_COUNT; call++) {
		atomic_store_explicit(&port->call_fails_in[call], 0, memory_order_seq_cst);
		atomic_store_explicit(&port->call_block_ms[call], 0, memory_order_seq_cst);
	}
	atomic_store_explicit(&port->event_delay_ns, 0, memory_order_seq_cst);
	atomic_store_explicit(&port->event_twice, 0, memory_order_seq_cst);
	was = atomic_exchange_explicit(&port->flags, 0, memory_order_seq_cst);
	/* Of one that was unplugged nobody has the new device open yet. */
	return (was & (FAB_DOWN | FAB_GONE)) == FAB_DOWN ? IBV_EVENT_PORT_ACTIVE : NO_EVENT;
}

/* What makes life hard without taking the rail away. */
static uint32_t port_trouble(struct fab_port *port, const struct fab_rule_spec *spec)
{
	const uint64_t *args = spec->args;

	switch ((int)spec->action) {
	case FAB_ACT_DROP:
		port_set(port->drop_ppb, spec->dirs, args[FAB_ARG_P]);
		return NO_EVENT;
	case FAB_ACT_DELAY:
		port_set(port->delay_ns, spec->dirs, args[FAB_ARG_US] * 1000);
		port_set(port->jitter_ns, spec->dirs, args[FAB_ARG_JITTER_US] * 1000);
		return NO_EVENT;
	case FAB_ACT_GID_MOVE:
		atomic_store_explicit(&port->gid_index, (uint32_t)args[FAB_ARG_INDEX],
				      memory_order_seq_cst);
		return IBV_EVENT_GID_CHANGE;
	case FAB_ACT_GID_CLEAR:
		atomic_store_explicit(&port->gid_index, FAB_GID_NONE, memory_order_seq_cst);
		return IBV_EVENT_GID_CHANGE;
	case FAB_ACT_ENOMEM:
		atomic_store_explicit(&port->call_fails_in[args[FAB_ARG_CALL]],
				      args[FAB_ARG_NTH] != 0 ? (uint32_t)args[FAB_ARG_NTH] : 1,
				      memory_order_seq_cst);
		return NO_EVENT;
	case FAB_ACT_BLOCK:
		atomic_store_explicit(&port->call_block_ms[args[FAB_ARG_CALL]],
				      (uint32_t)args[FAB_ARG_DELAY_MS], memory_order_seq_cst);
		return NO_EVENT;
	default:
		return NO_EVENT;
	}
}

/* Changes the port; the type of event due on its host. */
static uint32_t port_change(struct fab_port *port, const struct fab_rule *rule)
{
	const struct fab_rule_spec *spec = &rule->spec;
	uint64_t delay_ns = spec->args[FAB_ARG_DELAY_MS] * 1000000ull;

	switch ((int)spec->action) {
	case FAB_ACT_CUT:
		flags_set(port, dir_bits(spec->dirs, FAB_CUT_TX, FAB_CUT_RX));
		return NO_EVENT;
	case FAB_ACT_ACK_LOSS:
		flags_set(port, dir_bits(spec->dirs, FAB_ACK_TX, FAB_ACK_RX));
		return NO_EVENT;
	case FAB_ACT_PORT_DOWN:
		return port_down(port);
	case FAB_ACT_PORT_UP:
		return port_up(port);
	case FAB_ACT_FLAP:
		return rule->phase % 2 == 0 ? port_down(port) : port_up(port);
	case FAB_ACT_NIC_DEATH:
		return port_die(port);
	case FAB_ACT_UNPLUG:
		return port_pull(port);
	case FAB_ACT_HEAL:
		return port_heal(port);
	case FAB_ACT_LATE:
		port_set(port->late_ns, spec->dirs, delay_ns);
		return NO_EVENT;
	case FAB_ACT_RATE:
		atomic_store_explicit(&port->rate_pinned, 1, memory_order_relaxed);
		atomic_store_explicit(&port->rate_bps, spec->args[FAB_ARG_VALUE] * 1000000ull,
				      memory_order_relaxed);
		return NO_EVENT;
	case FAB_ACT_EVENT:
		return (uint32_t)spec->args[FAB_ARG_TYPE];
	case FAB_ACT_EVENT_DELAY:
		atomic_store_explicit(&port->event_delay_ns, delay_ns, memory_order_seq_cst);
		return NO_EVENT;
	case FAB_ACT_EVENT_TWICE:
		atomic_store_explicit(&port->event_twice, 1, memory_order_seq_cst);
		return NO_EVENT;
	default:
		return port_trouble(port, spec);
	}
}

void fab_action_apply(struct fab_root *root, struct fab_rule *rule)
{
	rule->event_type = port_change(fab_root_port(root, rule->spec.host, rule->spec.rail), rule);
}

struct telling {
	struct fab_event event;
	uint32_t rail; /* a port event bears the number of this rail's port on each device ... */
	bool is_other; /* ... unless the rule names a port */
	uint32_t times;
	uint64_t nth; /* QPs to pass before the one to break; 0 = none */
};

static void tell_inst(struct fab_inst *inst, void *arg)
{
	const struct telling *telling = arg;
	struct fab_event event = telling->event;

	if (!telling->is_other) {
		event.number = telling->rail - inst->rail + 1;
	}
	for (uint32_t i = 0; i < telling->times; i++) {
		fab_inst_post_event(inst, &event);
	}
	fab_inst_ring(inst);
}

bool fab_action_break_qp(struct fab_inst *inst, struct fab_qp_slot *slot, uint32_t type)
{
	uint32_t state = atomic_load_explicit(&slot->state, memory_order_seq_cst);
	struct fab_event event = {
		.type = type,
		.kind = FAB_EVENT_QP,
		.number = atomic_load_explicit(&slot->qpn, memory_order_relaxed),
	};

	while (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD) {
		if (atomic_compare_exchange_strong(&slot->state, &state, IBV_QPS_ERR)) {
			atomic_store_explicit(&inst->scan_due, 1, memory_order_seq_cst);
			fab_inst_post_event(inst, &event); /* rings */
			return true;
		}
	}
	return false;
}

/* Breaks the nth connected QP of the host's rail, over all that opened it. */
static void break_nth(struct fab_inst *inst, void *arg)
{
	struct telling *telling = arg;

	for (uint32_t i = 0; i < FAB_MAX_QPS && telling->nth > 0; i++) {
		struct fab_qp_slot *slot = &inst->qps[i];
		uint32_t state = atomic_load_explicit(&slot->state, memory_order_seq_cst);

		if (atomic_load_explicit(&slot->qpn, memory_order_relaxed) == 0 ||
		    slot->own_rail != telling->rail) {
			continue;
		}
		if (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD) {
			telling->nth--;
		}
		if (telling->nth == 0) {
			(void)fab_action_break_qp(inst, slot, IBV_EVENT_QP_FATAL);
		}
	}
}

void fab_action_tell(struct fab_root *root, const char *dir, const struct fab_rule *rule)
{
	const struct fab_rule_spec *spec = &rule->spec;
	struct fab_port *port = fab_root_port(root, spec->host, spec->rail);
	uint64_t delay_ns = atomic_load_explicit(&port->event_delay_ns, memory_order_seq_cst);
	uint64_t other = spec->args[FAB_ARG_PORT];
	struct telling telling = {
		.event = {.type = rule->event_type,
			  .kind = rule->event_type == IBV_EVENT_DEVICE_FATAL ? FAB_EVENT_DEVICE
									     : FAB_EVENT_PORT,
			  .number = (uint32_t)other,
			  .due_ns = delay_ns != 0 ? fab_now_ns() + delay_ns : 0},
		.rail = spec->rail,
		.is_other = other != 0,
		.times = 1 + atomic_load_explicit(&port->event_twice, memory_order_seq_cst),
		.nth = spec->args[FAB_ARG_NTH] != 0 ? spec->args[FAB_ARG_NTH] : 1,
	};

	if (rule->event_type == NO_EVENT) {
		telling.times = 0;
	}
	fab_inst_each(root, dir, spec->host, spec->rail, tell_inst, &telling);
	if (spec->action == FAB_ACT_QP_FATAL) {
		fab_inst_each(root, dir, spec->host, spec->rail, break_nth, &telling);
	}
}
