/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An HCA that failed or was replaced is opened again under the connections that use it, under one
 * that is being made, and under one that has not noticed yet. Both ends are in this process, so
 * both lose theirs at once.
 */

#include "core_rig.h"
#include "plugin/comm.h"
#include "plugin/reopen.h"
#include "plugin/runtime.h"

#include <semaphore.h>

enum {
	BIG = 4 << 20,
	LATE_MS = 100 /* longer than ending all threads takes */
};

static uint8_t from[2][BIG], to[2][BIG];

struct buffers {
	void *send_mh, *recv_mh;
	unsigned int idx;
};

static int begin(void **state)
{
	(void)setenv("BRAID_REJOIN_MIN_MS", "5", 1);
	(void)setenv("BRAID_REJOIN_MAX_MS", "50", 1);
	return rig_begin(state);
}

static bool is_up(void *end, unsigned int rail)
{
	struct comm *comm = end;
	bool is_one = false;

	lock_take(&comm->lock);
	for (unsigned int p = 0; p < comm->path_count; p++) {
		is_one = is_one ||
			 (comm->paths[p].rail->idx == rail && comm->end.paths[p].state == PATH_UP);
	}
	lock_give(&comm->lock);
	return is_one;
}

static void pause_until(uint64_t bound_ns)
{
	rig_pause();
	assert_in_range(clock_mono_ns(), 0, bound_ns);
}

static uint64_t bound_begin(void)
{
	return clock_mono_ns() + RIG_WAIT_MS * NS_PER_MS;
}

static void await(const struct rig_pair *pair, unsigned int rail, bool up)
{
	uint64_t bound_ns = bound_begin();

	while (is_up(pair->send, rail) != up || is_up(pair->recv, rail) != up) {
		pause_until(bound_ns);
	}
}

static void register_all(struct rig_pair *pair, struct buffers *out, unsigned int idx)
{
	out->idx = idx;
	assert_int_equal(plugin_reg_mr(pair->send, from[idx], BIG, NCCL_PTR_HOST, &out->send_mh),
			 0);
	assert_int_equal(plugin_reg_mr(pair->recv, to[idx], BIG, NCCL_PTR_HOST, &out->recv_mh), 0);
}

static void deregister_all(struct rig_pair *pair, const struct buffers *bufs)
{
	assert_int_equal(plugin_dereg_mr(pair->send, bufs->send_mh), 0);
	assert_int_equal(plugin_dereg_mr(pair->recv, bufs->recv_mh), 0);
}

/* Bytes that are not the last ones. */
static void exchange(struct rig_pair *pair, const struct buffers *bufs)
{
	uint8_t *src = from[bufs->idx], *dst = to[bufs->idx];
	int sent = 0, received = 0;
	void *send, *recv;

	for (size_t i = 0; i < BIG; i++) {
		src[i] = (uint8_t)(src[i] * 5 + i + 3);
	}
	recv = rig_irecv(pair, dst, BIG, bufs->recv_mh);
	send = rig_isend(pair, src, BIG, bufs->send_mh);
	rig_finish(send, recv, &sent, &received);
	assert_int_equal(received, BIG);
	assert_memory_equal(src, dst, BIG);
}

static uint32_t device_id(unsigned int rail)
{
	struct ib_device *device = ib_rail_device_get(&runtime_instance()->rails->rails[rail]);
	uint32_t id = device->id;

	ib_device_put(device);
	return id;
}

/* The old device's descriptors go with it. */
static void await_fds(unsigned int count)
{
	uint64_t bound_ns = bound_begin();

	while (rig_fds() != count) {
		pause_until(bound_ns);
	}
}

