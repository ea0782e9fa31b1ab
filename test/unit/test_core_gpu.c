/* SPDX-License-Identifier: Apache-2.0 */

/*
 * GPU memory through the plugin's core: found by trying, registered as DMA-BUF, sent and received
 * over all rails, flushed through each. On the software fabric and a stand-in for CUDA, whose
 * memory can be reached by nothing but its own copies. Both ends are in this process.
 */

#include "core_rig.h"
#include "plugin/comm.h"
#include "test/fabric/tests/gpu/fake_cuda.h"

#include <dlfcn.h>
#include <errno.h>

enum {
	RAILS = 2, /* core_rig.h */
	BIG = 4 << 20
};

static struct {
	int (*mem_alloc)(unsigned long long *addr, size_t len);
	int (*mem_free)(unsigned long long addr);
	int (*export_fd)(int *fd, unsigned long long addr, size_t len, int type,
			 unsigned long long flags);
	unsigned int (*copies)(void);
	char *(*look)(unsigned long long addr);
} cu;

struct gpu_pair {
	struct rig_pair pair;
	unsigned long long from, to;
	void *send_mh, *recv_mh;
};

static void resolve(void *lib, const char *name, void *out)
{
	void *found = dlsym(lib, name);

	assert_non_null(found);
	memcpy(out, &found, sizeof(found));
}

/* A CUDA program's thread: driver loaded, context current. */
static int begin(void **state)
{
	char exe[PATH_MAX / 2], path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	int (*init)(unsigned int);
	int (*retain)(void **, int);
	int (*push)(void *);
	void *lib, *context;

	(void)setenv("BRAID_REJOIN_MIN_MS", "5", 1);
	(void)setenv("BRAID_REJOIN_MAX_MS", "50", 1);
	if (len < 0 || rig_begin(state)) {
		return -1;
	}
	exe[len] = '\0';
	(void)snprintf(path, sizeof(path), "%s/../../fabric/fake_cuda/libcuda.so.1", dirname(exe));
	lib = dlopen(path, RTLD_NOW);
	if (!lib) {
		return -1;
	}
	resolve(lib, "cuInit", &init);
	resolve(lib, "cuDevicePrimaryCtxRetain", &retain);
	resolve(lib, "cuCtxPushCurrent_v2", &push);
	resolve(lib, "cuMemAlloc_v2", &cu.mem_alloc);
	resolve(lib, "cuMemFree_v2", &cu.mem_free);
	resolve(lib, "cuMemGetHandleForAddressRange", &cu.export_fd);
	resolve(lib, "fake_cuda_copies", &cu.copies);
	resolve(lib, "fake_cuda_look", &cu.look);
	return init(0) || retain(&context, 0) || push(context) ? -1 : 0;
}

static int support(void)
{
	struct plugin_props props;

	assert_int_equal(plugin_device_props(0, &props), 0);
	return props.ptr_support;
}

/* What NCCL is told is what a registration has shown to work. */
static void test_found(void **state)
{
	(void)state;
	assert_int_equal(unsetenv("FABRIC_GPU"), 0);
	assert_int_equal(plugin_init(NULL, NULL), 0);
	assert_int_equal(support(), NCCL_PTR_HOST);
	plugin_finalize();
	assert_int_equal(setenv("FABRIC_GPU", "1", 1), 0);
	assert_int_equal(plugin_init(NULL, NULL), 0);
	assert_true((support() & NCCL_PTR_DMABUF) != 0);
	plugin_finalize();
}

/* NCCL exports the buffer, registers, and closes the descriptor at once. */
static void *register_gpu(void *comm, unsigned long long addr)
{
	void *mh = NULL;
	int fd = -1;

	assert_int_equal(cu.export_fd(&fd, addr, BIG, 1, 0), 0);
	assert_int_equal(
		plugin_reg_mr_dmabuf(comm, (void *)(uintptr_t)addr, BIG, NCCL_PTR_CUDA, 0, fd, &mh),
		0);
	assert_int_equal(close(fd), 0);
	return mh;
}

static void open_gpu(struct gpu_pair *gpu)
{
	char *at;

	assert_int_equal(setenv("FABRIC_GPU", "1", 1), 0);
	assert_int_equal(plugin_init(NULL, NULL), 0);
	assert_true((support() & NCCL_PTR_DMABUF) != 0);
	rig_open(&gpu->pair, 0);
	assert_int_equal(cu.mem_alloc(&gpu->from, BIG), 0);
	assert_int_equal(cu.mem_alloc(&gpu->to, BIG), 0);
	at = cu.look(gpu->from);
	for (size_t i = 0; i < BIG; i++) {
		at[i] = (char)(i * 7 + i / 251);
	}
	gpu->send_mh = register_gpu(gpu->pair.send, gpu->from);
	gpu->recv_mh = register_gpu(gpu->pair.recv, gpu->to);
}

