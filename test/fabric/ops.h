/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_OPS_H
#define BRAID_TEST_FABRIC_OPS_H

#include "test/fabric/lib.h"

/** Fills the verbs that are not emulated and that verbs.h reaches through the context: each answers
 * EOPNOTSUPP in its own way and names itself. */
void fab_ops_refuse(struct verbs_context *verbs);

#endif
