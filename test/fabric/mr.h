/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_MR_H
#define BRAID_TEST_FABRIC_MR_H

#include "test/fabric/ctx.h"

/** Is [addr, addr + len) inside the region `key` of that instance, with all of `access`? Returns
 * the address the bytes lie at in the owner's process, or 0. `pd` must be the QP's. */
uint64_t fab_mr_find(struct fab_inst *inst, uint32_t key, uint64_t addr, uint64_t len,
		     unsigned int access, uint32_t pd);

struct fab_pd {
	struct ibv_pd ibv; /* first: the caller's pointer */
	uint32_t id;
	_Atomic uint32_t use_count;
};

static inline struct fab_pd *fab_pd_of(struct ibv_pd *pd)
{
	return (struct fab_pd *)(void *)pd;
}

#endif
