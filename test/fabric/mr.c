/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/mr.h"

#include "test/fabric/call.h"
#include "test/fabric/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define ACCESS_KNOWN                                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_OPTIONAL_RANGE)

/* A key is index << 8 | a byte that changes with each use of the index; never 0. */
#define KEY_INDEX(key) ((key) >> 8)

struct fab_mr {
	struct ibv_mr ibv; /* first: the caller's pointer */
	uint32_t idx;
};

uint64_t fab_mr_find(struct fab_inst *inst, uint32_t key, uint64_t addr, uint64_t len,
		     unsigned int access, uint32_t pd)
{
	struct fab_mr_slot *slot;

	if (key == 0 || KEY_INDEX(key) >= FAB_MAX_MRS) {
		return 0;
	}
	slot = &inst->mrs[KEY_INDEX(key)];
	if (atomic_load_explicit(&slot->key, memory_order_seq_cst) != key || slot->pd != pd ||
	    (slot->access & access) != access) {
		return 0;
	}
	if (addr < slot->iova || len > slot->len_bytes ||
	    addr - slot->iova > slot->len_bytes - len) {
		return 0;
	}
	return slot->addr + (addr - slot->iova);
}

/* An adapter pins the pages, so they have to be there: tries the first and the last byte. */
static bool range_is_mapped(const void *addr, size_t len)
{
	char byte;
	struct iovec to = {.iov_base = &byte, .iov_len = 1};
	struct iovec from[2] = {
		{.iov_base = (void *)(uintptr_t)addr, .iov_len = 1},
		{.iov_base = (char *)(uintptr_t)addr + len - 1, .iov_len = 1},
	};

	for (int i = 0; i < 2; i++) {
		if (syscall(SYS_process_vm_readv, getpid(), &to, 1, &from[i], 1, 0) != 1) {
			return false;
		}
	}
	return true;
}

static int slot_take(struct fab_ctx *ctx, const struct fab_mr_slot *want, uint32_t *key)
{
	int rc = -ENOMEM;

	pthread_mutex_lock(&ctx->lock);
	for (uint32_t tried = 0; tried < FAB_MAX_MRS; tried++) {
		uint32_t idx = ctx->mr_next++ % FAB_MAX_MRS;
		struct fab_mr_slot *slot = &ctx->inst->mrs[idx];

		if (atomic_load_explicit(&slot->key, memory_order_relaxed) != 0) {
			continue;
		}
		slot->use_count = (slot->use_count + 1) % 255;
		slot->iova = want->iova;
		slot->len_bytes = want->len_bytes;
		slot->addr = want->addr;
		slot->access = want->access;
		slot->pd = want->pd;
		*key = idx << 8 | (slot->use_count + 1);
		atomic_store_explicit(&slot->key, *key, memory_order_seq_cst);
		rc = 0;
		break;
	}
	pthread_mutex_unlock(&ctx->lock);
	return rc;
}

static int mr_check(struct fab_ctx *ctx, const struct fab_mr_slot *want)
{
	unsigned int remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	if (fab_ctx_dead(ctx)) {
		return -EIO;
	}
	if (want->len_bytes == 0 || (want->access & ~(unsigned int)ACCESS_KNOWN) != 0) {
		return -EINVAL;
	}
	if ((want->access & remote) != 0 && (want->access & IBV_ACCESS_LOCAL_WRITE) == 0) {
		return -EINVAL;
	}
	return 0;
}

/* Ordinary memory has to be mapped; GPU memory is made reachable. */
static int mr_reach(struct fab_ctx *ctx, struct fab_mr_slot *want)
{
	int device = fab_gpu_device_of(want->addr, want->len_bytes);

	if (device >= 0) {
		want->access = fab_gpu_access(want->access, device);
		return fab_gpu_prepare(ctx, device);
	}
	return range_is_mapped((void *)(uintptr_t)want->addr, want->len_bytes) ? 0 : -EFAULT;
}

