/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_SYSFS_TREE_H
#define BRAID_TEST_FABRIC_SYSFS_TREE_H

#include "test/fabric/sysfs/topo.h"

/**
 * Writes below `root`, an existing folder that stands for /sys, what the kernel would show of the
 * devices of host `host`: class/infiniband, class/infiniband_verbs, class/net, class/pci_bus,
 * bus/pci/devices and devices/. Links are relative, so the tree may move. Files that are there
 * already are written anew. Returns 0 or -errno of the first call that failed.
 */
int fab_tree_write(const struct fab_topo *topo, uint32_t host, const char *root);

#endif
