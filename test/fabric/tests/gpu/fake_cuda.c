/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/tests/gpu/fake_cuda.h"

#include "test/fabric/copy_bytes.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/*
 * A libcuda.so.1 without a GPU. Its device memory has an address at which nobody can read or write,
 * and a second, secret mapping that only the copies here know. Copies are made when their stream is
 * waited for, not before, and only by threads with a context, so whoever forgets either is found
 * out.
 */

#define EXPORT __attribute__((visibility("default")))

enum {
	OK = 0,
	INVALID_VALUE = 1,
	NOT_INITIALIZED = 3,
	INVALID_CONTEXT = 201,
	ATTR_MEMORY_TYPE = 2,
	ATTR_ORDINAL = 9,
	MEMORY_DEVICE = 2,
	ALLOCS_MAX = 64,
	STACK_MAX = 8
};

typedef unsigned long long device_ptr;

struct alloc {
	char *closed; /* what the program gets: PROT_NONE */
	char *open;
	size_t len;
	int fd;
};

struct stream {
	char *to;
	const char *from;
	size_t len;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct alloc allocs[ALLOCS_MAX];
static bool initialised;
static int retained;
static unsigned int delay_ms;
static unsigned int copy_count;
static char primary; /* its address is the one context there is */

static _Thread_local int stack_depth;
static _Thread_local int capture_mode;

EXPORT int cuInit(unsigned int flags)
{
	(void)flags;
	initialised = true;
	return OK;
}

EXPORT int cuDeviceGetCount(int *count)
{
	*count = 1;
	return initialised ? OK : NOT_INITIALIZED;
}

EXPORT int cuDeviceGetAttribute(int *value, int attr, int device)
{
	(void)attr;
	(void)device;
	*value = 1;
	return OK;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
	if (!initialised || device != 0) {
		return NOT_INITIALIZED;
	}
	pthread_mutex_lock(&lock);
	retained++;
	pthread_mutex_unlock(&lock);
	*context = &primary;
	return OK;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	pthread_mutex_lock(&lock);
	retained--;
	pthread_mutex_unlock(&lock);
	return OK;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active)
{
	(void)device;
	*flags = 0;
	pthread_mutex_lock(&lock);
	*active = retained > 0;
	pthread_mutex_unlock(&lock);
	return initialised ? OK : NOT_INITIALIZED;
}

EXPORT int cuCtxGetCurrent(void **context)
{
	*context = stack_depth > 0 ? &primary : NULL;
	return OK;
}

EXPORT int cuCtxGetDevice(int *device)
{
	*device = 0;
	return stack_depth > 0 ? OK : INVALID_CONTEXT;
}

EXPORT int cuCtxPushCurrent_v2(void *context)
{
	if (context != &primary || stack_depth == STACK_MAX) {
		return INVALID_CONTEXT;
	}
	stack_depth++;
	return OK;
}

EXPORT int cuCtxPopCurrent_v2(void **context)
{
	if (stack_depth == 0) {
		return INVALID_CONTEXT;
	}
	stack_depth--;
	*context = &primary;
	return OK;
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int old = capture_mode;

	capture_mode = *mode;
	*mode = old;
	return OK;
}

EXPORT int cuStreamCreate(void **stream, unsigned int flags)
{
	(void)flags;
	*stream = stack_depth > 0 ? calloc(1, sizeof(struct stream)) : NULL;
	return *stream != NULL ? OK : INVALID_CONTEXT;
}

EXPORT int cuStreamDestroy_v2(void *stream)
{
	free(stream);
	return OK;
}

EXPORT int cuMemHostRegister_v2(void *addr, size_t len, unsigned int flags)
{
	(void)addr;
	(void)len;
	(void)flags;
	return stack_depth > 0 ? OK : INVALID_CONTEXT;
}

EXPORT int cuMemHostUnregister(void *addr)
{
	(void)addr;
	return OK;
}

EXPORT int cuMemAlloc_v2(device_ptr *addr, size_t len)
{
	struct alloc *alloc = NULL;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < ALLOCS_MAX && alloc == NULL; i++) {
		alloc = allocs[i].len == 0 ? &allocs[i] : NULL;
	}
	if (alloc == NULL || stack_depth == 0) {
		pthread_mutex_unlock(&lock);
		return INVALID_CONTEXT;
	}
	alloc->fd = memfd_create("gpu", MFD_CLOEXEC);
	if (alloc->fd < 0 || ftruncate(alloc->fd, (off_t)len) != 0) {
		abort();
	}
	alloc->closed = mmap(NULL, len, PROT_NONE, MAP_SHARED, alloc->fd, 0);
	alloc->open = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, alloc->fd, 0);
	if (alloc->closed == MAP_FAILED || alloc->open == MAP_FAILED) {
		abort();
	}
	alloc->len = len;
	*addr = (device_ptr)(uintptr_t)alloc->closed;
	pthread_mutex_unlock(&lock);
	return OK;
}

