/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_CALL_H
#define BRAID_TEST_FABRIC_CALL_H

#include "test/fabric/root.h"

/** At the beginning of a control verb, without locks: blocks as long as a rule says, or until the
 * rail is healed. Returns -ENOMEM when this call is the one that fails, else 0. */
int fab_call_begin(struct fab_port *port, enum fab_call call);

#endif
