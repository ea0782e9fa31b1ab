/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Requests at the edges: sizes, windows, memory that is taken away under them, flushing on a rail
 * that dies, handshake frames that nobody should send. Both ends are in this process.
 */

#include "core_rig.h"
#include "plugin/ack_list.h"
#include "plugin/comm.h"
#include "plugin/runtime.h"
#include "plugin/setup.h"

#include <errno.h>
#include <semaphore.h>

enum {
	BIG = 1 << 22,
	QUIET_ROUNDS = 8,
	QUIET_CALLS = 3000, /* well beyond what makes rails quiet */
	QUIET_MS = 60,      /* half of what waiting for a tick takes on average */
};

static uint8_t *from, *to;

/* Both buffers, registered for both ends of a pair. */
struct keys {
	void *send, *recv;
};

static struct rig_pair pair;

static int begin(void **state)
{
	if (rig_begin(state)) {
		return -1;
	}
	from = aligned_alloc(4096, BIG);
	to = aligned_alloc(4096, BIG);
	for (size_t i = 0; from && i < BIG; i++) {
		from[i] = (uint8_t)(i * 7 + i / 251);
	}
	return from && to ? 0 : -1;
}

static int end(void **state)
{
	free(from);
	free(to);
	return rig_end(state);
}

static void open_pair(struct keys *keys, int type)
{
	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_open(&pair, 0);
	memset(to, 0, BIG);
	assert_int_equal(plugin_reg_mr(pair.send, from, BIG, type, &keys->send), 0);
	assert_int_equal(plugin_reg_mr(pair.recv, to, BIG, type, &keys->recv), 0);
}

static void close_pair(const struct keys *keys)
{
	assert_int_equal(plugin_dereg_mr(pair.send, keys->send), 0);
	assert_int_equal(plugin_dereg_mr(pair.recv, keys->recv), 0);
	rig_close(&pair);
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
	assert_int_equal(atomic_load(&ack_list_open_count), 0);
	assert_int_equal(atomic_load(&ack_list_count), 0);
}

static void test_clamp(void **state)
{
	static const size_t sizes[][2] = {
		{0, 0},        {0, 4096},  {1, 1},        {100, 64},
		{BIG, 300001}, {BIG, BIG}, {300001, BIG}, {8, 0},
	};
	struct keys keys;

	(void)state;
	open_pair(&keys, NCCL_PTR_HOST);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t least = sizes[i][0] < sizes[i][1] ? sizes[i][0] : sizes[i][1];
		void *recv, *send;
		int sent = -1, got = -1;

		memset(to, 0xee, BIG);
		recv = rig_irecv(&pair, to, sizes[i][1], sizes[i][1] ? keys.recv : NULL);
		send = rig_isend(&pair, from, sizes[i][0], sizes[i][0] ? keys.send : NULL);
		rig_finish(send, recv, &sent, &got);
		assert_int_equal(sent, least);
		assert_int_equal(got, least);
		assert_memory_equal(from, to, least);
		assert_true(least == BIG || to[least] == 0xee);
	}
	close_pair(&keys);
}

/* A full window and a missing receive are "not now", never an error, and lose nothing. */
static void test_window(void **state)
{
	enum {
		LEN = 1000
	};
	void *recvs[WINDOW_MSGS], *sends[WINDOW_MSGS], *more = NULL;
	size_t len = LEN;
	void *data = to;
	int tag = 0;
	struct keys keys;

	(void)state;
	open_pair(&keys, NCCL_PTR_HOST);
	assert_int_equal(plugin_isend(pair.send, from, LEN, 0, keys.send, &more), 0);
	assert_null(more);
	for (unsigned int i = 0; i < WINDOW_MSGS; i++) {
		recvs[i] = rig_irecv(&pair, to + (size_t)i * LEN, LEN, keys.recv);
	}
	assert_int_equal(plugin_irecv(pair.recv, 1, &data, &len, &tag, &keys.recv, &more), 0);
	assert_null(more);
	for (unsigned int i = 0; i < WINDOW_MSGS; i++) {
		sends[i] = rig_isend(&pair, from + (size_t)i * LEN, LEN, keys.send);
	}
	assert_int_equal(plugin_isend(pair.send, from, LEN, 0, keys.send, &more), 0);
	assert_null(more);
	for (unsigned int i = 0; i < WINDOW_MSGS; i++) {
		int sent = 0, got = 0;

		rig_finish(sends[i], recvs[i], &sent, &got);
		assert_int_equal(got, LEN);
	}
	assert_memory_equal(from, to, (size_t)WINDOW_MSGS * LEN);
	close_pair(&keys);
}

