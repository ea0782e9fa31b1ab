/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_REJOIN_OPS_H
#define BRAID_PLUGIN_REJOIN_OPS_H

#include "include/frame.h"

#include <stdbool.h>
#include <stdint.h>

struct comm_path;

/* The verbs side of a rejoin, on the rail's worker; see struct repair_ops. Comm's lock held. */
void rejoin_op_rebuild(void *ctx, unsigned int path, uint32_t epoch);
void rejoin_op_join(void *ctx, unsigned int path, uint32_t epoch, const struct path_side *peer);
bool rejoin_op_key(void *ctx, unsigned int path, void *cookie, uint32_t *rkey);

/**
 * Something became usable again: paths, of all comms, that `is_meant` and that are DOWN need not
 * wait for their next attempt. No lock held; `is_meant` is called with the comm's.
 */
void rejoin_hint_all(bool (*is_meant)(const struct comm_path *path, const void *arg),
		     const void *arg);

#endif