/* A connection from before and one from meanwhile, memory likewise; then there is no other rail. */
static void use_again(const char *breaks)
{
	struct rig_pair first, second;
	struct buffers before, meanwhile, after;
	unsigned int fds;
	uint32_t id;

	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_open(&first, 0);
	register_all(&first, &before, 0);
	exchange(&first, &before);
	fds = rig_fds();
	id = device_id(1);
	rig_fault(breaks);
	await(&first, 1, false);
	rig_open(&second, 0);
	assert_int_equal(((struct comm *)second.send)->path_count, 2);
	assert_false(is_up(second.send, 1));
	register_all(&second, &meanwhile, 1);
	exchange(&second, &meanwhile);
	assert_int_equal(device_id(1), id);
	rig_fault("heal host=0 rail=1");
	await(&first, 1, true);
	await(&second, 1, true);
	assert_int_not_equal(device_id(1), id);
	await_fds(fds);
	rig_fault("port_down host=0 rail=0");
	await(&first, 0, false);
	await(&second, 0, false);
	register_all(&first, &after, 1);
	exchange(&first, &before);
	exchange(&first, &after);
	exchange(&second, &meanwhile);
	rig_fault("port_up host=0 rail=0");
	deregister_all(&first, &before);
	deregister_all(&first, &after);
	deregister_all(&second, &meanwhile);
	rig_close(&second);
	rig_close(&first);
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
}

static void test_failed(void **state)
{
	(void)state;
	use_again("nic_death host=0 rail=1");
}

static void test_replaced(void **state)
{
	(void)state;
	use_again("unplug host=0 rail=1");
}

/* One connection's QP breaks, and nobody tells that the HCA is another one: the other connection's
 * paths are fenced before it is opened. */
static void test_unnoticed(void **state)
{
	struct rig_pair pairs[2];
	struct buffers bufs[2];
	uint64_t bound_ns = bound_begin();
	uint32_t id;

	(void)state;
	assert_int_equal(plugin_init(NULL, NULL), 0);
	for (unsigned int i = 0; i < 2; i++) {
		rig_open(&pairs[i], 0);
		register_all(&pairs[i], &bufs[i], i);
		exchange(&pairs[i], &bufs[i]);
	}
	id = device_id(1);
	rig_fault("event_delay host=0 rail=1 delay_ms=60000");
	rig_fault("unplug host=0 rail=1");
	rig_fault("qp_fatal host=0 rail=1 nth=1");
	while (is_up(pairs[0].send, 1) == is_up(pairs[1].send, 1)) {
		pause_until(bound_ns); /* one of them has found out */
	}
	rig_fault("heal host=0 rail=1");
	await(&pairs[0], 1, true);
	await(&pairs[1], 1, true);
	while (device_id(1) == id) {
		pause_until(bound_ns);
	}
	rig_fault("port_down host=0 rail=0");
	for (unsigned int i = 0; i < 2; i++) {
		await(&pairs[i], 0, false);
		await(&pairs[i], 1, true);
		exchange(&pairs[i], &bufs[i]);
	}
	rig_fault("port_up host=0 rail=0");
	for (unsigned int i = 0; i < 2; i++) {
		deregister_all(&pairs[i], &bufs[i]);
		rig_close(&pairs[i]);
	}
	plugin_finalize();
}

/* While a connection is being made, at whatever step. */
static void test_while_opening(void **state)
{
	struct rig_pair first, second;
	struct buffers bufs, other;

	(void)state;
	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_open(&first, 0);
	register_all(&first, &bufs, 0);
	for (unsigned int i = 0; i < 8; i++) {
		char rule[96];

		(void)snprintf(rule, sizeof(rule), "block host=0 rail=1 call=%s delay_ms=%u",
			       i % 2 ? "create_qp" : "modify_qp", 1 + i * 4);
		rig_fault(rule);
		rig_listen(&second, 0);
		(void)plugin_connect(0, -1, second.handle, &second.send);
		rig_fault(i % 4 < 2 ? "unplug host=0 rail=1" : "nic_death host=0 rail=1");
		rig_fault("heal host=0 rail=1");
		rig_connect(&second, 0);
		plugin_close_listen(second.listen);
		register_all(&second, &other, 1);
		exchange(&second, &other);
		await(&first, 1, true);
		await(&second, 1, true);
		rig_fault("port_down host=0 rail=0");
		await(&second, 0, false);
		exchange(&second, &other);
		exchange(&first, &bufs);
		rig_fault("port_up host=0 rail=0");
		await(&first, 0, true);
		deregister_all(&second, &other);
		rig_close(&second);
	}
	deregister_all(&first, &bufs);
	rig_close(&first);
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
}

