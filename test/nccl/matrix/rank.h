/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_NCCL_RANK_H
#define BRAID_TEST_NCCL_RANK_H

/* One rank: a process with its communicators, walking the plan. */

#include "test/fabric/fabric_ctl.h"
#include "test/nccl/matrix/nccl_api.h"
#include "test/nccl/matrix/plan.h"
#include "test/nccl/matrix/shared.h"

#include <stdbool.h>
#include <stdint.h>

#define RANK_MAX_COMMS 16
#define COMM_NAME_LEN  24

/** Memory with guards around it, and its registrations. */
struct arena {
	unsigned char *block;
	size_t len_bytes; /* that data may take */
};

struct comm {
	char name[COMM_NAME_LEN]; /* empty: a free place */
	void *handle;
	int rank;
	int rank_count;
	uint32_t color; /* of the split, so that two communicators' data differ */
	void *stream;
	struct arena send;
	struct arena recv;
};

struct rank {
	int rank;
	uint64_t step_limit_ms;
	int64_t corrupt_line; /* self-test: a step of this line gets one wrong element; -1 none */
	uint32_t salt;        /* of the next operation */
	struct shared *shared;
	struct shared_result *mine;
	struct nccl_api api;
	struct fabric_ctl *fabric; /* NULL without FABRIC_DIR */
	const struct plan_line *line;
	struct comm comms[RANK_MAX_COMMS];
};

/** Walks the plan. 0, or -errno with a line on stderr; the process is to exit then. */
int rank_run(struct rank *rank, const struct plan *plan);

/** A barrier of all ranks, bounded by the step's limit. */
int rank_sync(struct rank *rank);
/** Notes what NCCL said, once, for the report; gives -EIO. */
int rank_error(struct rank *rank, const char *what, int result);

/** Verbs `comm`, `split`, `destroy`. */
int comm_create(struct rank *rank, const struct plan_line *line);
int comm_split(struct rank *rank, const struct plan_line *line);
int comm_destroy(struct rank *rank, const char *name);
/** Gives the communicator up at once, in whatever state it is; its time goes to abort_ns. */
int comm_abort(struct rank *rank, struct comm *comm);
/** By name; NULL with a line on stderr. */
struct comm *comm_find(struct rank *rank, const char *name);
/** Waits until a call on a communicator that does not block has been carried out. */
int comm_settle(struct rank *rank, struct comm *comm, int result, const char *what);
/** At least `len_bytes` of data in it. Guards in front of and behind it are set by the caller. */
int arena_grow(struct arena *arena, size_t len_bytes);

/** Verbs that move data. */
int verb_op(struct rank *rank, const struct plan_line *line);
int verb_bench(struct rank *rank, const struct plan_line *line);
int verb_fault(struct rank *rank, const struct plan_line *line);
int verb_pause(struct rank *rank, const struct plan_line *line);
int verb_kill(struct rank *rank, const struct plan_line *line);
int verb_abort(struct rank *rank, const struct plan_line *line);

/** Installs the rules of a list `a,b,c+d,e`; `idxs` (8 places) gets their numbers. Rank 0 only. */
int rules_install(struct rank *rank, const char *list, uint32_t *idxs, unsigned *count);

#endif
