/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_NCCL_OP_H
#define BRAID_TEST_NCCL_OP_H

/* One collective on one communicator: its buffers, its call, its check. */

#include "test/nccl/matrix/rank.h"

enum op_coll {
	OP_ALL_REDUCE,
	OP_ALL_GATHER,
	OP_REDUCE_SCATTER,
	OP_BROADCAST,
	OP_REDUCE,
	OP_ALL_TO_ALL,
	OP_RING,
	OP_COLL_COUNT
};

enum op_place {
	OP_OUT_OF_PLACE,
	OP_IN_PLACE,
	OP_PLACE_COUNT
};

struct op {
	enum op_coll coll;
	enum value_type type;
	enum value_red red;
	enum op_place place;
	bool is_registered;
	int64_t root;   /* of a broadcast or reduce; -1: the ranks take turns */
	uint64_t bytes; /* of the larger buffer of a rank, about: whole elements, equal parts */
};

/** Prepared by op_prepare for one communicator. */
struct op_run {
	struct op op;
	struct comm *comm;
	struct value_spec spec;
	int root;
	uint64_t send_count;
	uint64_t recv_count;
	void *send;
	void *recv;
	void *send_registration;
	void *recv_registration;
};

const char *op_coll_name(enum op_coll coll);
const char *op_type_name(enum value_type type);
const char *op_red_name(enum value_red red);

/**
 * The idx-th operation of a line's lists (coll, type, red, bytes, place, reg multiplied out; what
 * has no meaning, such as a sum of a broadcast twice, is left out). -ENOENT past the end.
 */
int op_pick(const struct plan_line *line, int rank_count, unsigned idx, struct op *op);
/** Buffers filled, guards set; done on the GPU on return. */
int op_prepare(struct rank *rank, struct comm *comm, const struct op *op, struct op_run *run);
/** Hands it to NCCL. Does not wait. */
int op_launch(struct rank *rank, struct op_run *run);
/** Waits for it, looking for errors; -EIO for one, -ETIMEDOUT at the step's limit. */
int op_wait(struct rank *rank, struct op_run *run);
/** Counts wrong elements and guard bytes into the rank's result. */
int op_check(struct rank *rank, struct op_run *run);
/** Prepare, all ranks together, launch, wait, check; the rank's result is filled in. */
int op_round(struct rank *rank, struct comm *comm, const struct op *op);

#endif