static void close_gpu(struct gpu_pair *gpu)
{
	assert_int_equal(plugin_dereg_mr(gpu->pair.send, gpu->send_mh), 0);
	assert_int_equal(plugin_dereg_mr(gpu->pair.recv, gpu->recv_mh), 0);
	assert_int_equal(cu.mem_free(gpu->from), 0);
	assert_int_equal(cu.mem_free(gpu->to), 0);
	rig_close(&gpu->pair);
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
}

static void carry(struct gpu_pair *gpu, size_t len)
{
	void *recv, *send;
	int sent = -1, got = -1;

	memset(cu.look(gpu->to), 0x5e, BIG);
	recv = rig_irecv(&gpu->pair, (void *)(uintptr_t)gpu->to, len, gpu->recv_mh);
	send = rig_isend(&gpu->pair, (void *)(uintptr_t)gpu->from, len, gpu->send_mh);
	rig_finish(send, recv, &sent, &got);
	assert_int_equal(got, len);
	assert_memory_equal(cu.look(gpu->from), cu.look(gpu->to), len);
	assert_true(len == BIG || cu.look(gpu->to)[len] == 0x5e);
}

/* Flushes, and returns how many reads of GPU memory that took. */
static unsigned int flush_count(struct gpu_pair *gpu)
{
	unsigned int before = cu.copies();
	uint64_t start_ns = clock_mono_ns();
	void *data = (void *)(uintptr_t)gpu->to;
	void *request = NULL;
	int len = BIG, done = 0;

	assert_int_equal(plugin_iflush(gpu->pair.recv, 1, &data, &len, &gpu->recv_mh, &request), 0);
	assert_non_null(request);
	while (!done) {
		assert_int_equal(plugin_test(request, &done, NULL), 0);
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
	return cu.copies() - before;
}

static void test_carry(void **state)
{
	struct gpu_pair gpu;

	(void)state;
	open_gpu(&gpu);
	carry(&gpu, 8);
	carry(&gpu, 64 << 10);
	carry(&gpu, BIG - 3);
	carry(&gpu, BIG);
	assert_int_equal(flush_count(&gpu), RAILS);
	close_gpu(&gpu);
}

/* ncclCommAbort: the memory goes with requests outstanding; whoever still copies would crash. */
static void test_abort(void **state)
{
	struct gpu_pair gpu;

	(void)state;
	open_gpu(&gpu);
	(void)rig_irecv(&gpu.pair, (void *)(uintptr_t)gpu.to, BIG, gpu.recv_mh);
	(void)rig_isend(&gpu.pair, (void *)(uintptr_t)gpu.from, BIG, gpu.send_mh);
	close_gpu(&gpu);
}

static void add_fault(const char *rule)
{
	char exe[PATH_MAX / 2], line[2 * PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	assert_true(len > 0);
	exe[len] = '\0';
	(void)snprintf(line, sizeof(line), "%s/../../fabric/fabricctl --dir %s fault '%s'",
		       dirname(exe), tree_root, rule);
	assert_int_equal(system(line), 0);
}

/* Both ends have so many paths UP. */
static void await_paths(struct gpu_pair *gpu, unsigned int count)
{
	struct comm *ends[] = {gpu->pair.send, gpu->pair.recv};
	uint64_t start_ns = clock_mono_ns();

	for (unsigned int i = 0; i < 2;) {
		struct comm *comm = ends[i];

		lock_take(&comm->lock);
		i += repair_end_up_count(&comm->end) == count;
		lock_give(&comm->lock);
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
}

/* An HCA that failed and is back has the buffers of before, whose descriptors are long closed, and
 * is flushed as well. */
static void test_reopened(void **state)
{
	struct gpu_pair gpu;

	(void)state;
	open_gpu(&gpu);
	carry(&gpu, BIG);
	add_fault("nic_death host=0 rail=1");
	await_paths(&gpu, RAILS - 1);
	carry(&gpu, BIG);
	assert_int_equal(flush_count(&gpu), RAILS - 1);
	add_fault("heal host=0 rail=1");
	await_paths(&gpu, RAILS);
	carry(&gpu, BIG);
	assert_int_equal(flush_count(&gpu), RAILS);
	add_fault("port_down host=0 rail=0");
	await_paths(&gpu, RAILS - 1);
	carry(&gpu, BIG - 5);
	assert_int_equal(flush_count(&gpu), RAILS - 1);
	add_fault("port_up host=0 rail=0");
	await_paths(&gpu, RAILS);
	close_gpu(&gpu);
}

/* A rail goes silent in mid-message. What is sent again comes from GPU memory as well, and the
 * flush asks the rails that are left. */
static void test_cut(void **state)
{
	struct gpu_pair gpu;

	(void)state;
	open_gpu(&gpu);
	carry(&gpu, BIG);
	add_fault("cut host=0 rail=1 bytes=700001");
	carry(&gpu, BIG);
	carry(&gpu, BIG);
	assert_int_equal(flush_count(&gpu), RAILS - 1);
	close_gpu(&gpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_found), cmocka_unit_test(test_carry),
		cmocka_unit_test(test_abort), cmocka_unit_test(test_reopened),
		cmocka_unit_test(test_cut), /* last: the rail stays cut */
	};

	return cmocka_run_group_tests(tests, begin, rig_end);
}
