/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/gpu.h"
#include "test/fabric/move.h"

/*
 * Compare-and-swap and fetch-and-add. They are atomic among all that go to one opened device, not
 * against the CPUs there: IBV_ATOMIC_HCA. What was there before is written to the requester's list
 * at once, also when the acknowledgement is lost, so a repetition has nothing to tell it.
 */

bool fab_atomic_begin(struct fab_move *m)
{
	return !fab_wr_is_atomic(m->wr) || fab_mutex_trylock(&m->path.peer->atomic_lock);
}

void fab_atomic_end(struct fab_move *m)
{
	if (fab_wr_is_atomic(m->wr)) {
		fab_mutex_unlock(&m->path.peer->atomic_lock);
	}
}

enum fab_copied fab_atomic_execute(struct fab_move *m)
{
	struct fab_inst *own = m->qp->ctx->inst;
	const struct fab_swr *wr = m->wr;
	uint64_t before = 0;
	uint64_t after;
	struct fab_sge sge = {.addr = (uint64_t)(uintptr_t)&before, .len_bytes = sizeof(before)};
	struct fab_list list = {.sge = &sge, .count = 1};
	enum fab_copied copied;

	if (fab_gpu_concerns(m)) {
		fab_complain("atomic operations on GPU memory are not emulated");
		return FAB_COPIED_BAD_PEER;
	}
	copied = fab_copy_in(own, m->path.peer, &list, &m->remote, sizeof(before));
	if (copied != FAB_COPIED_OK) {
		return copied;
	}
	after = before + wr->compare_add;
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		after = before == wr->compare_add ? wr->swap : before;
	}
	sge.addr = (uint64_t)(uintptr_t)&after;
	copied = fab_copy_out(own, m->path.peer, &list, &m->remote, sizeof(after),
			      &m->path.slot->claim_done, m->claim);
	if (copied != FAB_COPIED_OK) {
		return copied;
	}
	sge.addr = (uint64_t)(uintptr_t)&before;
	return fab_copy_in(own, own, &m->local, &list, sizeof(before));
}
