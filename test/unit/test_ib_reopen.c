/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/qp.h"
#include "ib/reopen.h"
#include "ib_rails_rig.h"

#include <fcntl.h>
#include <pthread.h>

/* A HCA that failed or was replaced is opened again: fab0, which is seen as another device of the
 * list once fake.device_first says so. */

enum {
	PAGE = 4096
};

static struct ib_rails *rails;
static struct ib_mr_cache *cache;
static int live_start;
static _Alignas(PAGE) char memory[8 * PAGE];

static int open_all(unsigned int want)
{
	rails = open_rails(want);
	live_start = fake.live_count;
	return ib_mr_cache_create(rails, &cache);
}

/* Three devices of which two are listed, fab0 and fab1; later fab1 and a new fab0. */
static int setup_two(void **state)
{
	(void)setup(state);
	fake.devices[0].node_guid = 0x700;
	fake.devices[1].node_guid = 0x701;
	fake.devices[2].node_guid = 0x700;
	fake.devices[2].name = "fab0";
	return open_all(2);
}

static int teardown(void **state)
{
	(void)state;
	fake.fail_at = 0;
	ib_mr_cache_destroy(cache);
	ib_rails_close(rails);
	return fake.live_count;
}

static void die(unsigned int rail)
{
	atomic_store(&rails->rails[rail].device->is_fatal, true);
}

/* The listed devices are fab1 and the new one, and the old one's port is out. */
static void replace(void)
{
	fake.devices[0].state = IBV_PORT_DOWN;
	fake.device_first = 1;
}

static int begin(struct ib_reopen *out)
{
	atomic_store(&rails->rails[0].device->looked_ns, 0);
	return ib_reopen_begin(&rails->rails[0], out);
}

static int again(void)
{
	struct ib_reopen reopen;
	int rc = begin(&reopen);

	return rc != 0 ? rc : ib_reopen_finish(&reopen, &cfg, cache);
}

static struct ib_mr *get(size_t offset, bool ordered)
{
	struct ib_mr *mr = NULL;

	assert_int_equal(ib_mr_get(cache, memory + offset, 8, ordered, &mr), 0);
	return mr;
}

static void test_failed(void **state)
{
	struct ib_mr *mr = get(4 * PAGE, true), *late;
	struct ib_device *before = rails->rails[0].device;
	uint32_t key = ib_mr_rkey(mr, &rails->rails[0]), other = ib_mr_rkey(mr, &rails->rails[1]);
	bool moved;

	(void)state;
	assert_int_equal(again(), -ENODEV); /* nothing is wrong with it */
	die(0);
	late = get(0, false);
	assert_int_equal(late->rail_mask, 2);
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), -EIO);
	assert_int_equal(again(), 0);
	assert_ptr_not_equal(rails->rails[0].device, before);
	assert_false(ib_rail_is_fatal(&rails->rails[0]));
	assert_true(ib_device_is_used(rails->rails[0].device));
	assert_true(
		logged("rail fab0:1: its device fab0 had failed and was opened again as fab0: 2 "
		       "registrations made anew, 0 could not be"));
	/* both registrations, those that could not be before as well; the other rail as it was */
	assert_int_equal(mr->rail_mask, 3);
	assert_int_equal(late->rail_mask, 3);
	assert_int_not_equal(ib_mr_rkey(mr, &rails->rails[0]), key);
	assert_int_equal(ib_mr_rkey(mr, &rails->rails[1]), other);
	/* that of the higher address is the last */
	assert_int_equal(fake.reg_access,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), 0);
	/* the old one is closed: two devices with a domain, four registrations */
	assert_int_equal(fake.live_count, live_start + 4);
	ib_mr_put(cache, mr);
	ib_mr_put(cache, late);
	assert_int_equal(fake.live_count, live_start);
}

