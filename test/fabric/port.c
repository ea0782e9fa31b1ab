/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/port.h"

#define STEP_NS   100000ull
#define CREDIT_NS 500000ull /* how late a sleeper may wake without losing bandwidth */
#define STEP_MIN  4096ull

static uint64_t rate_of(const struct fab_port *port)
{
	return atomic_load_explicit(&port->rate_bps, memory_order_relaxed);
}

static uint64_t free_at(const struct fab_port *port, enum fab_dir dir)
{
	return rate_of(port) == 0
		       ? 0
		       : atomic_load_explicit(&port->free_at_ns[dir], memory_order_relaxed);
}

uint64_t fab_port_free_at(const struct fab_port *tx, const struct fab_port *rx)
{
	uint64_t a = free_at(tx, FAB_TX);
	uint64_t b = free_at(rx, FAB_RX);

	return a > b ? a : b;
}

uint64_t fab_port_turns(const struct fab_port *tx, const struct fab_port *rx)
{
	return atomic_load_explicit(&tx->turns[FAB_TX], memory_order_relaxed) +
	       atomic_load_explicit(&rx->turns[FAB_RX], memory_order_relaxed);
}

void fab_port_take_turn(struct fab_port *tx, struct fab_port *rx)
{
	if (rate_of(tx) != 0) {
		atomic_fetch_add_explicit(&tx->turns[FAB_TX], 1, memory_order_relaxed);
	}
	if (rate_of(rx) != 0) {
		atomic_fetch_add_explicit(&rx->turns[FAB_RX], 1, memory_order_relaxed);
	}
}

static void spend(struct fab_port *port, enum fab_dir dir, uint64_t bytes, uint64_t now_ns)
{
	uint64_t rate = rate_of(port);
	uint64_t old = atomic_load_explicit(&port->free_at_ns[dir], memory_order_relaxed);
	uint64_t cost_ns;
	uint64_t next;

	if (rate == 0) {
		return;
	}
	cost_ns = (uint64_t)((double)bytes * 1e9 / (double)rate);
	do {
		next = (old + CREDIT_NS > now_ns ? old : now_ns - CREDIT_NS) + cost_ns;
	} while (!atomic_compare_exchange_weak_explicit(
		&port->free_at_ns[dir], &old, next, memory_order_relaxed, memory_order_relaxed));
}

void fab_port_spend(struct fab_port *tx, struct fab_port *rx, uint64_t bytes, uint64_t now_ns)
{
	spend(tx, FAB_TX, bytes, now_ns);
	spend(rx, FAB_RX, bytes, now_ns);
}

static uint64_t step_of(const struct fab_port *port, uint64_t max)
{
	uint64_t rate = rate_of(port);
	uint64_t step = rate / 1000000 * (STEP_NS / 1000);

	if (rate == 0 || step > max) {
		return max;
	}
	return step < STEP_MIN ? STEP_MIN : step;
}

uint64_t fab_port_step_bytes(const struct fab_port *tx, const struct fab_port *rx, uint64_t max)
{
	return step_of(rx, step_of(tx, max));
}

uint64_t fab_port_delay_ns(const struct fab_port *from, const struct fab_port *to, uint64_t *dice)
{
	uint64_t delay_ns = atomic_load_explicit(&from->delay_ns[FAB_TX], memory_order_relaxed) +
			    atomic_load_explicit(&to->delay_ns[FAB_RX], memory_order_relaxed);
	uint64_t jitter_ns = atomic_load_explicit(&from->jitter_ns[FAB_TX], memory_order_relaxed) +
			     atomic_load_explicit(&to->jitter_ns[FAB_RX], memory_order_relaxed);

	return jitter_ns == 0 ? delay_ns : delay_ns + fab_dice_roll(dice) % (jitter_ns + 1);
}
