/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/gpu_area.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* What a device needs once GPU memory is registered with it. */

/* By instance id, for those who hold only that. */
static _Atomic(struct fab_gpu *) gpus[FAB_MAX_INSTS];

bool fab_gpu_enabled(void)
{
	const char *text = getenv("FABRIC_GPU");

	return text != NULL && strcmp(text, "1") == 0;
}

int fab_gpu_device_of(uint64_t addr, uint64_t len)
{
	return fab_gpu_enabled() ? fab_cuda_device_of(addr, len) : -1;
}

uint32_t fab_gpu_access(uint32_t access, int device)
{
	return (access & ~(FAB_ACCESS_GPU_DEVICE | FAB_ACCESS_GPU)) | FAB_ACCESS_GPU |
	       (uint32_t)device << FAB_ACCESS_GPU_SHIFT;
}

static int thread_start(struct fab_gpu *gpu)
{
	sigset_t all;
	sigset_t old;
	int rc;

	sigfillset(&all); /* the application's signals are for its own threads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&gpu->thread, NULL, fab_gpu_serve, gpu);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -rc;
}

static int gpu_create(struct fab_ctx *ctx)
{
	struct fab_gpu *gpu = calloc(1, sizeof(*gpu));
	int rc = -ENOMEM;

	if (gpu == NULL) {
		return rc;
	}
	gpu->ctx = ctx;
	gpu->stage = aligned_alloc(4096, FAB_GPU_WINDOW_BYTES);
	if (gpu->stage == NULL) {
		goto free_gpu;
	}
	rc = fab_gpu_area_create(ctx, &gpu->area);
	if (rc != 0) {
		goto free_stage;
	}
	pthread_mutex_init(&gpu->run, NULL);
	rc = thread_start(gpu);
	if (rc != 0) {
		goto close_area;
	}
	atomic_store_explicit(&gpus[ctx->inst->id], gpu, memory_order_release);
	atomic_store_explicit(&ctx->gpu, gpu, memory_order_release);
	return 0;

close_area:
	pthread_mutex_destroy(&gpu->run);
	fab_gpu_area_close(ctx, gpu->area);
free_stage:
	free(gpu->stage);
free_gpu:
	free(gpu);
	return rc;
}

/* The two threads' lanes; with the first GPU the windows are pinned as well. */
static int lanes_open(struct fab_gpu *gpu, int device)
{
	bool first = true;
	int rc;

	for (int i = 0; i < FAB_GPU_DEVICES; i++) {
		first = first && gpu->engine[i].context == NULL;
	}
	rc = fab_cuda_lane_open(device, &gpu->serve[device]);
	if (rc != 0) {
		return rc;
	}
	rc = fab_cuda_lane_open(device, &gpu->engine[device]);
	if (rc != 0) {
		fab_cuda_lane_close(device, &gpu->serve[device]);
		return rc;
	}
	atomic_fetch_or_explicit(&gpu->serves, 1ull << device, memory_order_release);
	if (first) {
		fab_cuda_pin(&gpu->engine[device], gpu->area->windows, sizeof(gpu->area->windows));
		fab_cuda_pin(&gpu->engine[device], gpu->stage, FAB_GPU_WINDOW_BYTES);
	}
	return 0;
}

int fab_gpu_prepare(struct fab_ctx *ctx, int device)
{
	struct fab_gpu *gpu;
	int rc = 0;

	pthread_mutex_lock(&ctx->lock);
	if (atomic_load_explicit(&ctx->gpu, memory_order_relaxed) == NULL) {
		rc = gpu_create(ctx);
	}
	gpu = atomic_load_explicit(&ctx->gpu, memory_order_relaxed);
	if (rc == 0 && gpu->engine[device].context == NULL) {
		rc = lanes_open(gpu, device);
	}
	pthread_mutex_unlock(&ctx->lock);
	return rc;
}

void fab_gpu_close(struct fab_ctx *ctx)
{
	struct fab_gpu *gpu = atomic_load_explicit(&ctx->gpu, memory_order_acquire);
	bool pinned = true;

	if (gpu == NULL) {
		return;
	}
	atomic_store_explicit(&gpus[ctx->inst->id], NULL, memory_order_release);
	atomic_store_explicit(&gpu->stopping, 1, memory_order_release);
	fab_gpu_ring(gpu->area);
	pthread_join(gpu->thread, NULL);
	for (int i = 0; i < FAB_GPU_DEVICES; i++) {
		if (gpu->engine[i].context != NULL && pinned) {
			fab_cuda_unpin(&gpu->engine[i], gpu->area->windows);
			fab_cuda_unpin(&gpu->engine[i], gpu->stage);
			pinned = false;
		}
		fab_cuda_lane_close(i, &gpu->engine[i]);
		fab_cuda_lane_close(i, &gpu->serve[i]);
	}
	pthread_mutex_destroy(&gpu->run);
	fab_gpu_area_close(ctx, gpu->area);
	free(gpu->stage);
	free(gpu);
}

void fab_gpu_settle(const struct fab_inst *inst)
{
	struct fab_gpu *gpu = atomic_load_explicit(&gpus[inst->id], memory_order_acquire);

	if (gpu != NULL) {
		pthread_mutex_lock(&gpu->run);
		pthread_mutex_unlock(&gpu->run);
	}
}
