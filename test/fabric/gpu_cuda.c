/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/gpu_cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

/* From the public CUDA driver interface. */
enum {
	CU_SUCCESS = 0,
	CU_POINTER_MEMORY_TYPE = 2,
	CU_POINTER_DEVICE_ORDINAL = 9,
	CU_MEMORY_TYPE_DEVICE = 2,
	CU_STREAM_NON_BLOCKING = 1,
	CU_HOST_REGISTER_PORTABLE = 1,
	CU_CAPTURE_MODE_RELAXED = 2
};

typedef unsigned long long device_ptr;

/* The symbol's version is part of its name where the interface has changed. */
#define CUDA_SYMS(X)                                                                               \
	X(pointer_attr, "cuPointerGetAttribute", (void *out, int attr, device_ptr addr))           \
	X(primary_retain, "cuDevicePrimaryCtxRetain", (void **context, int device))                \
	X(primary_release, "cuDevicePrimaryCtxRelease_v2", (int device))                           \
	X(ctx_push, "cuCtxPushCurrent_v2", (void *context))                                        \
	X(ctx_pop, "cuCtxPopCurrent_v2", (void **context))                                         \
	X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                          \
	X(stream_create, "cuStreamCreate", (void **stream, unsigned int flags))                    \
	X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                    \
	X(stream_wait, "cuStreamSynchronize", (void *stream))                                      \
	X(host_pin, "cuMemHostRegister_v2", (void *addr, size_t len, unsigned int flags))          \
	X(host_unpin, "cuMemHostUnregister", (void *addr))                                         \
	X(to_device, "cuMemcpyHtoDAsync_v2",                                                       \
	  (device_ptr to, const void *from, size_t len, void *stream))                             \
	X(from_device, "cuMemcpyDtoHAsync_v2",                                                     \
	  (void *to, device_ptr from, size_t len, void *stream))

static struct {
#define CUDA_FIELD(name, symbol, params) int(*name) params;
	CUDA_SYMS(CUDA_FIELD)
#undef CUDA_FIELD
	bool loaded;
} cu;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

static bool load_all(void *lib)
{
	void *found;

#define CUDA_LOAD(name, symbol, params)                                                            \
	found = dlsym(lib, symbol);                                                                \
	if (found == NULL) {                                                                       \
		return false;                                                                      \
	}                                                                                          \
	memcpy(&cu.name, &found, sizeof(found));
	CUDA_SYMS(CUDA_LOAD)
#undef CUDA_LOAD
	return true;
}

/* The reference is kept: nobody unloads the driver. */
static bool cuda_loaded(void)
{
	bool loaded;

	pthread_mutex_lock(&load_lock);
	if (!cu.loaded) {
		void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

		cu.loaded = lib != NULL && load_all(lib);
	}
	loaded = cu.loaded;
	pthread_mutex_unlock(&load_lock);
	return loaded;
}

static int device_at(uint64_t addr)
{
	unsigned int type = 0;
	int device = -1;

	if (cu.pointer_attr(&type, CU_POINTER_MEMORY_TYPE, addr) != CU_SUCCESS ||
	    type != CU_MEMORY_TYPE_DEVICE ||
	    cu.pointer_attr(&device, CU_POINTER_DEVICE_ORDINAL, addr) != CU_SUCCESS ||
	    device >= FAB_GPU_DEVICES) {
		return -1;
	}
	return device;
}

int fab_cuda_device_of(uint64_t addr, uint64_t len)
{
	int device;

	if (len == 0 || !cuda_loaded()) {
		return -1;
	}
	device = device_at(addr);
	return device >= 0 && device_at(addr + len - 1) == device ? device : -1;
}

/* Calls in other threads must not spoil a graph that one of them is capturing. */
static bool lane_enter(const struct fab_gpu_lane *lane, int *mode)
{
	*mode = CU_CAPTURE_MODE_RELAXED;
	if (cu.ctx_push(lane->context) != CU_SUCCESS) {
		return false;
	}
	(void)cu.capture_mode(mode);
	return true;
}

static void lane_leave(int mode)
{
	void *context;

	(void)cu.capture_mode(&mode);
	(void)cu.ctx_pop(&context);
}

int fab_cuda_lane_open(int device, struct fab_gpu_lane *lane)
{
	struct fab_gpu_lane made = {.context = NULL};
	int rc = -EIO;
	int mode;

	if (cu.primary_retain(&made.context, device) != CU_SUCCESS) {
		return -EIO;
	}
	if (lane_enter(&made, &mode)) {
		rc = cu.stream_create(&made.stream, CU_STREAM_NON_BLOCKING) == CU_SUCCESS ? 0
											  : -EIO;
		lane_leave(mode);
	}
	if (rc != 0) {
		(void)cu.primary_release(device);
		return rc;
	}
	*lane = made;
	return 0;
}

void fab_cuda_lane_close(int device, struct fab_gpu_lane *lane)
{
	int mode;

	if (lane->context == NULL) {
		return;
	}
	if (lane_enter(lane, &mode)) {
		(void)cu.stream_destroy(lane->stream);
		lane_leave(mode);
	}
	(void)cu.primary_release(device);
	lane->context = NULL;
}

void fab_cuda_pin(const struct fab_gpu_lane *lane, void *addr, size_t len)
{
	int mode;

	if (lane_enter(lane, &mode)) {
		(void)cu.host_pin(addr, len, CU_HOST_REGISTER_PORTABLE);
		lane_leave(mode);
	}
}

void fab_cuda_unpin(const struct fab_gpu_lane *lane, void *addr)
{
	int mode;

	if (lane_enter(lane, &mode)) {
		(void)cu.host_unpin(addr);
		lane_leave(mode);
	}
}

int fab_cuda_to_device(const struct fab_gpu_lane *lane, uint64_t to, const void *from, size_t len)
{
	bool copied;
	int mode;

	if (!lane_enter(lane, &mode)) {
		return -EIO;
	}
	copied = cu.to_device(to, from, len, lane->stream) == CU_SUCCESS;
	/* Also after a failure: nothing of it may land later. */
	copied = cu.stream_wait(lane->stream) == CU_SUCCESS && copied;
	lane_leave(mode);
	return copied ? 0 : -EIO;
}

int fab_cuda_from_device(const struct fab_gpu_lane *lane, void *to, uint64_t from, size_t len)
{
	bool copied;
	int mode;

	if (!lane_enter(lane, &mode)) {
		return -EIO;
	}
	copied = cu.from_device(to, from, len, lane->stream) == CU_SUCCESS;
	copied = cu.stream_wait(lane->stream) == CU_SUCCESS && copied;
	lane_leave(mode);
	return copied ? 0 : -EIO;
}