static void wait_ms(unsigned int ms)
{
	uint64_t start_ns = clock_mono_ns();

	while (rig_ms_since(start_ns) < ms) {
		rig_pause();
	}
}

/*
 * ncclCommAbort: memory goes with requests outstanding, part of them not even posted, and time
 * passes before the close. Nothing may touch the registrations or the memory any more.
 */
static void test_abort(void **state)
{
	struct keys keys;
	uint8_t *kept = malloc(BIG);

	(void)state;
	assert_non_null(kept);
	assert_int_equal(setenv("BRAID_PATH_WINDOW_BYTES", "64K", 1), 0);
	open_pair(&keys, NCCL_PTR_HOST);
	unsetenv("BRAID_PATH_WINDOW_BYTES");
	(void)rig_irecv(&pair, to, BIG, keys.recv);
	(void)rig_irecv(&pair, to, BIG, keys.recv);
	(void)rig_isend(&pair, from, BIG, keys.send);
	(void)rig_isend(&pair, from, BIG, keys.send);
	assert_int_equal(plugin_dereg_mr(pair.recv, keys.recv), 0);
	memcpy(kept, to, BIG);
	assert_int_equal(plugin_dereg_mr(pair.send, keys.send), 0);
	wait_ms(600); /* two slow ticks */
	assert_memory_equal(kept, to, BIG);
	free(kept);
	rig_close(&pair);
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
}

static sem_t stopped, go;

static void stop_loop(void *arg)
{
	(void)arg;
	sem_post(&stopped);
	sem_wait(&go);
}

static void *post_flush(struct keys *keys)
{
	int len = BIG;
	void *data = to;
	void *flush = NULL;

	assert_int_equal(plugin_iflush(pair.recv, 1, &data, &len, &keys->recv, &flush), 0);
	assert_non_null(flush);
	return flush;
}

static void finish_flush(void *flush)
{
	uint64_t start_ns = clock_mono_ns();
	int done = 0;

	while (!done) {
		assert_int_equal(plugin_test(flush, &done, NULL), 0);
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
}

/* GPU memory as far as the plugin knows; the HCA dies with the read out, which never comes back. */
static void test_flush_on_dying_rail(void **state)
{
	struct keys keys;
	void *send, *recv, *flush;
	int sent, got;

	(void)state;
	open_pair(&keys, NCCL_PTR_CUDA);
	recv = rig_irecv(&pair, to, BIG, keys.recv);
	send = rig_isend(&pair, from, BIG, keys.send);
	rig_finish(send, recv, &sent, &got);
	finish_flush(post_flush(&keys)); /* all is well */
	/* The event is not looked at before the read is out. */
	assert_int_equal(sem_init(&stopped, 0, 0), 0);
	assert_int_equal(sem_init(&go, 0, 0), 0);
	assert_int_equal(oob_loop_post(runtime_instance()->loop, stop_loop, NULL), 0);
	assert_int_equal(sem_wait(&stopped), 0);
	rig_fault("nic_death host=0 rail=1");
	flush = post_flush(&keys);
	sem_post(&go);
	finish_flush(flush);
	finish_flush(post_flush(&keys)); /* over the other rail */
	close_pair(&keys);
}

/* A rail that has brought nothing for long is looked at all the same, and not by the tick only. */
static void test_quiet_rails(void **state)
{
	struct keys keys;
	uint64_t took_ms = 0;
	int sent, got;

	(void)state;
	open_pair(&keys, NCCL_PTR_HOST);
	for (unsigned int i = 0; i < QUIET_ROUNDS; i++) {
		void *recv = rig_irecv(&pair, to, BIG, keys.recv);
		int done = 0;
		uint64_t start_ns;
		void *send;

		for (unsigned int call = 0; call < QUIET_CALLS; call++) {
			assert_int_equal(plugin_test(recv, &done, &got), 0);
			assert_false(done);
		}
		start_ns = clock_mono_ns();
		send = rig_isend(&pair, from, BIG, keys.send);
		rig_finish(send, recv, &sent, &got);
		took_ms += rig_ms_since(start_ns);
		assert_int_equal(got, BIG);
	}
	assert_in_range(took_ms, 0, QUIET_ROUNDS * QUIET_MS);
	close_pair(&keys);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_clamp),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_quiet_rails),
		cmocka_unit_test(test_flush_on_dying_rail), /* last: the HCA stays dead */
	};

	return cmocka_run_group_tests(tests, begin, end);
}
