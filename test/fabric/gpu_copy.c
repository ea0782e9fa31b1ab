/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/gpu_area.h"
#include "test/fabric/move.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/*
 * One step of a message with GPU memory at an end: all bytes go through one window, which is a
 * peer's where the peer's GPU is concerned, else the engine's own.
 */

struct stage {
	const struct fab_move *m;
	struct fab_gpu *gpu; /* of the own device; NULL without own GPU memory */
	struct fab_gpu_area *area;
	struct fab_gpu_job *job; /* in `area`; NULL: no job is needed */
	char *window;
	bool is_marked; /* the owner's thread has stored the claim behind the bytes */
};

/* A contiguous part of a list. */
struct part {
	struct fab_inst *inst;
	uint64_t addr;
	uint64_t len;
	uint64_t offset; /* in the window */
	int device;      /* -1: ordinary memory */
	bool last;
};

static int region_device(const struct fab_inst *inst, const struct fab_sge *sge)
{
	const struct fab_mr_slot *slot = &inst->mrs[(sge->lkey >> 8) % FAB_MAX_MRS];

	/* An address inside tells a key from what an inline send has left in its place. */
	if (sge->lkey == 0 || sge->len_bytes == 0 || (slot->access & FAB_ACCESS_GPU) == 0 ||
	    atomic_load_explicit(&slot->key, memory_order_acquire) != sge->lkey ||
	    sge->addr - slot->addr >= slot->len_bytes) {
		return -1;
	}
	return (int)((slot->access & FAB_ACCESS_GPU_DEVICE) >> FAB_ACCESS_GPU_SHIFT);
}

static bool list_has_gpu(const struct fab_inst *inst, const struct fab_list *list)
{
	for (uint64_t i = 0; i < list->count; i++) {
		if (region_device(inst, &list->sge[i]) >= 0) {
			return true;
		}
	}
	return false;
}

bool fab_gpu_concerns(const struct fab_move *m)
{
	return list_has_gpu(m->qp->ctx->inst, &m->local) || list_has_gpu(m->path.peer, &m->remote);
}

/* Calls `fn` for the parts of `len` bytes of the list, in order, until one fails. */
static int list_each(struct stage *s, struct fab_inst *inst, const struct fab_list *list,
		     uint64_t len, int (*fn)(struct stage *s, const struct part *part))
{
	uint64_t skip = list->pos_bytes;
	uint64_t done = 0;

	for (uint64_t i = 0; i < list->count && done < len; i++) {
		uint64_t have = list->sge[i].len_bytes;
		struct part part = {.inst = inst, .offset = done};
		int rc;

		if (skip >= have) {
			skip -= have;
			continue;
		}
		part.addr = list->sge[i].addr + skip;
		part.len = have - skip < len - done ? have - skip : len - done;
		part.device = region_device(inst, &list->sge[i]);
		part.last = done + part.len == len;
		rc = fn(s, &part);
		if (rc != 0) {
			return rc;
		}
		done += part.len;
		skip = 0;
	}
	return 0;
}

static bool is_here(const struct stage *s, const struct part *part)
{
	return part->inst->pid == s->m->qp->ctx->inst->pid;
}

static int part_by_job(struct stage *s, const struct part *part, bool to_device)
{
	struct fab_gpu_job *job = s->job;
	int rc;

	job->device = (uint32_t)part->device;
	job->to_device = to_device ? 1 : 0;
	job->qp_idx = s->m->path.slot_idx;
	job->claim = s->m->claim;
	job->marks = to_device && part->last ? 1 : 0;
	job->addr = part->addr;
	job->offset = part->offset;
	job->len_bytes = part->len;
	rc = fab_gpu_job_run(s->m->qp->ctx, s->area, job, part->inst->id);
	s->is_marked = rc == 0 && job->marks != 0;
	return rc;
}

static int part_by_call(const struct stage *s, const struct part *part, long call)
{
	struct iovec window = {.iov_base = s->window + part->offset, .iov_len = part->len};
	struct iovec there = {.iov_base = (void *)(uintptr_t)part->addr, .iov_len = part->len};

	if (syscall(call, part->inst->pid, &window, 1, &there, 1, 0) == (long)part->len) {
		return 0;
	}
	return errno == ESRCH || errno == EPERM ? -ESRCH : -EFAULT;
}