static struct ibv_mr *mr_create(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	struct fab_ctx *ctx = fab_ctx_of(pd->context);
	struct fab_mr_slot want = {
		.access = access,
		.pd = fab_pd_of(pd)->id,
		.iova = iova,
		.len_bytes = length,
		.addr = (uint64_t)(uintptr_t)addr,
	};
	struct fab_mr *mr = NULL;
	uint32_t key = 0;
	int rc = fab_call_begin(ctx->port, FAB_CALL_REG_MR);

	rc = rc != 0 ? rc : mr_check(ctx, &want);
	rc = rc != 0 ? rc : mr_reach(ctx, &want);
	if (rc != 0) {
		goto fail;
	}
	mr = calloc(1, sizeof(*mr));
	rc = mr == NULL ? -ENOMEM : slot_take(ctx, &want, &key);
	if (rc != 0) {
		goto fail;
	}
	mr->idx = KEY_INDEX(key);
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	mr->ibv.addr = addr;
	mr->ibv.length = length;
	mr->ibv.handle = mr->idx;
	mr->ibv.lkey = key;
	mr->ibv.rkey = key;
	atomic_fetch_add(&fab_pd_of(pd)->use_count, 1);
	fab_ctx_object_add(ctx);
	return &mr->ibv;
fail:
	free(mr);
	errno = -rc;
	return NULL;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return mr_create(pd, addr, length, (uint64_t)(uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access)
{
	return mr_create(pd, addr, length, iova, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	return mr_create(pd, addr, length, iova, access);
}

/*
 * A DMA-BUF of GPU memory cannot be mapped, and nothing tells from it which memory it is. So it has
 * to be registered under the address it has in the process, as NCCL and the plugin do, and that is
 * taken; the descriptor must be open and its buffer long enough.
 */
static int dmabuf_check(uint64_t offset, size_t length, uint64_t iova, int fd)
{
	off_t size;

	if (!fab_gpu_enabled()) {
		return -EOPNOTSUPP; /* callers probe with it: not worth a complaint */
	}
	if (fcntl(fd, F_GETFD) < 0) {
		return -EBADF;
	}
	size = lseek(fd, 0, SEEK_END);
	if (size >= 0 && (offset > (uint64_t)size || length > (uint64_t)size - offset)) {
		return -EINVAL;
	}
	return fab_gpu_device_of(iova, length) >= 0 ? 0 : -EINVAL;
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	int rc = dmabuf_check(offset, length, iova, fd);

	if (rc != 0) {
		errno = -rc;
		return NULL;
	}
	return mr_create(pd, (void *)(uintptr_t)iova, length, iova, (unsigned int)access);
}

int ibv_dereg_mr(struct ibv_mr *ibv)
{
	struct fab_mr *mr = (struct fab_mr *)(void *)ibv;
	struct fab_ctx *ctx = fab_ctx_of(ibv->context);

	(void)fab_call_begin(ctx->port, FAB_CALL_DEREG_MR);
	atomic_store_explicit(&ctx->inst->mrs[mr->idx].key, 0, memory_order_seq_cst);
	/* Nobody may touch the memory once this returns: neither the own engine, which may just be
	 * reading it, nor a peer's, which found the key a moment ago. */
	fab_engine_hold(ctx);
	fab_engine_release(ctx);
	for (uint32_t i = 0; i < atomic_load(&ctx->qp_high); i++) {
		fab_claim_drain(ctx->lib->root, ctx->inst, &ctx->inst->qps[i]);
	}
	atomic_fetch_sub(&fab_pd_of(ibv->pd)->use_count, 1);
	fab_ctx_object_del(ctx);
	free(mr);
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct fab_ctx *ctx = fab_ctx_of(context);
	struct fab_pd *pd;
	int rc = fab_call_begin(ctx->port, FAB_CALL_ALLOC_PD);

	if (rc != 0 || fab_ctx_dead(ctx)) {
		errno = rc != 0 ? -rc : EIO;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (pd == NULL) {
		return NULL;
	}
	pthread_mutex_lock(&ctx->lock);
	pd->id = ++ctx->pd_next;
	pthread_mutex_unlock(&ctx->lock);
	pd->ibv.context = context;
	pd->ibv.handle = pd->id;
	fab_ctx_object_add(ctx);
	return &pd->ibv;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (atomic_load(&fab_pd_of(pd)->use_count) != 0) {
		return EBUSY;
	}
	fab_ctx_object_del(fab_ctx_of(pd->context));
	free(fab_pd_of(pd));
	return 0;
}
