/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_GPU_RIG_H
#define BRAID_TEST_FABRIC_GPU_RIG_H

/* A rig process with a GPU: memory on it, registered, and its key at the peer. */

#include "test/fabric/tests/gpu/fake_cuda.h"
#include "test/fabric/tests/rig.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

struct gpu_rig {
	uint64_t addr; /* of RIG_BUF_BYTES on the GPU */
	struct ibv_mr *mr;
	uint64_t peer_addr;
	uint32_t peer_rkey;
	void (*delay)(unsigned int ms);
	unsigned int (*copies)(void);
	char *(*look)(unsigned long long addr);
	int (*mem_alloc)(unsigned long long *addr, size_t len);
	int (*mem_free)(unsigned long long addr);
	int (*export_fd)(int *fd, unsigned long long addr, size_t len, int type,
			 unsigned long long flags);
};

static inline void gpu_symbol(void *lib, const char *name, void *out)
{
	void *found = dlsym(lib, name);

	CHECK(found != NULL);
	memcpy(out, &found, sizeof(found));
}

/** Loads the driver, makes its context current in this thread, as a CUDA program has it. */
static inline void gpu_load(struct gpu_rig *gpu)
{
	void *lib = dlopen(FAKE_CUDA_PATH, RTLD_NOW);
	int (*init)(unsigned int);
	int (*retain)(void **, int);
	int (*push)(void *);
	void *context;

	CHECK(lib != NULL);
	gpu_symbol(lib, "cuInit", &init);
	gpu_symbol(lib, "cuDevicePrimaryCtxRetain", &retain);
	gpu_symbol(lib, "cuCtxPushCurrent_v2", &push);
	gpu_symbol(lib, "cuMemAlloc_v2", &gpu->mem_alloc);
	gpu_symbol(lib, "cuMemFree_v2", &gpu->mem_free);
	gpu_symbol(lib, "cuMemGetHandleForAddressRange", &gpu->export_fd);
	gpu_symbol(lib, "fake_cuda_delay", &gpu->delay);
	gpu_symbol(lib, "fake_cuda_copies", &gpu->copies);
	gpu_symbol(lib, "fake_cuda_look", &gpu->look);
	CHECK(init(0) == 0 && retain(&context, 0) == 0 && push(context) == 0);
}

static inline uint64_t gpu_alloc(struct gpu_rig *gpu, size_t len)
{
	unsigned long long addr;

	CHECK(gpu->mem_alloc(&addr, len) == 0);
	return addr;
}

static inline struct ibv_mr *gpu_register(struct rig *rig, uint64_t addr, size_t len)
{
	return ibv_reg_mr(rig->pd, (void *)(uintptr_t)addr, len,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				  IBV_ACCESS_REMOTE_READ);
}

/** rig_open() and rig_connect() with GPU memory on both sides. */
static inline void gpu_open(struct rig *rig, struct gpu_rig *gpu,
			    const struct rig_qp_options *options)
{
	memset(gpu, 0, sizeof(*gpu));
	gpu_load(gpu);
	rig_open(rig, 0);
	gpu->addr = gpu_alloc(gpu, RIG_BUF_BYTES);
	gpu->mr = gpu_register(rig, gpu->addr, RIG_BUF_BYTES);
	CHECK(gpu->mr != NULL);
	rig_connect(rig, 0, options);
	rig_send(rig, &gpu->addr, sizeof(gpu->addr));
	rig_send(rig, &gpu->mr->rkey, sizeof(gpu->mr->rkey));
	rig_recv(rig, &gpu->peer_addr, sizeof(gpu->peer_addr));
	rig_recv(rig, &gpu->peer_rkey, sizeof(gpu->peer_rkey));
}

static inline void gpu_close(struct rig *rig, struct gpu_rig *gpu)
{
	CHECK(gpu->mr == NULL || ibv_dereg_mr(gpu->mr) == 0);
	rig_close(rig);
}

static inline char gpu_byte(uint32_t seed, uint64_t at)
{
	return (char)((at * 31 + at / 4093 + seed) & 0xff);
}

static inline void gpu_fill(struct gpu_rig *gpu, uint32_t seed, uint64_t offset, uint64_t len)
{
	char *at = gpu->look(gpu->addr);

	for (uint64_t i = offset; i < offset + len; i++) {
		at[i] = gpu_byte(seed, i);
	}
}

static inline bool gpu_holds(struct gpu_rig *gpu, uint32_t seed, uint64_t offset, uint64_t len)
{
	const char *at = gpu->look(gpu->addr);

	for (uint64_t i = offset; i < offset + len; i++) {
		if (at[i] != gpu_byte(seed, i)) {
			return false;
		}
	}
	return true;
}

static inline bool gpu_blank(struct gpu_rig *gpu, uint64_t offset, uint64_t len)
{
	const char *at = gpu->look(gpu->addr);

	for (uint64_t i = offset; i < offset + len; i++) {
		if (at[i] != 0) {
			return false;
		}
	}
	return true;
}

/** A signalled operation between the two GPU buffers, at the same offset in both. */
static inline void gpu_post(struct rig *rig, struct gpu_rig *gpu, enum ibv_wr_opcode opcode,
			    uint64_t id, uint64_t offset, uint32_t len)
{
	struct ibv_sge sge = {.addr = gpu->addr + offset, .length = len, .lkey = gpu->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = gpu->peer_addr + offset, .rkey = gpu->peer_rkey},
	};

	CHECK(rig_post_wr(rig, 0, &wr) == 0);
}

static inline void gpu_wc(struct rig *rig, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = rig_poll(rig);

	CHECK(wc.wr_id == id);
	CHECK(wc.status == status);
}

#endif
