/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A peer process that is killed while a connection to it or from it is being made, at whatever step
 * that may hit (P7): the survivor hears of it within 2 s, and closing leaves nothing (P11).
 */

#include "core_rig.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
	STEPS = 14,
	BOUND_MS = 3000 /* 2 s, and one for a busy machine */
};

static int sock[2];

/* Only before any thread of the plugin runs here. */
static pid_t start_peer(void (*peer)(void))
{
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	pid = fork();
	if (pid == 0) {
		(void)setenv("FABRIC_HOST", "1", 1);
		(void)close(sock[0]);
		if (plugin_init(NULL, NULL) == 0) {
			peer();
		}
		_exit(1);
	}
	(void)close(sock[1]);
	assert_true(pid > 0);
	return pid;
}

static void kill_peer(pid_t pid)
{
	int status;

	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	(void)close(sock[0]);
}

static void listening_peer(void)
{
	struct rig_pair pair = {.listen = NULL};

	if (plugin_listen(0, pair.handle, &pair.listen) ||
	    send(sock[1], pair.handle, sizeof(pair.handle), 0) < 0) {
		return;
	}
	for (;;) {
		if (!pair.recv && plugin_accept(pair.listen, &pair.recv)) {
			return;
		}
		rig_pause();
	}
}

static void connecting_peer(void)
{
	struct rig_pair pair = {.listen = NULL};

	if (recv(sock[1], pair.handle, sizeof(pair.handle), 0) != sizeof(pair.handle)) {
		return;
	}
	for (;;) {
		if (!pair.send && plugin_connect(0, -1, pair.handle, &pair.send)) {
			return;
		}
		rig_pause();
	}
}

/* Steps of a handshake are some 100 us apart, on a busy machine more. */
static void wait_step(unsigned int step)
{
	uint64_t start_ns = clock_mono_ns();

	while (clock_mono_ns() - start_ns < step * step * (NS_PER_MS / 8)) {
	}
}

static void test_acceptor_dies(void **state)
{
	(void)state;
	for (unsigned int step = 0; step < STEPS; step++) {
		struct rig_pair pair = {.listen = NULL};
		pid_t pid = start_peer(listening_peer);
		uint64_t start_ns;
		int rc = 0;

		assert_int_equal(plugin_init(NULL, NULL), 0);
		assert_int_equal(recv(sock[0], pair.handle, sizeof(pair.handle), 0),
				 sizeof(pair.handle));
		assert_int_equal(plugin_connect(0, -1, pair.handle, &pair.send), 0);
		wait_step(step);
		kill_peer(pid);
		start_ns = clock_mono_ns();
		while (!rc) {
			void *request = NULL;

			rc = pair.send ? plugin_isend(pair.send, NULL, 0, 0, NULL, &request)
				       : plugin_connect(0, -1, pair.handle, &pair.send);
			rig_pause();
			assert_in_range(rig_ms_since(start_ns), 0, BOUND_MS);
		}
		print_message("step %u: %s: %s after %u ms\n", step,
			      pair.send ? "connected" : "not connected", strerror(-rc),
			      rig_ms_since(start_ns));
		assert_true(rc == -ECONNRESET || rc == -ECONNREFUSED);
		if (pair.send) {
			plugin_close_send(pair.send);
		}
		plugin_finalize();
		assert_int_equal(rig_threads(), 0);
	}
}

static void test_connector_dies(void **state)
{
	(void)state;
	for (unsigned int step = 0; step < STEPS; step++) {
		pid_t pid = start_peer(connecting_peer);
		struct rig_pair pair;
		uint64_t start_ns;
		int rc = 0;

		assert_int_equal(plugin_init(NULL, NULL), 0);
		rig_listen(&pair, 0);
		assert_int_equal(send(sock[0], pair.handle, sizeof(pair.handle), 0),
				 sizeof(pair.handle));
		wait_step(step + 4);
		kill_peer(pid);
		assert_int_equal(plugin_accept(pair.listen, &pair.recv), 0);
		start_ns = clock_mono_ns();
		plugin_close_listen(pair.listen);
		assert_in_range(rig_ms_since(start_ns), 0, BOUND_MS);
		while (pair.recv && !rc) {
			void *request = NULL, *data = NULL, *mh = NULL;
			size_t size = 0;
			int tag = 0;

			rc = plugin_irecv(pair.recv, 1, &data, &size, &tag, &mh, &request);
			rig_pause();
			assert_in_range(rig_ms_since(start_ns), 0, BOUND_MS);
		}
		print_message("step %u: %s after %u ms\n", step,
			      pair.recv ? "accepted" : "not accepted", rig_ms_since(start_ns));
		if (pair.recv) {
			plugin_close_recv(pair.recv);
		}
		plugin_finalize();
		assert_int_equal(rig_threads(), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_acceptor_dies),
		cmocka_unit_test(test_connector_dies),
	};

	return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