static int part_fill(struct stage *s, const struct part *part)
{
	if (part->device < 0) {
		return part_by_call(s, part, SYS_process_vm_readv);
	}
	if (!is_here(s, part)) {
		return part_by_job(s, part, false);
	}
	return fab_cuda_from_device(&s->gpu->engine[part->device], s->window + part->offset,
				    part->addr, part->len);
}

static int part_empty(struct stage *s, const struct part *part)
{
	if (part->device < 0) {
		return part_by_call(s, part, SYS_process_vm_writev);
	}
	if (!is_here(s, part)) {
		return part_by_job(s, part, true);
	}
	return fab_cuda_to_device(&s->gpu->engine[part->device], part->addr,
				  s->window + part->offset, part->len);
}

/* Lanes to the GPUs of this process; the peer may be another device of it. */
static int lanes_prepare(struct stage *s, const struct fab_inst *inst, const struct fab_list *list)
{
	for (uint64_t i = 0; i < list->count; i++) {
		int device = region_device(inst, &list->sge[i]);
		int rc = device >= 0 ? fab_gpu_prepare(s->m->qp->ctx, device) : 0;

		if (rc != 0) {
			return rc;
		}
	}
	return 0;
}

static int stage_open(struct stage *s)
{
	const struct fab_move *m = s->m;
	struct fab_ctx *ctx = m->qp->ctx;
	bool same = ctx->inst->pid == m->path.peer->pid;
	int rc = lanes_prepare(s, ctx->inst, &m->local);

	rc = rc == 0 && same ? lanes_prepare(s, m->path.peer, &m->remote) : rc;
	if (rc != 0) {
		return rc;
	}
	s->gpu = atomic_load_explicit(&ctx->gpu, memory_order_acquire);
	if (!same && list_has_gpu(m->path.peer, &m->remote)) {
		s->area = fab_gpu_area_peer(ctx, m->path.peer->id);
		rc = s->area == NULL ? -ESRCH
				     : fab_gpu_job_take(ctx, s->area, m->path.peer->id, &s->job);
		if (rc != 0) {
			return rc;
		}
		s->window = s->area->windows[s->job - s->area->jobs];
		return 0;
	}
	s->window = s->gpu->stage;
	return 0;
}

static enum fab_copied copied_of(int rc, enum fab_copied bad)
{
	if (rc == 0) {
		return FAB_COPIED_OK;
	}
	if (rc == -EBUSY) {
		return FAB_COPIED_BUSY;
	}
	return rc == -ESRCH || rc == -ESTALE ? FAB_COPIED_GONE : bad;
}

enum fab_copied fab_gpu_copy(const struct fab_move *m)
{
	struct stage s = {.m = m};
	struct fab_inst *own = m->qp->ctx->inst;
	struct fab_inst *peer = m->path.peer;
	bool reads = fab_wr_is_read(m->wr);
	enum fab_copied copied;
	int rc = stage_open(&s);

	if (rc != 0) {
		return copied_of(rc, FAB_COPIED_BAD_LOCAL);
	}
	rc = reads ? list_each(&s, peer, &m->remote, m->step_bytes, part_fill)
		   : list_each(&s, own, &m->local, m->step_bytes, part_fill);
	copied = copied_of(rc, reads ? FAB_COPIED_BAD_PEER : FAB_COPIED_BAD_LOCAL);
	if (rc == 0) {
		rc = reads ? list_each(&s, own, &m->local, m->step_bytes, part_empty)
			   : list_each(&s, peer, &m->remote, m->step_bytes, part_empty);
		copied = copied_of(rc, reads ? FAB_COPIED_BAD_LOCAL : FAB_COPIED_BAD_PEER);
	}
	if (rc == 0 && !reads && !s.is_marked) {
		atomic_store_explicit(&m->path.slot->claim_done, m->claim, memory_order_release);
	}
	if (s.job != NULL) {
		fab_gpu_job_free(s.job);
	}
	return copied;
}

bool fab_gpu_gather(const struct fab_move *m, const struct fab_list *list, uint64_t len, void *to)
{
	struct stage s = {.m = m, .window = to};

	if (!list_has_gpu(m->qp->ctx->inst, list)) {
		return fab_copy_gather(list, len, to);
	}
	if (lanes_prepare(&s, m->qp->ctx->inst, list) != 0) {
		return false;
	}
	s.gpu = atomic_load_explicit(&m->qp->ctx->gpu, memory_order_acquire);
	return list_each(&s, m->qp->ctx->inst, list, len, part_fill) == 0;
}
