/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_ACTION_H
#define BRAID_TEST_FABRIC_ACTION_H

#include "test/fabric/root.h"

#include <stdbool.h>

/** Changes the port as the rule says, and keeps in the rule what there is to tell. */
void fab_action_apply(struct fab_root *root, struct fab_rule *rule);
/** Tells the host: posts the events, breaks the QP, wakes the engines. After fab_action_apply(). */
void fab_action_tell(struct fab_root *root, const char *dir, const struct fab_rule *rule);

/** Puts somebody's QP into ERR and tells the owner with an event of `type`; its engine flushes it.
 * False when it was not connected. */
bool fab_action_break_qp(struct fab_inst *inst, struct fab_qp_slot *slot, uint32_t type);

#endif
