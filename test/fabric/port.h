/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_PORT_H
#define BRAID_TEST_FABRIC_PORT_H

#include "test/fabric/root.h"

#include <stdbool.h>

/** Do packets get from one port to the other? */
static inline bool fab_port_open(const struct fab_port *from, const struct fab_port *to)
{
	uint32_t tx = atomic_load_explicit(&from->flags, memory_order_seq_cst);
	uint32_t rx = atomic_load_explicit(&to->flags, memory_order_seq_cst);

	return (tx & (FAB_CUT_TX | FAB_DOWN | FAB_DEAD)) == 0 &&
	       (rx & (FAB_CUT_RX | FAB_DOWN | FAB_DEAD)) == 0;
}

/** Where in the table the port's GID is; -1 = it was taken away. */
static inline int fab_port_gid_index(const struct fab_port *port)
{
	return (int)atomic_load_explicit(&port->gid_index, memory_order_seq_cst) < 0
		       ? -1
		       : (int)atomic_load_explicit(&port->gid_index, memory_order_seq_cst);
}

/** How many of a billion packets from one port to the other get lost. */
static inline uint64_t fab_port_drop_ppb(const struct fab_port *from, const struct fab_port *to)
{
	return atomic_load_explicit(&from->drop_ppb[FAB_TX], memory_order_relaxed) +
	       atomic_load_explicit(&to->drop_ppb[FAB_RX], memory_order_relaxed);
}

/** How long a packet from one port to the other takes, beyond FABRIC_LATENCY_US. `dice` makes the
 * jitter. */
uint64_t fab_port_delay_ns(const struct fab_port *from, const struct fab_port *to, uint64_t *dice);

/** The next random number of a stream; `dice` is its state, any seed is fine. */
static inline uint64_t fab_dice_roll(uint64_t *dice)
{
	uint64_t x = *dice += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/** Does anything get out of the port? */
static inline bool fab_port_sends(const struct fab_port *port)
{
	return (atomic_load_explicit(&port->flags, memory_order_seq_cst) &
		(FAB_CUT_TX | FAB_DOWN | FAB_DEAD)) == 0;
}

/** Do acknowledgements of data sent by `requester` get back from `responder`? */
static inline bool fab_port_ack_open(const struct fab_port *requester,
				     const struct fab_port *responder)
{
	uint32_t req = atomic_load_explicit(&requester->flags, memory_order_seq_cst);
	uint32_t rsp = atomic_load_explicit(&responder->flags, memory_order_seq_cst);

	return fab_port_open(responder, requester) && (req & FAB_ACK_TX) == 0 &&
	       (rsp & FAB_ACK_RX) == 0;
}

/** How long packets from one port to the other are held back; 0 = not at all. */
static inline uint64_t fab_port_late_ns(const struct fab_port *from, const struct fab_port *to)
{
	return atomic_load_explicit(&from->late_ns[FAB_TX], memory_order_seq_cst) +
	       atomic_load_explicit(&to->late_ns[FAB_RX], memory_order_seq_cst);
}

/** When the next bytes may go from tx to rx at the ports' rates; in the past = now. */
uint64_t fab_port_free_at(const struct fab_port *tx, const struct fab_port *rx);

/** How many turns were taken at the two ports while they had a rate. */
uint64_t fab_port_turns(const struct fab_port *tx, const struct fab_port *rx);
/** Counts one. */
void fab_port_take_turn(struct fab_port *tx, struct fab_port *rx);

/** Books `bytes` on both ports' rates. */
void fab_port_spend(struct fab_port *tx, struct fab_port *rx, uint64_t bytes, uint64_t now_ns);

/** The most bytes to move in one go so that a port's rate is smooth to about 100 us. */
uint64_t fab_port_step_bytes(const struct fab_port *tx, const struct fab_port *rx, uint64_t max);

#endif
