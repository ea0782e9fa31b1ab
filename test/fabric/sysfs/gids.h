/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_SYSFS_GIDS_H
#define BRAID_TEST_FABRIC_SYSFS_GIDS_H

#include "test/fabric/sysfs/topo.h"

/** The 16 bytes of the GID of that kind that the port (host, rail) has; FAB_GID_EMPTY is zeros. */
void fab_gid_make(enum fab_gid_kind kind, uint32_t host, uint32_t rail, uint8_t gid[16]);

/** The port a GID belongs to, whatever its kind. 0, or -EINVAL when no port has it. */
int fab_gid_owner(const uint8_t gid[16], uint32_t *host, uint32_t *rail);

#endif
