/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_WR_ID_H
#define BRAID_WR_ID_H

#include "include/limits.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

/**
 * Work request ids. On a failed completion only wr_id, status, qp_num and vendor_err are valid, so
 * everything needed to find the owner is in here.
 *
 *   63   56 55    48 47        32 31           0
 *  +-------+--------+------------+--------------+
 *  | kind  |  path  | epoch low  |  queue index |
 *  +-------+--------+------------+--------------+
 *
 * The epoch is the path's when the WR was posted: a completion that outlived its QP is recognised.
 * The index counts the items of the path's send queue (repair/wrq.h); receives have index 0.
 */
enum wr_kind {
	WR_KIND_NONE,
	WR_KIND_ITEM, /* last WR of a send queue item: its completion retires the item */
	WR_KIND_PART, /* earlier WR of an item's chain: completes only on error */
	WR_KIND_RECV,
	WR_KIND_FLUSH, /* loopback read */
	WR_KIND_COUNT
};

struct wr_id {
	enum wr_kind kind;
	uint8_t path;
	uint16_t epoch_low;
	uint32_t idx;
};

static_assert(PATHS_MAX <= 256, "path has 8 bits");

static inline uint64_t wr_id_pack(struct wr_id id)
{
	return (uint64_t)id.kind << 56 | (uint64_t)id.path << 48 | (uint64_t)id.epoch_low << 32 |
	       id.idx;
}

static inline struct wr_id wr_id_unpack(uint64_t raw)
{
	return (struct wr_id){.kind = (enum wr_kind)(raw >> 56),
			      .path = (uint8_t)(raw >> 48),
			      .epoch_low = (uint16_t)(raw >> 32),
			      .idx = (uint32_t)raw};
}

#endif
