/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Acknowledgements that wait for a receive to carry them leave all the same when NCCL falls silent,
 * at either end. Both ends are in this process.
 */

#include "core_rig.h"
#include "plugin/comm.h"

enum {
	LEN = 64,
	STREAM_MS = 20000, /* at most, until acknowledgements wait */
	SILENT_MS = 200,   /* shorter than a tick of 250 ms; some 2 are usual */
};

static struct rig_pair pair;
static uint8_t from[LEN], to[LEN];
static void *send_mh, *recv_mh;
static void *recv_req; /* the next receive, posted ahead */

static void open_pair(void)
{
	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_open(&pair, 0);
	assert_int_equal(plugin_reg_mr(pair.send, from, LEN, NCCL_PTR_HOST, &send_mh), 0);
	assert_int_equal(plugin_reg_mr(pair.recv, to, LEN, NCCL_PTR_HOST, &recv_mh), 0);
	recv_req = rig_irecv(&pair, to, LEN, recv_mh);
}

static void close_send(void)
{
	if (pair.send) {
		plugin_dereg_mr(pair.send, send_mh);
		plugin_close_send(pair.send);
		pair.send = NULL;
	}
}

static void close_recv(void)
{
	if (pair.recv) {
		plugin_dereg_mr(pair.recv, recv_mh);
		plugin_close_recv(pair.recv);
		pair.recv = NULL;
	}
}

static void close_pair(void)
{
	close_send();
	close_recv();
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
}

static void finish(void *request, unsigned int bound_ms)
{
	uint64_t start_ns = clock_mono_ns();
	int done = 0, size = -1;

	while (!done) {
		assert_int_equal(plugin_test(request, &done, &size), 0);
		assert_in_range(rig_ms_since(start_ns), 0, bound_ms);
	}
	assert_int_equal(size, LEN);
}

/* Does something that has arrived wait to be acknowledged? */
static bool waits(void)
{
	struct comm *comm = pair.recv;
	bool is_so;

	lock_take(&comm->lock);
	is_so = comm->rx.book.next_seq > comm->rx.acked_seq;
	comm_unlock(comm);
	return is_so;
}

/* Until a message has just arrived and its acknowledgement waits. Returns its send. */
static void *stream(void)
{
	uint64_t start_ns = clock_mono_ns();

	for (;;) {
		void *send_req = rig_isend(&pair, from, LEN, send_mh);

		finish(recv_req, RIG_WAIT_MS);
		if (waits()) {
			return send_req;
		}
		recv_req = rig_irecv(&pair, to, LEN, recv_mh);
		finish(send_req, RIG_WAIT_MS);
		assert_in_range(rig_ms_since(start_ns), 0, STREAM_MS);
	}
}

static void test_receiver_silent(void **state)
{
	(void)state;
	open_pair();
	finish(stream(), SILENT_MS);
	assert_false(waits());
	/* And once more, after as many as the wait in vain asks for. */
	recv_req = rig_irecv(&pair, to, LEN, recv_mh);
	finish(stream(), SILENT_MS);
	close_pair();
}

/* Nobody calls at all for a while: then both books say the same. */
static void test_both_silent(void **state)
{
	const struct timespec pause = {.tv_nsec = SILENT_MS * 1000000};
	void *send_req;

	(void)state;
	open_pair();
	send_req = stream();
	nanosleep(&pause, NULL);
	assert_false(waits());
	finish(send_req, SILENT_MS);
	close_pair();
}

/* CLOSE says what the receiver has, and closing does not wait for a round. */
static void test_receiver_closes(void **state)
{
	void *send_req;

	(void)state;
	open_pair();
	send_req = stream();
	close_recv();
	finish(send_req, RIG_WAIT_MS);
	close_pair();
}

static void test_sender_closes(void **state)
{
	(void)state;
	open_pair();
	(void)stream();
	close_send();
	close_pair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_receiver_silent),
		cmocka_unit_test(test_both_silent),
		cmocka_unit_test(test_receiver_closes),
		cmocka_unit_test(test_sender_closes),
	};

	return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