/* Holds the worker that makes connections, from a step of theirs on. */
static struct gate {
	struct worker_job job;
	_Atomic bool is_shut, is_reached;
} gate;

static void wait_at_gate(void *arg)
{
	(void)arg;
	atomic_store(&gate.is_reached, true);
	while (atomic_load(&gate.is_shut)) {
		rig_pause();
	}
}

/* Between the moment in which the connector tells its keys, and its queue pairs. */
static void test_between_steps(void **state)
{
	struct rig_pair first, second;
	struct buffers bufs, other;
	uint64_t bound_ns = bound_begin();
	uint32_t id;

	(void)state;
	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_open(&first, 0);
	register_all(&first, &bufs, 0);
	id = device_id(1);
	rig_listen(&second, 0);
	assert_int_equal(plugin_connect(0, -1, second.handle, &second.send), 0);
	gate = (struct gate){.job = {.fn = wait_at_gate}, .is_shut = true};
	worker_post(runtime_instance()->setup, &gate.job); /* right behind the first step */
	while (!atomic_load(&gate.is_reached)) {
		pause_until(bound_ns);
	}
	rig_fault("nic_death host=0 rail=1");
	await(&first, 1, false);
	rig_fault("heal host=0 rail=1");
	await(&first, 1, true);
	assert_int_not_equal(device_id(1), id);
	atomic_store(&gate.is_shut, false);
	rig_connect(&second, 0);
	plugin_close_listen(second.listen);
	register_all(&second, &other, 1);
	exchange(&second, &other);
	await(&second, 1, true);
	rig_fault("port_down host=0 rail=0");
	await(&second, 0, false);
	exchange(&second, &other);
	rig_fault("port_up host=0 rail=0");
	deregister_all(&second, &other);
	deregister_all(&first, &bufs);
	rig_close(&second);
	rig_close(&first);
	plugin_finalize();
}

/* The loop does nothing until it is let go, and some time more. */
static struct hold {
	sem_t reached, let_go;
} hold;

static void hold_loop(void *arg)
{
	const struct timespec late = {.tv_nsec = LATE_MS * 1000000};

	(void)arg;
	sem_post(&hold.reached);
	sem_wait(&hold.let_go);
	nanosleep(&late, NULL);
}

/* All connections are closed before the loop has come to watch the new device's events. */
static void test_closed_at_once(void **state)
{
	struct ib_rail *rail;
	struct rig_pair pair;
	uint64_t bound_ns;
	uint32_t id;

	(void)state;
	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_open(&pair, 0);
	rail = &runtime_instance()->rails->rails[1];
	id = device_id(1);
	rig_fault("nic_death host=0 rail=1");
	await(&pair, 1, false);
	sem_init(&hold.reached, 0, 0);
	sem_init(&hold.let_go, 0, 0);
	assert_int_equal(oob_loop_post(runtime_instance()->loop, hold_loop, NULL), 0);
	sem_wait(&hold.reached);
	rig_fault("heal host=0 rail=1");
	for (bound_ns = bound_begin(); device_id(1) == id; pause_until(bound_ns)) {
		(void)reopen_refresh(rail); /* as an attempt to rejoin does */
	}
	sem_post(&hold.let_go);
	rig_close(&pair);
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failed),        cmocka_unit_test(test_replaced),
		cmocka_unit_test(test_unnoticed),     cmocka_unit_test(test_while_opening),
		cmocka_unit_test(test_between_steps), cmocka_unit_test(test_closed_at_once),
	};

	return cmocka_run_group_tests(tests, begin, rig_end);
}
