/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/mr.h"
#include "ib_fake.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
	PAGE = 4096
};

static struct braid_config cfg;
static struct ib_rails *rails;
static struct ib_mr_cache *cache;
static int live_start;
static _Alignas(PAGE) char memory[8 * PAGE];

static int setup(void **state)
{
	(void)state;
	fake_reset();
	config_default(&cfg);
	if (sysconf(_SC_PAGESIZE) != PAGE || ib_rails_open(&cfg, &rails) != 0) {
		return -1;
	}
	live_start = fake.live_count;
	return ib_mr_cache_create(rails, &cache);
}

static int teardown(void **state)
{
	(void)state;
	fake.fail_at = 0;
	ib_mr_cache_destroy(cache);
	ib_rails_close(rails);
	return fake.live_count;
}

static struct ib_mr *get(size_t offset, size_t len, bool ordered)
{
	struct ib_mr *mr = NULL;

	assert_int_equal(ib_mr_get(cache, memory + offset, len, ordered, &mr), 0);
	return mr;
}

static void test_keys_of_every_rail(void **state)
{
	struct ib_mr *mr = get(0, 100, false);

	(void)state;
	assert_int_equal(mr->rail_mask, 3);
	assert_int_equal(mr->lkeys[0], 101);
	assert_int_equal(mr->rkeys[0], 1001);
	assert_int_equal(mr->lkeys[1], 102);
	assert_int_equal(mr->rkeys[1], 1002);
	assert_int_equal(fake.reg_access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
						  IBV_ACCESS_REMOTE_READ |
						  IBV_ACCESS_RELAXED_ORDERING);
	ib_mr_put(cache, mr);
	ib_mr_put(cache, NULL);
	assert_int_equal(fake.live_count, live_start);
}

static void test_ordered(void **state)
{
	struct ib_mr *relaxed = get(0, PAGE, false);
	struct ib_mr *ordered = get(0, PAGE, true);

	(void)state;
	/* one does not serve for the other */
	assert_ptr_not_equal(relaxed, ordered);
	assert_int_equal(fake.reg_access,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	ib_mr_put(cache, relaxed);
	ib_mr_put(cache, ordered);
}

static void test_page_aligned(void **state)
{
	struct ib_mr *mr = get(PAGE + 17, PAGE, true);

	(void)state;
	assert_ptr_equal(fake.reg_addr, memory + PAGE);
	assert_int_equal(fake.reg_len, 2 * PAGE);
	ib_mr_put(cache, mr);
	mr = get(PAGE, PAGE, true);
	assert_int_equal(fake.reg_len, PAGE);
	ib_mr_put(cache, mr);
}

static void test_reuse(void **state)
{
	struct ib_mr *mr = get(PAGE, 3 * PAGE, true);
	unsigned int regs = fake.reg_count;

	(void)state;
	assert_ptr_equal(get(PAGE, 3 * PAGE, true), mr);
	assert_ptr_equal(get(2 * PAGE + 5, 1, true), mr);
	assert_ptr_equal(get(3 * PAGE + 5, PAGE - 5, true), mr);
	assert_int_equal(fake.reg_count, regs);
	/* one byte more on either side is another registration */
	ib_mr_put(cache, get(PAGE - 1, 2, true));
	ib_mr_put(cache, get(3 * PAGE, PAGE + 1, true));
	assert_int_equal(fake.reg_count, regs + 4);
	for (int i = 0; i < 3; i++) {
		ib_mr_put(cache, mr);
		assert_int_equal(fake.live_count, live_start + 2);
	}
	ib_mr_put(cache, mr);
	assert_int_equal(fake.live_count, live_start);
	/* gone from the cache, too */
	ib_mr_put(cache, get(PAGE, 3 * PAGE, true));
	assert_int_equal(fake.reg_count, regs + 6);
}

/* Out of the middle, the front and the end of the list. */
static void test_put_any_order(void **state)
{
	struct ib_mr *mrs[4];

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		mrs[i] = get(2 * i * PAGE, 8, true);
	}
	ib_mr_put(cache, mrs[1]);
	ib_mr_put(cache, mrs[3]);
	ib_mr_put(cache, mrs[0]);
	assert_ptr_equal(get(4 * PAGE, 8, true), mrs[2]);
	ib_mr_put(cache, mrs[2]);
	ib_mr_put(cache, mrs[2]);
	assert_int_equal(fake.live_count, live_start);
}

