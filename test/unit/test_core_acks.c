/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Acknowledgements that wait for a receive to carry them leave all the same: after so many calls,
 * when no request is open any more, when nobody calls, and with a close. Both ends are in this
 * process, so a send that is not done is an open request as well.
 */

#include "core_rig.h"
#include "plugin/ack_list.h"
#include "plugin/comm.h"

enum {
	LEN = 64,
	CALLS = 200,      /* a round of calls, and what it takes for a word to land */
	SILENT_MS = 1000, /* some ticks of 250 ms */
	CLOSES = 8,
	CLOSE_MS = 60, /* half of what waiting for a tick takes on average */
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
	assert_int_equal(atomic_load(&ack_list_open_count), 0);
	assert_int_equal(atomic_load(&ack_list_count), 0);
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

/* A message that has arrived, its acknowledgement waiting. Returns its send. */
static void *begin(void)
{
	void *send_req;

	open_pair();
	send_req = rig_isend(&pair, from, LEN, send_mh);
	finish(recv_req, RIG_WAIT_MS);
	assert_true(waits());
	return send_req;
}

/* Calls of another comm, however few it takes; far sooner than a tick. */
static void test_calls(void **state)
{
	uint64_t start_ns = clock_mono_ns();
	void *send_req = begin();
	int done = 0, size;

	(void)state;
	for (unsigned int i = 0; waits(); i++) {
		assert_in_range(i, 0, CALLS);
		assert_int_equal(plugin_test(send_req, &done, &size), 0);
		assert_int_equal(done, 0); /* nothing has told the sender yet */
	}
	finish(send_req, RIG_WAIT_MS);
	assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	close_pair();
}

/* The next receive carries it, and no word is posted. */
static void test_entry(void **state)
{
	struct comm *comm;
	void *send_req = begin();
	uint32_t posted;

	(void)state;
	comm = pair.recv;
	posted = wrq_next(&comm->end.paths[0].sq);
	recv_req = rig_irecv(&pair, to, LEN, recv_mh);
	assert_false(waits());
	finish(send_req, RIG_WAIT_MS);
	assert_int_equal(wrq_next(&comm->end.paths[0].sq), posted + 1);
	close_pair();
}

/* The other end is another process, and here nothing else is open: who would call? */
static void test_nothing_else_open(void **state)
{
	void *send_req;

	(void)state;
	open_pair();
	send_req = rig_isend(&pair, from, LEN, send_mh);
	ack_list_unexpect();
	finish(recv_req, RIG_WAIT_MS);
	assert_false(waits());
	ack_list_expect();
	finish(send_req, RIG_WAIT_MS);
	close_pair();
}

/* The call that ends the last open request takes what waits along. */
static void test_last_one_ends(void **state)
{
	void *send_req = begin();

	(void)state;
	ack_list_unexpect();
	ack_list_turn();
	assert_false(waits());
	ack_list_expect();
	finish(send_req, RIG_WAIT_MS);
	close_pair();
}

/* Nobody calls at all: the loop thread's tick, and it leaves nothing on the list. */
static void test_silence(void **state)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	uint64_t start_ns = clock_mono_ns();
	void *send_req = begin();

	(void)state;
	while (waits() || atomic_load(&ack_list_count)) {
		assert_in_range(rig_ms_since(start_ns), 0, SILENT_MS);
		nanosleep(&pause, NULL);
	}
	finish(send_req, RIG_WAIT_MS);
	close_pair();
}

/* CLOSE says what the receiver has, and closing does not wait for ticks. */
static void test_receiver_closes(void **state)
{
	uint64_t closing_ms = 0;

	(void)state;
	for (unsigned int i = 0; i < CLOSES; i++) {
		void *send_req = begin();
		uint64_t start_ns = clock_mono_ns();

		close_recv();
		closing_ms += rig_ms_since(start_ns);
		finish(send_req, RIG_WAIT_MS);
		close_pair();
	}
	assert_in_range(closing_ms, 0, CLOSES * CLOSE_MS);
}

static void test_sender_closes(void **state)
{
	(void)state;
	(void)begin();
	close_send();
	close_pair();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_entry),
		cmocka_unit_test(test_nothing_else_open),
		cmocka_unit_test(test_last_one_ends),
		cmocka_unit_test(test_silence),
		cmocka_unit_test(test_receiver_closes),
		cmocka_unit_test(test_sender_closes),
	};

	return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
