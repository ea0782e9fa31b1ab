/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_LAYOUT_H
#define BRAID_TEST_FABRIC_LAYOUT_H

/* What the processes of one fabric share: one root file, and one file for each opened device. */
#include "test/fabric/layout_inst.h"
#include "test/fabric/layout_root.h"

#endif
