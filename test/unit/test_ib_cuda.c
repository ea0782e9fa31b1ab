/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Trying GPU memory out. What needs a GPU skips without one; run it by hand where there is one.
 */

#include "ib/cuda.h"
#include "ib/mr.h"
#include "ib_fake.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The driver's entry points that this test itself uses. */
static struct {
	void *lib;
	int (*init)(unsigned int);
	int (*ctx_get)(void **);
	int (*ctx_set)(void *);
	int (*retain)(void **, int);
	int (*release)(int);
	int (*mem_info)(size_t *, size_t *);
	int (*stream_create)(void **, unsigned int);
	int (*capture_begin)(void *, int);
	int (*capture_end)(void *, void **);
	int (*stream_destroy)(void *);
	int (*graph_destroy)(void *);
} cu;

static void resolve(const char *name, void *out)
{
	void *found = dlsym(cu.lib, name);

	assert_non_null(found);
	memcpy(out, &found, sizeof(found));
}

/* Nobody has loaded CUDA: it is not loaded for the trial's sake. */
static void test_no_cuda(void **state)
{
	struct cuda_trial trial;

	(void)state;
	assert_int_equal(ib_cuda_trial_begin(&trial), -ENOENT);
	assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
}

static void need_gpu(void)
{
	if (cu.lib == NULL) {
		cu.lib = dlopen("libcuda.so.1", RTLD_NOW);
	}
	if (cu.lib == NULL) {
		(void)fprintf(stderr, "no CUDA driver here\n");
		skip();
	}
	resolve("cuInit", &cu.init);
	resolve("cuCtxGetCurrent", &cu.ctx_get);
	resolve("cuCtxSetCurrent", &cu.ctx_set);
	resolve("cuDevicePrimaryCtxRetain", &cu.retain);
	resolve("cuDevicePrimaryCtxRelease_v2", &cu.release);
	resolve("cuMemGetInfo_v2", &cu.mem_info);
	resolve("cuStreamCreate", &cu.stream_create);
	resolve("cuStreamBeginCapture_v2", &cu.capture_begin);
	resolve("cuStreamEndCapture", &cu.capture_end);
	resolve("cuStreamDestroy_v2", &cu.stream_destroy);
	resolve("cuGraphDestroy", &cu.graph_destroy);
}

static void *current(void)
{
	void *ctx = &cu;

	assert_int_equal(cu.ctx_get(&ctx), 0);
	return ctx;
}

static void test_no_context(void **state)
{
	struct cuda_trial trial;

	(void)state;
	need_gpu();
	assert_int_equal(ib_cuda_trial_begin(&trial), -EAGAIN); /* not even initialised */
	assert_int_equal(cu.init(0), 0);
	assert_int_equal(ib_cuda_trial_begin(&trial), -EAGAIN);
	assert_null(current());
}

/* A context is active, but not this thread's. */
static void test_foreign_context(void **state)
{
	struct cuda_trial trial;
	void *ctx;

	(void)state;
	need_gpu();
	assert_int_equal(cu.retain(&ctx, 0), 0);
	assert_null(current());
	assert_int_equal(ib_cuda_trial_begin(&trial), 0);
	assert_true(trial.addr != 0);
	assert_int_equal(trial.device_retained, 0);
	ib_cuda_trial_end(&trial);
	assert_null(current());
	assert_int_equal(cu.release(0), 0);
	/* the last reference was ours: the trial has kept none */
	assert_int_equal(ib_cuda_trial_begin(&trial), -EAGAIN);
}

/* In the thread's own context, in the middle of capturing a graph. */
static void test_own_context(void **state)
{
	size_t before, after, total;
	struct cuda_trial trial;
	void *ctx, *stream, *graph = NULL;

	(void)state;
	need_gpu();
	assert_int_equal(cu.retain(&ctx, 0), 0);
	assert_int_equal(cu.ctx_set(ctx), 0);
	assert_int_equal(cu.mem_info(&before, &total), 0);
	assert_int_equal(cu.stream_create(&stream, 1), 0);
	assert_int_equal(cu.capture_begin(stream, 0), 0);
	assert_int_equal(ib_cuda_trial_begin(&trial), 0);
	assert_int_equal(trial.device_retained, -1);
	if (trial.dmabuf_fd >= 0) {
		assert_true(fcntl(trial.dmabuf_fd, F_GETFD) >= 0);
	}
	(void)fprintf(stderr, "DMA-BUF export: %s\n", trial.dmabuf_fd >= 0 ? "yes" : "no");
	ib_cuda_trial_end(&trial);
	assert_int_equal(cu.capture_end(stream, &graph), 0);
	assert_non_null(graph);
	assert_int_equal(cu.graph_destroy(graph), 0);
	assert_int_equal(cu.stream_destroy(stream), 0);
	assert_ptr_equal(current(), ctx);
	assert_int_equal(cu.mem_info(&after, &total), 0);
	assert_int_equal(before, after);
	assert_int_equal(cu.ctx_set(NULL), 0);
	assert_int_equal(cu.release(0), 0);
}

/* What a registration that works, and one that does not, are told as. */
static void test_told(void **state)
{
	struct braid_config cfg;
	struct ib_rails *rails;
	struct cuda_trial trial;
	bool exports;
	void *ctx;

	(void)state;
	need_gpu();
	assert_int_equal(cu.retain(&ctx, 0), 0);
	assert_int_equal(ib_cuda_trial_begin(&trial), 0);
	exports = trial.dmabuf_fd >= 0;
	ib_cuda_trial_end(&trial);
	fake_reset();
	fake.dmabuf_errno = EBADF;
	fake.reg_fail_device = "fab1";
	config_default(&cfg);
	assert_int_equal(ib_rails_open(&cfg, &rails), 0);
	assert_true((ib_mr_ptr_support(rails) & IB_PTR_DMABUF) != 0 || !exports);
	assert_true((atomic_load(&rails->rails[0].ptr_support) & IB_PTR_DMABUF) != 0 || !exports);
	assert_int_equal(atomic_load(&rails->rails[1].ptr_support), IB_PTR_HOST);
	ib_rails_close(rails);
	assert_int_equal(fake.live_count, 0);
	assert_int_equal(cu.release(0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_cuda),
		cmocka_unit_test(test_no_context),
		cmocka_unit_test(test_foreign_context),
		cmocka_unit_test(test_own_context),
		cmocka_unit_test(test_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
