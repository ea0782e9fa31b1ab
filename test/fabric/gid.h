/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_GID_H
#define BRAID_TEST_FABRIC_GID_H

#include "test/fabric/ctx.h"

/* The GID table of a port: what the made-up host says, else one entry; after `gid_move` the port's
 * GID is at the index given and nowhere else. */

/** Entries, empty ones counted; at least 1. */
int fab_gid_len(const struct fab_ctx *ctx, uint32_t port_num);

/** Entry `index` of a port that exists: its GID and its enum ibv_gid_type, each where wanted
 * (not NULL). False, and nothing written, when there is none. */
bool fab_gid_read(const struct fab_ctx *ctx, uint32_t port_num, int index, union ibv_gid *gid,
		  uint32_t *type);

#endif
