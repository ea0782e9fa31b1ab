/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_FLOW_H
#define BRAID_TEST_DRIVER_FLOW_H

#include "test/driver/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flow_kind {
	FLOW_PLAIN, /**< a run of elements, cut into messages */
	FLOW_RING   /**< all-reduce: reduce-scatter, then all-gather, in loops over the buffer */
};

enum flow_dir {
	FLOW_SEND,
	FLOW_RECV
};

enum {
	FLOW_STEPS = 8 /**< messages in flight per connection, and slices per ring chunk */
};

/** The messages one connection carries in one iteration. Offsets and counts are in elements. */
struct flow {
	enum flow_kind kind;
	enum flow_dir dir;
	uint32_t rank;
	uint32_t rank_count;
	size_t base;                  /**< where the run starts in the user buffers */
	size_t count;                 /**< how long it is */
	size_t cap;                   /**< longest message, a multiple of 32 */
	size_t idx_base;              /**< user buffer offset of the data streams' element 0 */
	size_t slices;                /**< ring: messages per chunk */
	uint64_t total;               /**< messages; at least one, so that 0 bytes are sent too */
	uint32_t keys[OPT_RANKS_MAX]; /**< plain: keys[0]; ring: of each rank */
};

/** One message. */
struct msg {
	size_t off;   /**< in the user buffers */
	size_t count; /**< may be 0 */
	bool from_in; /**< send: from the input, not from the partial results */
	bool reduce;  /**< receive: add own input, do not just store */
	bool has_dep; /**< send: only after receive `dep` of the ring's other side was used */
	uint64_t dep;
	uint32_t
		key_first; /**< its elements are the sum over key_count streams from this one on, */
	uint32_t key_count; /**< round the ring */
};

/** Fill in slices and total from the other fields; min_slice bounds how small a ring slice gets. */
void flow_cut(struct flow *flow, size_t min_slice);
/** Message idx, 0 <= idx < flow->total. */
struct msg flow_msg(const struct flow *flow, uint64_t idx);
/** Element i of that message as it must arrive. */
uint32_t flow_element(const struct flow *flow, const struct msg *msg, size_t i);

#endif