/* What a rail told NCCL stays, whatever the device is called now. */
static void test_replaced(void **state)
{
	struct ib_rail before = rails->rails[0];

	(void)state;
	assert_int_equal(again(), -ENODEV);
	fake.devices[0].state = IBV_PORT_DOWN;
	assert_int_equal(again(), -ENODEV); /* a port that is down, of a device that is there */
	fake.devices[0].state = IBV_PORT_ACTIVE;
	fake.device_first = 1;
	assert_int_equal(again(), -ENODEV); /* only its name is another one's now: it works */
	replace();
	fake.devices[2].name = "renamed";
	assert_int_equal(again(), 0);
	assert_ptr_equal(rails->rails[0].device->ctx->device, &fake_handles[2]);
	assert_string_equal(rails->rails[0].device->name, "renamed");
	assert_string_equal(rails->rails[0].name, before.name);
	assert_string_equal(rails->rails[0].label, before.label);
	assert_int_equal(rails->rails[0].guid, before.guid);
	assert_int_equal(rails->rails[0].idx, 0);
	assert_true(logged("was replaced and was opened again as renamed"));
	assert_int_equal(fake.live_count, live_start);
}

/* The address has moved to where none would be looked for. */
static void test_moved_address(void **state)
{
	bool moved;

	(void)state;
	replace();
	fake.devices[2].gid_count = 4;
	memset(fake.devices[2].gids, 0, sizeof(fake.devices[2].gids));
	fake.devices[2].gids[3] = rails->rails[0].addr.gid;
	assert_int_equal(again(), 0);
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), 0);
	assert_int_equal(rails->rails[0].addr.gid_index, 3);
}

/* By name where the GUID is another one; never a device that another rail has. */
static void test_which(void **state)
{
	(void)state;
	replace();
	fake.devices[2].node_guid = 0x999;
	assert_int_equal(again(), 0);
	assert_ptr_equal(rails->rails[0].device->ctx->device, &fake_handles[2]);
	die(0);
	fake.device_count = 1; /* fab1 alone, which now claims to be the card */
	fake.devices[1].node_guid = 0x999;
	assert_int_equal(again(), -ENODEV);
	fake.device_count = 2;
	fake.devices[2].name = "other";
	fake.devices[2].node_guid = 0;
	assert_int_equal(again(), -ENODEV);
	assert_int_equal(atomic_load(&rails->rails[0].device->state), IB_DEVICE_USED);
}

static void test_one_at_a_time(void **state)
{
	struct ib_reopen reopen, second;
	struct ib_qp_opts opts = {.send_wrs_max = 4, .recv_wrs_max = 4};
	struct ib_qp qp;

	(void)state;
	replace();
	assert_int_equal(begin(&reopen), 0);
	assert_int_equal(ib_reopen_begin(&rails->rails[0], &second), -EAGAIN);
	assert_int_equal(begin(&second), -EBUSY);
	/* given up: no queue pair, no registration */
	assert_int_equal(ib_qp_create(&rails->rails[0], &opts, &qp), -EIO);
	ib_reopen_cancel(&reopen);
	assert_int_equal(ib_qp_create(&rails->rails[0], &opts, &qp), 0);
	ib_qp_destroy(&qp);
	assert_int_equal(fake.live_count, live_start);
}

/* A queue pair keeps its device, and says which it is. */
static void test_queue_pair_keeps(void **state)
{
	struct ib_qp_opts opts = {.send_wrs_max = 4, .recv_wrs_max = 4};
	struct ib_qp old, new;

	(void)state;
	assert_int_equal(ib_qp_create(&rails->rails[0], &opts, &old), 0);
	die(0);
	assert_int_equal(again(), 0);
	assert_true(atomic_load(&old.device->is_fatal));
	assert_int_equal(ib_qp_create(&rails->rails[0], &opts, &new), 0);
	assert_ptr_equal(new.device, rails->rails[0].device);
	assert_int_not_equal(new.device->id, old.device->id);
	assert_int_equal(fake.live_count, live_start + 2 + 2 + 2); /* and context and domain */
	ib_qp_destroy(&old);
	assert_int_equal(fake.live_count, live_start + 2);
	ib_qp_destroy(&new);
}

static void test_unusable(void **state)
{
	static const char *const whys[] = {"port is down", "its link layer is another one",
					   "it has fewer ports"};
	struct ib_device *before = rails->rails[0].device;

	(void)state;
	replace();
	for (int i = 0; i < 3; i++) {
		fake.devices[2].state = i == 0 ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
		fake.devices[2].link_layer =
			i == 1 ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
		fake.devices[2].port_count = i != 2;
		assert_int_equal(again(), -ENETDOWN);
		assert_int_equal(again(), -ENETDOWN);
		assert_true(logged(whys[i]));
		assert_null(strstr(strstr(fake.log, whys[i]) + 1, whys[i])); /* once */
		assert_ptr_equal(rails->rails[0].device, before);
		assert_true(ib_device_is_used(before));
		assert_int_equal(fake.live_count, live_start);
	}
}

