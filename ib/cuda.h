/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_CUDA_H
#define BRAID_IB_CUDA_H

#include <stddef.h>
#include <stdint.h>

/*
 * As much of CUDA's driver interface as a trial registration needs; the library is opened at run
 * time and never required.
 */

/** A little GPU memory, taken in a context that was there already. */
struct cuda_trial {
	unsigned long long addr;
	size_t len_bytes;
	int dmabuf_fd;       /* -1 when the driver exports none */
	int device_retained; /* to be released, -1: the thread's own context was used */
	int capture_mode;    /* to be restored */
};

/**
 * Allocate. 0; -ENOENT: no CUDA driver here; -EAGAIN: a driver, but no context is active in this
 * process yet (none is created: that would cost memory on a GPU that is not ours); -EIO: CUDA
 * said no. May block.
 */
int ib_cuda_trial_begin(struct cuda_trial *out);
/** Free it, and leave the thread's context and capture mode as begin found them. Same thread. */
void ib_cuda_trial_end(struct cuda_trial *trial);

#endif
