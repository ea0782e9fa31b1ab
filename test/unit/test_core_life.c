/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Life of listeners and connections: threads and descriptors come and go with them (P11), whatever
 * state they are closed in, also when NCCL forgets a connection that is half made.
 */

#include "core_rig.h"
#include "plugin/ack_list.h"

#include <errno.h>

/* Every kind of end leaves nothing behind. */
static void assert_nothing_left(unsigned int fds)
{
	assert_int_equal(rig_threads(), 0);
	assert_int_equal(rig_fds(), fds);
	assert_int_equal(atomic_load(&ack_list_open_count), 0);
	assert_int_equal(atomic_load(&ack_list_count), 0);
}

static void test_reload(void **state)
{
	struct rig_pair pair;
	unsigned int fds = 0;

	(void)state;
	for (unsigned int i = 0; i < 5; i++) {
		assert_int_equal(plugin_init(NULL, NULL), 0);
		rig_open(&pair, (int)(i % 2));
		assert_in_range(rig_threads(), 1, 64);
		rig_close(&pair);
		plugin_finalize();
		fds = i == 0 ? rig_fds() : fds;
		assert_nothing_left(fds);
	}
}

/* Up to v10 nobody finalizes: the same without. */
static void test_reload_v8(void **state)
{
	struct rig_pair pair;
	unsigned int fds = 0;

	(void)state;
	for (unsigned int i = 0; i < 5; i++) {
		assert_int_equal(plugin_init(NULL, NULL), 0);
		rig_open(&pair, 0);
		rig_close(&pair);
		fds = i == 0 ? rig_fds() : fds;
		assert_nothing_left(fds);
	}
	for (unsigned int i = 0; i < 5; i++) {
		plugin_finalize();
	}
	plugin_finalize(); /* one too many */
	assert_int_equal(rig_threads(), 0);
}

/* The user of the runtime outlives the last finalize. */
static void test_finalize_first(void **state)
{
	struct rig_pair pair;

	(void)state;
	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_open(&pair, 0);
	plugin_finalize();
	rig_close(&pair);
	assert_int_equal(rig_threads(), 0);
}

static void test_no_listener(void **state)
{
	struct rig_pair pair, other;
	uint64_t start_ns;
	void *send = NULL;
	int rc = 0;

	(void)state;
	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_listen(&other, 0); /* the process is still there */
	rig_listen(&pair, 0);
	plugin_close_listen(pair.listen);
	start_ns = clock_mono_ns();
	while (rc == 0 && !send) {
		rc = plugin_connect(0, -1, pair.handle, &send);
		rig_pause();
	}
	assert_int_equal(rc, -ECONNREFUSED);
	assert_null(send);
	assert_in_range(rig_ms_since(start_ns), 0, 2000);
	plugin_close_listen(other.listen);
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
}

/* NCCL aborted: it never asks for the connection again and never closes it. */
static void test_forgotten_connect(void **state)
{
	struct rig_pair pair;
	uint64_t start_ns;

	(void)state;
	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_listen(&pair, 0);
	assert_int_equal(plugin_connect(0, -1, pair.handle, &pair.send), 0);
	while (!pair.recv) {
		assert_int_equal(plugin_accept(pair.listen, &pair.recv), 0);
		rig_pause();
	}
	plugin_close_recv(pair.recv);
	start_ns = clock_mono_ns();
	plugin_close_listen(pair.listen);
	plugin_finalize();
	assert_in_range(rig_ms_since(start_ns), 0, 1500);
	assert_int_equal(rig_threads(), 0);
}

/* As above, but nobody ever finalizes: it is let go of after a while. */
static void test_forgotten_v8(void **state)
{
	struct rig_pair pair;
	uint64_t start_ns = clock_mono_ns();
	void *send = NULL;

	(void)state;
	assert_int_equal(setenv("BRAID_CONNECT_TIMEOUT_MS", "500", 1), 0);
	assert_int_equal(plugin_init(NULL, NULL), 0);
	unsetenv("BRAID_CONNECT_TIMEOUT_MS");
	rig_listen(&pair, 0);
	assert_int_equal(plugin_connect(0, -1, pair.handle, &send), 0);
	plugin_close_listen(pair.listen);
	while (rig_threads() > 0) {
		rig_pause();
		assert_in_range(rig_ms_since(start_ns), 0, 10000);
	}
	/* and asking for it after all is an error, not a crash */
	assert_int_equal(plugin_connect(0, -1, pair.handle, &send), -ETIMEDOUT);
	plugin_finalize();
}

/* The listener closes while the handshake of a peer is under way. */
static void test_close_listen_early(void **state)
{
	struct rig_pair pair;
	uint64_t start_ns;
	int rc = 0;

	(void)state;
	assert_int_equal(plugin_init(NULL, NULL), 0);
	for (unsigned int i = 0; i < 20; i++) {
		rig_listen(&pair, 0);
		assert_int_equal(plugin_connect(0, -1, pair.handle, &pair.send), 0);
		for (unsigned int j = 0; j < i; j++) {
			rig_pause();
		}
		start_ns = clock_mono_ns();
		plugin_close_listen(pair.listen);
		assert_in_range(rig_ms_since(start_ns), 0, 1500);
		start_ns = clock_mono_ns();
		rc = 0;
		while (rc == 0 && !pair.send) {
			rc = plugin_connect(0, -1, pair.handle, &pair.send);
			rig_pause();
			assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
		}
		/* refused, or it was ready: then its end is told by the first send */
		while (pair.send && rc == 0) {
			void *request = NULL;

			rc = plugin_isend(pair.send, NULL, 0, 0, NULL, &request);
			assert_null(request);
			assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
		}
		assert_int_not_equal(rc, 0);
		if (pair.send) {
			plugin_close_send(pair.send);
		}
	}
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
}

/* Finalized with a listener that NCCL never closes, one connection in its queue. */
static void test_forgotten_listen(void **state)
{
	struct rig_pair pair;

	(void)state;
	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_listen(&pair, 0);
	while (!pair.send) {
		assert_int_equal(plugin_connect(0, -1, pair.handle, &pair.send), 0);
		rig_pause();
	}
	plugin_close_send(pair.send);
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
}

/* Both directions between the same two processes, many connections, closed in any order. */
static void test_many(void **state)
{
	enum {
		COMMS = 60
	};
	static struct rig_pair pairs[COMMS];
	unsigned int fds;

	(void)state;
	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_open(&pairs[0], 0);
	fds = rig_fds();
	for (unsigned int i = 1; i < COMMS; i++) {
		rig_open(&pairs[i], (int)(i % 2));
	}
	assert_in_range(rig_fds(), fds, fds + 4); /* one link a process, not a connection */
	for (unsigned int i = 0; i < COMMS; i++) {
		plugin_close_recv(pairs[i].recv);
		plugin_close_send(pairs[COMMS - 1 - i].send);
	}
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reload),
		cmocka_unit_test(test_reload_v8),
		cmocka_unit_test(test_finalize_first),
		cmocka_unit_test(test_no_listener),
		cmocka_unit_test(test_forgotten_connect),
		cmocka_unit_test(test_forgotten_v8),
		cmocka_unit_test(test_close_listen_early),
		cmocka_unit_test(test_forgotten_listen),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