static void test_one_rail_cannot(void **state)
{
	struct ib_mr *mr;

	(void)state;
	fake.reg_fail_device = "fab0";
	mr = get(0, 8, true);
	assert_int_equal(mr->rail_mask, 2);
	assert_non_null(strstr(fake.log, "WARN NET/Braid rail fab0:1: cannot register 4096 bytes"));
	ib_mr_put(cache, mr);
	fake.reg_fail_device = NULL;
	atomic_store(&rails->rails[1].device->is_fatal, true);
	mr = get(0, 8, true);
	assert_int_equal(mr->rail_mask, 1);
	ib_mr_put(cache, mr);
}

static void test_ports_share_registration(void **state)
{
	struct ib_mr *mr;

	(void)state;
	assert_int_equal(teardown(NULL), 0);
	fake_reset();
	fake.devices[0].port_count = 2;
	assert_int_equal(ib_rails_open(&cfg, &rails), 0);
	assert_int_equal(ib_mr_cache_create(rails, &cache), 0);
	mr = get(0, 8, true);
	assert_int_equal(fake.reg_count, 2);
	assert_int_equal(mr->rail_mask, 7);
	assert_int_equal(mr->rkeys[1], mr->rkeys[0]);
	assert_int_not_equal(mr->rkeys[2], mr->rkeys[0]);
	ib_mr_put(cache, mr);
	fake.reg_fail_device = "fab0";
	mr = get(0, 8, true);
	assert_int_equal(mr->rail_mask, 4);
	ib_mr_put(cache, mr);
}

static void test_fail_each_call(void **state)
{
	(void)state;
	for (unsigned int n = 1; n <= 2; n++) {
		struct ib_mr *mr;

		fake.fail_at = fake.call_count + n;
		mr = get(0, 8, true);
		assert_int_equal(mr->rail_mask, n == 1 ? 2 : 1);
		ib_mr_put(cache, mr);
		assert_int_equal(fake.live_count, live_start);
	}
}

static void test_all_fail(void **state)
{
	struct ib_mr *mr = (struct ib_mr *)memory;

	(void)state;
	fake.fail_at = fake.call_count + 1;
	fake.fail_errno = EFAULT;
	fake.reg_fail_device = "fab1";
	assert_int_equal(ib_mr_get(cache, memory, 8, true, &mr), -EFAULT);
	assert_ptr_equal(mr, memory);
	assert_int_equal(fake.live_count, live_start);
}

static void test_bad_ranges(void **state)
{
	struct ib_mr *mr;

	(void)state;
	assert_int_equal(ib_mr_get(cache, memory, 0, true, &mr), -EINVAL);
	assert_int_equal(ib_mr_get(cache, memory, SIZE_MAX, true, &mr), -EINVAL);
	assert_int_equal(ib_mr_get(cache, (void *)(UINTPTR_MAX - 8), 8, true, &mr), -EINVAL);
}

static void test_dmabuf(void **state)
{
	struct ib_mr *mr, *again, *host;

	(void)state;
	assert_int_equal(ib_mr_get_dmabuf(cache, memory + PAGE + 8, 100, PAGE + 8, 5, &mr), 0);
	assert_int_equal(fake.dmabuf.offset_bytes, PAGE);
	assert_int_equal(fake.dmabuf.iova, (uintptr_t)memory + PAGE);
	assert_int_equal(fake.dmabuf.len_bytes, PAGE);
	assert_int_equal(fake.dmabuf.fd, 5);
	/* another descriptor of the same range */
	assert_int_equal(ib_mr_get_dmabuf(cache, memory + PAGE + 8, 100, PAGE + 8, 6, &again), 0);
	assert_ptr_equal(again, mr);
	host = get(PAGE + 8, 100, false);
	assert_ptr_not_equal(host, mr);
	ib_mr_put(cache, host);
	ib_mr_put(cache, again);
	ib_mr_put(cache, mr);
	/* a buffer that starts within a page: nothing before it is touched */
	assert_int_equal(ib_mr_get_dmabuf(cache, memory + 8, 100, 0, 5, &mr), 0);
	assert_int_equal(fake.dmabuf.offset_bytes, 0);
	assert_int_equal(fake.dmabuf.iova, (uintptr_t)memory + 8);
	assert_int_equal(fake.dmabuf.len_bytes, 100);
	ib_mr_put(cache, mr);
	assert_int_equal(ib_mr_get_dmabuf(cache, memory, 8, 0, -1, &mr), -EOPNOTSUPP);
	assert_int_equal(fake.live_count, live_start);
}

