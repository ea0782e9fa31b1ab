/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_DISCOVER_H
#define BRAID_IB_DISCOVER_H

#include "ib/hca_filter.h"
#include "ib/rail.h"

enum {
	DISCOVER_SEEN_MAX_BYTES = 512
};

/** One pass over the devices; lives only in ib_rails_open(). */
struct discovery {
	const struct braid_config *cfg;
	const char *sysfs_root;
	struct hca_filter filter;
	struct ib_rails *rails;           /* filled */
	struct ib_rail hidden[RAILS_MAX]; /* ports that are not ACTIVE yet, for its end */
	unsigned int hidden_count;
	char seen[DISCOVER_SEEN_MAX_BYTES]; /* "name:port, ..." of everything there */
	unsigned int port_count;            /* of everything there */
	unsigned int passed_count;          /* let through by the filter */
};

/**
 * Open a device and append a rail for each of its usable ports; one line for each port that is left
 * out. A device that cannot be used is left out, never an error. Closed again when it gave no rail.
 */
void ib_discover_device(struct discovery *d, struct ibv_device *device);

/** After the last device: append the ports that are not ACTIVE yet, behind what NCCL sees. */
void ib_discover_finish(struct discovery *d);

#endif