/* Under the lock. */
static struct alloc *alloc_of(device_ptr addr)
{
	for (int i = 0; i < ALLOCS_MAX; i++) {
		uint64_t start = (uint64_t)(uintptr_t)allocs[i].closed;

		if (allocs[i].len != 0 && addr >= start && addr - start < allocs[i].len) {
			return &allocs[i];
		}
	}
	return NULL;
}

EXPORT int cuMemFree_v2(device_ptr addr)
{
	struct alloc *alloc;

	pthread_mutex_lock(&lock);
	alloc = alloc_of(addr);
	if (alloc != NULL) {
		munmap(alloc->closed, alloc->len);
		munmap(alloc->open, alloc->len);
		close(alloc->fd);
		memset(alloc, 0, sizeof(*alloc));
	}
	pthread_mutex_unlock(&lock);
	return alloc != NULL ? OK : INVALID_VALUE;
}

EXPORT int cuMemGetHandleForAddressRange(int *handle, device_ptr addr, size_t len, int type,
					 unsigned long long flags)
{
	struct alloc *alloc;

	(void)len;
	(void)type;
	(void)flags;
	pthread_mutex_lock(&lock);
	alloc = alloc_of(addr);
	*handle = alloc != NULL ? dup(alloc->fd) : -1;
	pthread_mutex_unlock(&lock);
	return *handle >= 0 ? OK : INVALID_VALUE;
}

EXPORT int cuPointerGetAttribute(void *out, int attr, device_ptr addr)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = alloc_of(addr) != NULL;
	pthread_mutex_unlock(&lock);
	if (!found || (attr != ATTR_MEMORY_TYPE && attr != ATTR_ORDINAL)) {
		return INVALID_VALUE;
	}
	*(int *)out = attr == ATTR_MEMORY_TYPE ? MEMORY_DEVICE : 0;
	return OK;
}

/* The secret address of [addr, addr + len), or NULL. */
static char *open_address(device_ptr addr, size_t len)
{
	struct alloc *alloc;
	char *at = NULL;

	pthread_mutex_lock(&lock);
	alloc = alloc_of(addr);
	if (alloc != NULL) {
		size_t offset = (size_t)(addr - (uint64_t)(uintptr_t)alloc->closed);

		at = len <= alloc->len - offset ? alloc->open + offset : NULL;
	}
	pthread_mutex_unlock(&lock);
	return at;
}

static int enqueue(void *stream, char *to, const char *from, size_t len)
{
	struct stream *queue = stream;

	if (stack_depth == 0 || queue == NULL) {
		return INVALID_CONTEXT;
	}
	if (to == NULL || from == NULL || queue->len != 0) {
		return INVALID_VALUE;
	}
	*queue = (struct stream){.to = to, .from = from, .len = len};
	return OK;
}

EXPORT int cuMemcpyHtoDAsync_v2(device_ptr to, const void *from, size_t len, void *stream)
{
	return enqueue(stream, open_address(to, len), from, len);
}

EXPORT int cuMemcpyDtoHAsync_v2(void *to, device_ptr from, size_t len, void *stream)
{
	return enqueue(stream, to, open_address(from, len), len);
}

EXPORT int cuStreamSynchronize(void *stream)
{
	struct stream *queue = stream;
	const struct timespec pause = {.tv_sec = delay_ms / 1000,
				       .tv_nsec = (long)(delay_ms % 1000) * 1000000};
	size_t half = queue->len / 2;

	if (stack_depth == 0) {
		return INVALID_CONTEXT;
	}
	if (queue->len != 0) {
		fab_copy_bytes(queue->to, queue->from, half);
		nanosleep(&pause, NULL);
		fab_copy_bytes(queue->to + half, queue->from + half, queue->len - half);
		__atomic_fetch_add(&copy_count, 1, __ATOMIC_RELAXED);
	}
	queue->len = 0;
	return OK;
}

EXPORT void fake_cuda_delay(unsigned int ms)
{
	delay_ms = ms;
}

EXPORT unsigned int fake_cuda_copies(void)
{
	return __atomic_load_n(&copy_count, __ATOMIC_RELAXED);
}

EXPORT char *fake_cuda_look(unsigned long long addr)
{
	return open_address(addr, 1);
}