/* Whatever fails, nothing is lost or half done; registrations that fail leave the rail out. */
static void test_fail_each_call(void **state)
{
	struct ib_mr *mr = get(0, true);
	struct ib_device *before = rails->rails[0].device;

	(void)state;
	die(0);
	fake.failed = "";
	for (unsigned int n = 1; strncmp(fake.failed, "reg_mr", 6) != 0; n++) {
		assert_true(n < 20);
		fake.fail_at = fake.call_count + n;
		if (again() == 0) { /* done without what failed */
			before = rails->rails[0].device;
			die(0);
			continue;
		}
		assert_ptr_equal(rails->rails[0].device, before);
		assert_int_equal(mr->rail_mask, 3);
		assert_int_equal(fake.live_count, live_start + 2);
	}
	fake.fail_at = 0;
	assert_int_equal(mr->rail_mask, 2);
	assert_true(logged("0 registrations made anew, 1 could not be"));
	assert_int_equal(fake.live_count, live_start + 1);
	die(0);
	assert_int_equal(again(), 0);
	assert_int_equal(mr->rail_mask, 3);
	ib_mr_put(cache, mr);
}

static void test_two_ports(void **state)
{
	struct ib_mr *mr;
	uint32_t key;

	(void)state;
	fake_reset();
	fake.devices[0].port_count = 2;
	assert_int_equal(open_all(3), 0);
	mr = get(0, true);
	key = ib_mr_rkey(mr, &rails->rails[0]);
	die(1);
	assert_true(ib_rail_is_fatal(&rails->rails[0]));
	atomic_store(&rails->rails[1].device->looked_ns, 0);
	assert_int_equal(again(), 0);
	assert_ptr_equal(rails->rails[0].device, rails->rails[1].device);
	assert_ptr_not_equal(rails->rails[0].device, rails->rails[2].device);
	assert_int_not_equal(ib_mr_rkey(mr, &rails->rails[0]), key);
	assert_int_equal(ib_mr_rkey(mr, &rails->rails[1]), ib_mr_rkey(mr, &rails->rails[0]));
	assert_int_equal(mr->rail_mask, 7);
	ib_mr_put(cache, mr);
	assert_int_equal(fake.live_count, live_start);
}

/* The caller has closed its descriptor by then. */
static void test_dmabuf(void **state)
{
	struct ib_mr *mr;
	int pipes[2];

	(void)state;
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(ib_mr_get_dmabuf(cache, memory + PAGE, PAGE, PAGE, pipes[0], &mr), 0);
	assert_int_equal(close(pipes[0]) | close(pipes[1]), 0);
	die(0);
	assert_int_equal(again(), 0);
	assert_int_equal(mr->rail_mask, 3);
	assert_int_not_equal(fake.dmabuf.fd, pipes[0]);
	assert_true(fcntl(fake.dmabuf.fd, F_GETFD) == FD_CLOEXEC);
	assert_int_equal(fake.dmabuf.iova, (uintptr_t)memory + PAGE);
	assert_int_equal(fake.dmabuf.offset_bytes, PAGE);
	assert_int_equal(fake.dmabuf.len_bytes, PAGE);
	ib_mr_put(cache, mr);
	assert_int_equal(fcntl(fake.dmabuf.fd, F_GETFD), -1);
}

/* What happens in the middle of a registration with a device. */
static void (*meanwhile)(void);
static const struct fake_device *where;
static struct ib_mr *held;

static struct ibv_mr *slow_reg(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	void (*now)(void) = meanwhile;

	if (now != NULL && fake_device(pd->context) == where) {
		meanwhile = NULL;
		now();
	}
	return fake_reg_mr(pd, addr, len, access);
}

static void use_slow_reg(unsigned int device, void (*fn)(void))
{
	struct ib_verbs_syms syms;

	fake_syms(&syms);
	syms.reg_mr = slow_reg;
	syms.reg_mr_iova2 = NULL;
	ib_verbs_use(&syms);
	where = &fake.devices[device];
	meanwhile = fn;
}

static void fail_and_return(void)
{
	die(0);
	assert_int_equal(again(), 0);
}

