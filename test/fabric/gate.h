/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_GATE_H
#define BRAID_TEST_FABRIC_GATE_H

#include "test/fabric/rule.h"

#include <stdbool.h>

/*
 * What makes faults exact. While a rule with a counting trigger waits at a port, every placement
 * through that port goes through its gate, one at a time: ask how much may move, move it, count it.
 * A rule fires inside the gate, so the byte after the last one counted already meets the fault.
 * Placements that began before the rule was installed are not counted.
 */
struct fab_gate {
	struct fab_root *root;
	const char *dir;
	struct fab_port *tx;
	struct fab_port *rx;
	bool tx_locked;
	bool rx_locked;
};

/** Blocks while another placement is in the gate; does nothing while no rule waits. */
void fab_gate_enter(struct fab_gate *gate);
void fab_gate_leave(struct fab_gate *gate);

/** How many of `want` bytes may be placed before some rule fires. At least 1 for want > 0. */
uint64_t fab_gate_allow(const struct fab_gate *gate, uint64_t want);
/** Counts bytes that were placed, in the ports' counters too. */
void fab_gate_bytes(const struct fab_gate *gate, uint64_t bytes);
/** Counts a plain write that is placed to its end. */
void fab_gate_write(const struct fab_gate *gate);
/** Counts a write with immediate passing one of its edges. True when that fired a rule. */
bool fab_gate_imm(const struct fab_gate *gate, enum fab_edge edge);

#endif
