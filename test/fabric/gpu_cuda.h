/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_GPU_CUDA_H
#define BRAID_TEST_FABRIC_GPU_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * As much of CUDA's driver interface as the fabric needs to reach GPU memory. The library is used
 * if the process has loaded it, and never loaded for our sake: who has no CUDA has no GPU memory.
 */

#define FAB_GPU_DEVICES 64

/** One thread's way to one GPU: its primary context and a stream that waits for nobody else's. */
struct fab_gpu_lane {
	void *context;
	void *stream;
};

/** The GPU whose memory [addr, addr + len) is, by its CUDA number; -1: it is none. */
int fab_cuda_device_of(uint64_t addr, uint64_t len);
/** Retains the primary context of `device`, which its memory's owner has made active, and makes a
 * stream. 0 or -EIO. Needs no context in the calling thread and leaves what is there. */
int fab_cuda_lane_open(int device, struct fab_gpu_lane *lane);
void fab_cuda_lane_close(int device, struct fab_gpu_lane *lane);
/** Pins host memory, so that copies need no detour. Failing costs speed only. */
void fab_cuda_pin(const struct fab_gpu_lane *lane, void *addr, size_t len);
void fab_cuda_unpin(const struct fab_gpu_lane *lane, void *addr);
/** Copies and waits until the bytes are where they belong, whatever kernels run. 0 or -EIO. */
int fab_cuda_to_device(const struct fab_gpu_lane *lane, uint64_t to, const void *from, size_t len);
int fab_cuda_from_device(const struct fab_gpu_lane *lane, void *to, uint64_t from, size_t len);

#endif