/* The device is opened again while memory is registered with the next one: it is with the new. */
static void test_registered_meanwhile(void **state)
{
	struct ib_mr *mr;

	(void)state;
	use_slow_reg(1, fail_and_return);
	mr = get(0, true);
	assert_null(meanwhile);
	assert_ptr_equal(mr->devices[0], rails->rails[0].device);
	assert_ptr_equal(mr->mrs[0]->pd, rails->rails[0].device->pd);
	assert_int_equal(ib_mr_rkey(mr, &rails->rails[0]), mr->mrs[0]->rkey);
	assert_int_equal(mr->rail_mask, 3);
	ib_mr_put(cache, mr);
	assert_int_equal(fake.live_count, live_start);
}

static void put_held(void)
{
	int live = fake.live_count;

	ib_mr_put(cache, held);
	assert_int_equal(fake.live_count, live); /* not under the renewal's feet */
	/* gone from the cache at once: its memory may be another's already */
	ib_mr_put(cache, get(0, true));
}

/* Memory is given back while it is registered anew. */
static void test_put_meanwhile(void **state)
{
	(void)state;
	held = get(0, true);
	die(0);
	use_slow_reg(0, put_held);
	assert_int_equal(again(), 0);
	assert_null(meanwhile);
	assert_int_equal(fake.live_count, live_start);
}

/*
 * Registering and giving back while the device is opened again and again. The fakes count without a
 * lock, so registrations have entry points of their own, which know their device; the key of a
 * rail is that of a device that was the rail's while it was looked at.
 */
static _Atomic uint32_t reg_count;
static _Atomic int reg_live;
static _Atomic bool stop;

static struct ibv_mr *safe_reg(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)addr;
	(void)len;
	(void)access;
	mr->pd = pd;
	mr->context = pd->context; /* gone before its registrations: found by the sanitizer */
	mr->lkey = mr->rkey = atomic_fetch_add(&reg_count, 1) + 1;
	atomic_fetch_add(&reg_live, 1);
	return mr;
}

static int safe_dereg(struct ibv_mr *mr)
{
	int gone = mr->context->async_fd < 0;

	free(mr);
	atomic_fetch_sub(&reg_live, 1);
	return gone;
}

static void quiet(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	(void)fmt;
}

static void *hammer(void *arg)
{
	uintptr_t seed = (uintptr_t)arg;

	while (!atomic_load(&stop)) {
		struct ib_mr *mr = NULL;

		seed = seed * 1103515245u + 12345u;
		if (ib_mr_get(cache, memory + (seed >> 16 & 7) * PAGE, 8, true, &mr) != 0) {
			return memory;
		}
		for (unsigned int i = 0; i < 2; i++) {
			/* on, or out for the moment in which its device is dead */
			if (ib_mr_is_on(mr, &rails->rails[i]) &&
			    ib_mr_rkey(mr, &rails->rails[i]) == 0) {
				return memory;
			}
		}
		ib_mr_put(cache, mr);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct ib_verbs_syms syms;
	pthread_t threads[3];

	(void)state;
	fake_syms(&syms);
	syms.reg_mr = safe_reg;
	syms.reg_mr_iova2 = NULL;
	syms.dereg_mr = safe_dereg;
	ib_verbs_use(&syms);
	log_sink_set(quiet); /* the other one is for one thread */
	atomic_store(&stop, false);
	held = get(7 * PAGE, false);
	for (uintptr_t i = 0; i < 3; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)), 0);
	}
	for (int i = 0; i < 2000; i++) {
		uint32_t key = ib_mr_rkey(held, &rails->rails[0]);

		die(0);
		assert_int_equal(again(), 0);
		assert_true(ib_mr_is_on(held, &rails->rails[0]));
		assert_int_not_equal(ib_mr_rkey(held, &rails->rails[0]), key);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 3; i++) {
		void *failed;

		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	ib_mr_put(cache, held);
	assert_int_equal(atomic_load(&reg_live), 0);
	assert_int_equal(fake.live_count, live_start); /* all old devices are closed */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_two, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_failed),
		TEST(test_replaced),
		TEST(test_moved_address),
		TEST(test_which),
		TEST(test_one_at_a_time),
		TEST(test_queue_pair_keeps),
		TEST(test_unusable),
		TEST(test_fail_each_call),
		cmocka_unit_test_setup_teardown(test_two_ports, setup, teardown),
		TEST(test_dmabuf),
		TEST(test_registered_meanwhile),
		TEST(test_put_meanwhile),
		TEST(test_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
