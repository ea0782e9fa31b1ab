/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_GPU_H
#define BRAID_TEST_FABRIC_GPU_H

#include "test/fabric/ctx.h"
#include "test/fabric/gpu_cuda.h"

struct fab_gpu_area;
struct fab_move;
struct fab_list;

/*
 * GPU memory, with FABRIC_GPU=1. No process reaches another's GPU memory, so its owner does the
 * copying: what a peer sends goes through a window in FABRIC_DIR/gpu-N.shm (gpu_area.h), and a
 * thread of the owner's moves it on, under the peer's claim on the QP and before anything is
 * completed.
 * The own GPU memory is copied by the engine thread itself. So unlike to host memory nothing gets
 * to the GPU memory of a process that is stopped: the step is tried again until it runs, while
 * other QPs go on.
 */

/* In fab_mr_slot.access, where the optional access bits of verbs are, which mean nothing here. */
#define FAB_ACCESS_GPU        0x80000000u
#define FAB_ACCESS_GPU_SHIFT  20u
#define FAB_ACCESS_GPU_DEVICE (0x3fu << FAB_ACCESS_GPU_SHIFT)

/** What an opened device keeps for GPU memory; made at the first registration of such. */
struct fab_gpu {
	struct fab_ctx *ctx;
	struct fab_gpu_area *area;
	char *stage;         /* the engine's, FAB_GPU_WINDOW_BYTES */
	pthread_mutex_t run; /* held while a peer's job is checked and copied */
	pthread_t thread;
	_Atomic uint32_t stopping;
	/* Opened under ctx->lock, before a key of that device is given out; then constant. A set
	 * bit (release, acquire) lets the serving thread use that device's lane. */
	_Atomic uint64_t serves;
	struct fab_gpu_lane engine[FAB_GPU_DEVICES];
	struct fab_gpu_lane serve[FAB_GPU_DEVICES];
};

/** FABRIC_GPU=1? */
bool fab_gpu_enabled(void);
/** The GPU whose memory it is, -1 when it is ordinary memory or FABRIC_GPU is not set. */
int fab_gpu_device_of(uint64_t addr, uint64_t len);
/** Everything the device needs to serve memory of GPU `device`. 0 or -errno. May block. */
int fab_gpu_prepare(struct fab_ctx *ctx, int device);
/** After the engine has ended. */
void fab_gpu_close(struct fab_ctx *ctx);
/** `access` of a region in GPU memory: the rights, and which GPU. */
uint32_t fab_gpu_access(uint32_t access, int device);

/** Is any part of the two lists in GPU memory? */
bool fab_gpu_concerns(const struct fab_move *m);
/** fab_copy_out() or fab_copy_in() for such a step, with the same results. */
enum fab_copied fab_gpu_copy(const struct fab_move *m);
/** fab_copy_gather() for a list of the own memory, whatever kind it is. */
bool fab_gpu_gather(const struct fab_move *m, const struct fab_list *list, uint64_t len, void *to);

/**
 * Returns when no copy into GPU memory is under way at that instance, which this process owns. The
 * caller has taken away the claims, so none begins.
 */
void fab_gpu_settle(const struct fab_inst *inst);

#endif
