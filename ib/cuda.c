/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/cuda.h"

#include "include/log.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

/* From the public CUDA driver interface. */
enum {
	CU_SUCCESS = 0,
	CU_HANDLE_TYPE_DMA_BUF_FD = 1,
	CU_CAPTURE_MODE_RELAXED = 2,
	CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124,
	CUDA_DEVICES_MAX = 64,
	TRIAL_BYTES = 2 << 20 /* an allocation of its own, aligned for the export */
};

/* The symbol's version is part of its name where the interface has changed. */
#define CUDA_SYMS(X)                                                                               \
	X(device_count, "cuDeviceGetCount", (int *count))                                          \
	X(ctx_get, "cuCtxGetCurrent", (void **ctx))                                                \
	X(ctx_push, "cuCtxPushCurrent_v2", (void *ctx))                                            \
	X(ctx_pop, "cuCtxPopCurrent_v2", (void **ctx))                                             \
	X(ctx_device, "cuCtxGetDevice", (int *device))                                             \
	X(primary_state, "cuDevicePrimaryCtxGetState",                                             \
	  (int device, unsigned int *flags, int *active))                                          \
	X(primary_retain, "cuDevicePrimaryCtxRetain", (void **ctx, int device))                    \
	X(primary_release, "cuDevicePrimaryCtxRelease_v2", (int device))                           \
	X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode))                          \
	X(device_attr, "cuDeviceGetAttribute", (int *value, int attr, int device))                 \
	X(mem_alloc, "cuMemAlloc_v2", (unsigned long long *addr, size_t len))                      \
	X(mem_free, "cuMemFree_v2", (unsigned long long addr))

struct cuda_syms {
#define CUDA_FIELD(name, symbol, params) int(*name) params;
	CUDA_SYMS(CUDA_FIELD)
#undef CUDA_FIELD
	/* CUDA 11.7 and newer; NULL before */
	int (*range_handle)(void *handle, unsigned long long addr, size_t len, int type,
			    unsigned long long flags);
};

/* Only if the process has it already: who has not loaded it has no context either. */
static int load(struct cuda_syms *out)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *found;

	if (lib == NULL) {
		return -ENOENT;
	}
	/* the reference is kept: NCCL never unloads the driver either */
#define CUDA_LOAD(name, symbol, params)                                                            \
	found = dlsym(lib, symbol);                                                                \
	if (found == NULL) {                                                                       \
		return -ENOENT;                                                                    \
	}                                                                                          \
	memcpy(&out->name, &found, sizeof(found));
	CUDA_SYMS(CUDA_LOAD)
#undef CUDA_LOAD
	found = dlsym(lib, "cuMemGetHandleForAddressRange");
	memcpy(&out->range_handle, &found, sizeof(found));
	return 0;
}

/* The primary context of the first device that has an active one. */
static int retain_active(const struct cuda_syms *cu, void **ctx, int *device)
{
	int count = 0;

	if (cu->device_count(&count) != CU_SUCCESS) {
		return -EAGAIN; /* not even initialised */
	}
	for (int i = 0; i < count && i < CUDA_DEVICES_MAX; i++) {
		unsigned int flags;
		int active = 0;

		if (cu->primary_state(i, &flags, &active) == CU_SUCCESS && active != 0 &&
		    cu->primary_retain(ctx, i) == CU_SUCCESS) {
			*device = i;
			return 0;
		}
	}
	return -EAGAIN;
}

static int export_fd(const struct cuda_syms *cu, const struct cuda_trial *trial)
{
	int device, supported = 0, fd = -1;

	if (cu->range_handle == NULL || cu->ctx_device(&device) != CU_SUCCESS ||
	    cu->device_attr(&supported, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) !=
		    CU_SUCCESS ||
	    supported == 0) {
		return -1;
	}
	if (cu->range_handle(&fd, trial->addr, trial->len_bytes, CU_HANDLE_TYPE_DMA_BUF_FD, 0) !=
	    CU_SUCCESS) {
		return -1;
	}
	return fd;
}

int ib_cuda_trial_begin(struct cuda_trial *out)
{
	struct cuda_trial trial = {.device_retained = -1,
				   .capture_mode = CU_CAPTURE_MODE_RELAXED,
				   .len_bytes = TRIAL_BYTES};
	struct cuda_syms cu;
	void *ctx = NULL;
	int rc = load(&cu);

	if (rc != 0) {
		return rc;
	}
	if (cu.ctx_get(&ctx) != CU_SUCCESS || ctx == NULL) {
		rc = retain_active(&cu, &ctx, &trial.device_retained);
		if (rc != 0) {
			return rc;
		}
	}
	rc = -EIO;
	if (cu.ctx_push(ctx) != CU_SUCCESS) {
		goto release;
	}
	/* an allocation would otherwise spoil a capture that this thread is in the middle of */
	if (cu.capture_mode(&trial.capture_mode) != CU_SUCCESS) {
		goto pop;
	}
	if (cu.mem_alloc(&trial.addr, trial.len_bytes) != CU_SUCCESS) {
		goto restore_mode;
	}
	trial.dmabuf_fd = export_fd(&cu, &trial);
	*out = trial;
	return 0;

restore_mode:
	(void)cu.capture_mode(&trial.capture_mode);
pop:
	(void)cu.ctx_pop(&ctx);
release:
	if (trial.device_retained >= 0) {
		(void)cu.primary_release(trial.device_retained);
	}
	return rc;
}

void ib_cuda_trial_end(struct cuda_trial *trial)
{
	struct cuda_syms cu;
	void *ctx;

	if (load(&cu) != 0) {
		return;
	}
	if (trial->dmabuf_fd >= 0) {
		(void)close(trial->dmabuf_fd);
	}
	(void)cu.mem_free(trial->addr);
	(void)cu.capture_mode(&trial->capture_mode);
	(void)cu.ctx_pop(&ctx);
	if (trial->device_retained >= 0) {
		(void)cu.primary_release(trial->device_retained);
	}
}