static void test_leak_is_told(void **state)
{
	(void)state;
	(void)get(0, 8, true);
	(void)get(0, 8, false);
	ib_mr_cache_destroy(cache);
	cache = NULL;
	assert_int_equal(fake.live_count, live_start);
	assert_non_null(strstr(fake.log, "2 memory registrations were never given back"));
}

static void *hammer(void *arg)
{
	uintptr_t seed = (uintptr_t)arg;

	for (unsigned int i = 0; i < 2000; i++) {
		struct ib_mr *mr = NULL;

		seed = seed * 1103515245u + 12345u;
		if (ib_mr_get(cache, memory + (seed >> 16 & 7) * PAGE, 8, true, &mr) != 0 ||
		    mr->rail_mask != 3) {
			return memory;
		}
		ib_mr_put(cache, mr);
	}
	return NULL;
}

/* The fakes count without a lock, so two rails of one device and one registering thread at a time
 * would be all that could be checked; entry points of their own make it real. */
static struct ibv_mr *safe_reg(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)addr;
	(void)len;
	(void)access;
	mr->pd = pd;
	return mr;
}

static int safe_dereg(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

static void test_threads(void **state)
{
	struct ib_verbs_syms syms = {.reg_mr = safe_reg, .dereg_mr = safe_dereg};
	pthread_t threads[3];

	(void)state;
	ib_verbs_use(&syms);
	for (uintptr_t i = 0; i < 3; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)), 0);
	}
	for (int i = 0; i < 3; i++) {
		void *failed;

		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	ib_mr_cache_destroy(cache);
	cache = NULL;
	assert_null(strstr(fake.log, "never given back"));
	/* for closing the rails, which were opened with the others */
	syms.dealloc_pd = fake_dealloc_pd;
	syms.close_device = fake_close_device;
	ib_verbs_use(&syms);
}

/* No peer memory module, a driver that refuses DMA-BUF, no CUDA: host memory only, and kept. */
static void test_ptr_support(void **state)
{
	unsigned int calls;

	(void)state;
	if (access("/sys/module/nvidia_peermem/version", F_OK) == 0) {
		skip();
	}
	assert_int_equal(ib_mr_ptr_support(rails), IB_PTR_HOST);
	assert_int_equal(atomic_load(&rails->rails[1].ptr_support), IB_PTR_HOST);
	calls = fake.call_count;
	assert_int_equal(ib_mr_ptr_support(rails), IB_PTR_HOST);
	assert_int_equal(fake.call_count, calls);
}

/* The driver knows DMA-BUF, but there is nothing to try it with yet: neither told nor kept. */
static void test_ptr_support_untried(void **state)
{
	unsigned int regs = fake.reg_count;

	(void)state;
	fake.dmabuf_errno = EBADF;
	assert_int_equal(ib_mr_ptr_support(rails), IB_PTR_HOST);
	assert_int_equal(atomic_load(&rails->rails[0].ptr_support), 0);
	assert_int_equal(fake.reg_count, regs);
	assert_non_null(strstr(fake.log, "GPU memory is not used yet"));
	fake.dmabuf_errno = EPROTONOSUPPORT;
	assert_int_equal(ib_mr_ptr_support(rails), IB_PTR_HOST);
	assert_int_equal(atomic_load(&rails->rails[0].ptr_support), IB_PTR_HOST);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_keys_of_every_rail),
		TEST(test_ordered),
		TEST(test_page_aligned),
		TEST(test_reuse),
		TEST(test_put_any_order),
		TEST(test_one_rail_cannot),
		TEST(test_ports_share_registration),
		TEST(test_fail_each_call),
		TEST(test_all_fail),
		TEST(test_bad_ranges),
		TEST(test_dmabuf),
		TEST(test_leak_is_told),
		TEST(test_threads),
		TEST(test_ptr_support),
		TEST(test_ptr_support_untried),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
