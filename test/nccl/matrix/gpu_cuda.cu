/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/gpu.h"

#include <cuda_runtime.h>
#include <errno.h>
#include <stdio.h>

static const int THREADS = 256;
static const unsigned MAX_BLOCKS = 2112;

static struct gpu_wrong *wrong_dev;

static int failed(const char *what, cudaError_t code)
{
	fprintf(stderr, "nccl_matrix: %s: %s\n", what, cudaGetErrorString(code));
	return code == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

static unsigned blocks_for(uint64_t count)
{
	uint64_t blocks = (count + THREADS - 1) / THREADS;

	return blocks > MAX_BLOCKS ? MAX_BLOCKS : blocks == 0 ? 1 : (unsigned)blocks;
}

__global__ void fill_kernel(void *buf, uint64_t count, value_spec spec, value_want from)
{
	uint64_t step = (uint64_t)gridDim.x * blockDim.x;

	for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
		value_put(spec.type, buf, i, value_wanted(&spec, &from, i));
	}
}

__device__ void note_wrong(gpu_wrong *wrong, unsigned long long idx)
{
	atomicAdd(&wrong->count, 1ULL);
	atomicMin(&wrong->first, idx);
	atomicMax(&wrong->last, idx);
}

__global__ void check_kernel(const void *buf, uint64_t count, value_spec spec, value_want want,
			     gpu_wrong *wrong)
{
	uint64_t step = (uint64_t)gridDim.x * blockDim.x;

	for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
		if (!value_is_right(&spec, &want, buf, i)) {
			note_wrong(wrong, i);
		}
	}
}

__global__ void check_set_kernel(const unsigned char *buf, int byte, uint64_t len,
				 gpu_wrong *wrong)
{
	uint64_t step = (uint64_t)gridDim.x * blockDim.x;

	for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < len; i += step) {
		if (buf[i] != byte) {
			note_wrong(wrong, i);
		}
	}
}

int gpu_open(int rank)
{
	int count = 0;
	cudaError_t code = cudaGetDeviceCount(&count);

	if (code != cudaSuccess || count == 0) {
		fprintf(stderr, "nccl_matrix: no GPU: %s\n", cudaGetErrorString(code));
		return -ENODEV;
	}
	code = cudaSetDevice(rank % count);
	if (code == cudaSuccess) {
		code = cudaMalloc(&wrong_dev, sizeof(*wrong_dev));
	}
	return code == cudaSuccess ? 0 : failed("open", code);
}

int gpu_alloc(size_t len_bytes, void **ptr)
{
	*ptr = NULL;
	cudaError_t code = cudaMalloc(ptr, len_bytes);

	return code == cudaSuccess ? 0 : failed("cudaMalloc", code);
}

void gpu_free(void *ptr)
{
	cudaFree(ptr);
}

int gpu_stream_create(void **stream)
{
	cudaStream_t made;
	cudaError_t code = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);

	if (code != cudaSuccess) {
		return failed("cudaStreamCreate", code);
	}
	*stream = made;
	return 0;
}

void gpu_stream_destroy(void *stream)
{
	cudaStreamDestroy((cudaStream_t)stream);
}

int gpu_stream_poll(void *stream)
{
	cudaError_t code = cudaStreamQuery((cudaStream_t)stream);

	if (code == cudaSuccess) {
		return 0;
	}
	return code == cudaErrorNotReady ? -EAGAIN : failed("cudaStreamQuery", code);
}

int gpu_stream_wait(void *stream)
{
	cudaError_t code = cudaStreamSynchronize((cudaStream_t)stream);

	return code == cudaSuccess ? 0 : failed("cudaStreamSynchronize", code);
}

int gpu_fill(void *buf, uint64_t count, const struct value_spec *spec,
	     const struct value_want *from, void *stream)
{
	if (count > 0) {
		fill_kernel<<<blocks_for(count), THREADS, 0, (cudaStream_t)stream>>>(buf, count, *spec,
										     *from);
	}
	cudaError_t code = cudaGetLastError();

	return code == cudaSuccess ? 0 : failed("fill", code);
}

int gpu_set(void *buf, int byte, size_t len_bytes, void *stream)
{
	cudaError_t code = cudaMemsetAsync(buf, byte, len_bytes, (cudaStream_t)stream);

	return code == cudaSuccess ? 0 : failed("cudaMemsetAsync", code);
}

static int clear_wrong(void *stream)
{
	static const struct gpu_wrong none = {0, ~0ULL, 0};
	cudaError_t code = cudaMemcpyAsync(wrong_dev, &none, sizeof(none), cudaMemcpyHostToDevice,
					   (cudaStream_t)stream);

	return code == cudaSuccess ? 0 : failed("cudaMemcpyAsync", code);
}

int gpu_read(const void *buf, void *to, size_t len_bytes, void *stream)
{
	cudaError_t code = cudaGetLastError();

	if (code == cudaSuccess) {
		code = cudaMemcpyAsync(to, buf, len_bytes, cudaMemcpyDeviceToHost,
				       (cudaStream_t)stream);
	}
	if (code == cudaSuccess) {
		code = cudaStreamSynchronize((cudaStream_t)stream);
	}
	return code == cudaSuccess ? 0 : failed("check", code);
}

int gpu_check(const void *buf, uint64_t count, const struct value_spec *spec,
	      const struct value_want *want, void *stream, struct gpu_wrong *wrong)
{
	int rc = clear_wrong(stream);

	if (rc != 0) {
		return rc;
	}
	if (count > 0) {
		check_kernel<<<blocks_for(count), THREADS, 0, (cudaStream_t)stream>>>(
			buf, count, *spec, *want, wrong_dev);
	}
	return gpu_read(wrong_dev, wrong, sizeof(*wrong), stream);
}

int gpu_check_set(const void *buf, int byte, size_t len_bytes, void *stream,
		  struct gpu_wrong *wrong)
{
	int rc = clear_wrong(stream);

	if (rc != 0) {
		return rc;
	}
	if (len_bytes > 0) {
		check_set_kernel<<<blocks_for(len_bytes), THREADS, 0, (cudaStream_t)stream>>>(
			(const unsigned char *)buf, byte, len_bytes, wrong_dev);
	}
	return gpu_read(wrong_dev, wrong, sizeof(*wrong), stream);
}
