/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_FLUSH_H
#define BRAID_IB_FLUSH_H

#include "ib/mr.h"
#include "ib/qp.h"

/**
 * Loopback QP on one rail: a one-byte RDMA read through the HCA pushes the PCIe writes that this
 * HCA did before (GPU memory). One per rail that carries pieces of a comm with GPU buffers.
 */
struct ib_flush {
	struct ib_qp qp; /* connected to itself */
	uint8_t *scratch;
	struct ib_mr *scratch_mr;
	struct ib_mr_cache *cache;
};

int ib_flush_create(struct ib_rail *rail, struct ib_mr_cache *cache, const struct braid_config *cfg,
		    struct ib_flush *out);
void ib_flush_destroy(struct ib_flush *flush);
/** Post the read of one byte at addr. wr_id comes back in the completion. 0 or -errno. */
int ib_flush_post(struct ib_flush *flush, uint64_t addr, uint32_t rkey, uint64_t wr_id);
/** Completions of the flush QP. Count or -errno. */
int ib_flush_poll(struct ib_flush *flush, struct ib_wc *wcs, unsigned int max);

#endif
