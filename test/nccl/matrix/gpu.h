/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_NCCL_GPU_H
#define BRAID_TEST_NCCL_GPU_H

/*
 * What a rank needs of the GPU. gpu_cuda.cu is the real one; gpu_host.c does the same in host
 * memory for the self-tests, which run where there is no GPU. One thread; 0 or -errno. A stream is
 * what NCCL takes for one.
 */

#include "test/nccl/matrix/value.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a check found: how many, and the first and the last one's index when there are any. */
struct gpu_wrong {
	unsigned long long count;
	unsigned long long first;
	unsigned long long last;
};

/** Takes the GPU number `rank` modulo how many there are. -ENODEV when there is none. */
int gpu_open(int rank);
/** Device memory; *ptr is NULL for a failed call (-ENOMEM). */
int gpu_alloc(size_t len_bytes, void **ptr);
void gpu_free(void *ptr);
int gpu_stream_create(void **stream);
void gpu_stream_destroy(void *stream);
/** 0 when all work is done, -EAGAIN while not, -EIO when the GPU reports an error. */
int gpu_stream_poll(void *stream);
/** Waits for the stream without bound: only for work that needs no other rank. */
int gpu_stream_wait(void *stream);

/** Fills in `count` elements as source `source` has them from index `base` on. Queued. */
int gpu_fill(void *buf, uint64_t count, const struct value_spec *spec,
	     const struct value_want *from, void *stream);
/** Sets bytes. Queued. */
int gpu_set(void *buf, int byte, size_t len_bytes, void *stream);
/** Counts the elements that are not as wanted. Waits for the stream. */
int gpu_check(const void *buf, uint64_t count, const struct value_spec *spec,
	      const struct value_want *want, void *stream, struct gpu_wrong *wrong);
/** Counts the bytes that are not `byte`. Waits for the stream. */
int gpu_check_set(const void *buf, int byte, size_t len_bytes, void *stream,
		  struct gpu_wrong *wrong);
/** Copies `len_bytes` from the GPU. Waits for the stream. */
int gpu_read(const void *buf, void *to, size_t len_bytes, void *stream);

#ifdef __cplusplus
}
#endif

#endif
