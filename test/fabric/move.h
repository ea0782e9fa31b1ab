/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_MOVE_H
#define BRAID_TEST_FABRIC_MOVE_H

#include "test/fabric/copy.h"
#include "test/fabric/qp_send.h"
#include "test/fabric/srq.h"

struct fab_late;

/** One step of one message: what its requester, or a late packet of it, does at the responder. */
struct fab_move {
	struct fab_qp *qp;
	struct fab_swr *wr;
	struct fab_late *late; /* a packet that was held back, `qp` is its ghost; NULL = live */
	struct fab_path path;
	struct fab_gate gate;
	uint64_t claim;
	uint64_t claim_phase;
	uint64_t now_ns;
	uint64_t step_bytes;
	struct fab_list local;
	struct fab_list remote;
	struct fab_sge remote_sge[FAB_MAX_SGE]; /* the receive's list, or the one remote range */
	bool ring;                              /* the responder's owner wants waking */
	bool between;                           /* one packet between the turns of others */
};

/** How a step may end without having moved anything. */
enum fab_verdict {
	FAB_GO_ON,
	FAB_LOST,       /* dropped without an answer */
	FAB_DUPLICATE,  /* the responder has it already: acknowledged, not executed again */
	FAB_RNR,        /* the responder has no receive posted */
	FAB_BUSY,       /* the responder's process has to help and is stopped: come back */
	FAB_REM_ACCESS, /* the responder refuses: key, bounds, rights */
	FAB_REM_INVALID,
	FAB_REM_OP,
	FAB_LOCAL_PROT,
};

static inline bool fab_wr_is_imm(const struct fab_swr *wr)
{
	return wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static inline bool fab_wr_is_send(const struct fab_swr *wr)
{
	return wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;
}

static inline bool fab_wr_is_atomic(const struct fab_swr *wr)
{
	return wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static inline bool fab_wr_is_read(const struct fab_swr *wr)
{
	return wr->opcode == IBV_WR_RDMA_READ;
}

/** May the application's list be read, or written by a read? */
bool fab_move_local_ok(const struct fab_move *m);
/** Everything the two ends look at before the bytes move; sets the remote list and step_bytes. */
enum fab_verdict fab_move_check(struct fab_move *m);
/** Do its packets get to the responder's port? */
bool fab_move_arrives(const struct fab_move *m);
/** Points the gate at the two ports. After fab_path_find(). */
void fab_move_aim(struct fab_move *m);
/** Books bytes that it moved on the rates of the two ports, and as its QP's turn. */
void fab_move_book(struct fab_move *m, uint64_t bytes);
/** Checks, moves, completes: under claim and gate. */
enum fab_verdict fab_move_run(struct fab_move *m);
/** One at a time on the responder's device. False: another engine is at it. After fab_path_find().
 */
bool fab_atomic_begin(struct fab_move *m);
void fab_atomic_end(struct fab_move *m);
/** Reads, computes, writes, and gives what it read to the requester. In the place of a copy. */
enum fab_copied fab_atomic_execute(struct fab_move *m);
/** What the requester makes of the verdict. Returns when to come back, as fab_qp_step() does. */
uint64_t fab_move_answer(struct fab_move *m, enum fab_verdict verdict);

#endif
