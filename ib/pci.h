/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_PCI_H
#define BRAID_IB_PCI_H

#include <stdbool.h>

#define PCI_SYSFS_ROOT "/sys"

enum {
	PCI_PATH_MAX_BYTES = 512
};

/** What sysfs says about where a verbs device sits; below a root folder, so that tests can make
 * one. */
struct pci_place {
	/* real path of the device's folder; "" when it is no PCI device (soft RoCE) */
	char path[PCI_PATH_MAX_BYTES];
	/* real path of the physical function behind a virtual one; "" when it is none */
	char physfn[PCI_PATH_MAX_BYTES];
	int numa_node; /* -1 unknown */
};

/** Look a verbs device up. Never fails: what is not there stays empty. Reads files, may block. */
void ib_pci_place_read(const char *root, const char *device, struct pci_place *out);

/**
 * What NCCL calls the PCI path: the function digit zeroed so that the ports of one card get one
 * path, and with merge_vfs the device digits too, so that its virtual functions do. In place.
 */
void ib_pci_path_fold(char *path, bool merge_vfs);

/** Are two devices, given by real path, below one PCI bridge (switch or root port)? */
bool ib_pci_path_same_bridge(const char *a, const char *b);
/** Below one host bridge? */
bool ib_pci_path_same_root(const char *a, const char *b);

#endif
