/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Paths that are not there when a connection is made: their rail is down, or they can't be
 * connected then. They join it later, by themselves (P10). And what the peer says before this end
 * is READY.
 */

#include "core_rig.h"
#include "plugin/comm.h"
#include "plugin/listen.h"
#include "plugin/runtime.h"
#include "plugin/setup.h"

#include <errno.h>

enum {
	BIG = 4 << 20
};

static uint8_t from[BIG], to[BIG];

static int begin(void **state)
{
	(void)setenv("BRAID_REJOIN_MIN_MS", "5", 1);
	(void)setenv("BRAID_REJOIN_MAX_MS", "50", 1);
	return rig_begin(state);
}

static enum path_state state_of(void *end, unsigned int path)
{
	struct comm *comm = end;
	enum path_state state;

	lock_take(&comm->lock);
	state = comm->end.paths[path].state;
	lock_give(&comm->lock);
	return state;
}

static void await(const struct rig_pair *pair, unsigned int path, enum path_state state)
{
	uint64_t start_ns = clock_mono_ns();

	while (state_of(pair->send, path) != state || state_of(pair->recv, path) != state) {
		rig_pause();
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
}

static void await_port(unsigned int rail, bool up)
{
	uint64_t start_ns = clock_mono_ns();

	while (atomic_load(&runtime_instance()->rails->rails[rail].port_up) != up) {
		rig_pause();
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
}

/* Bytes that are not the last ones, over every path that is up. */
static void exchange(struct rig_pair *pair)
{
	void *send_mh, *recv_mh, *send, *recv;
	int sent = 0, received = 0;

	for (size_t i = 0; i < BIG; i++) {
		from[i] = (uint8_t)(from[i] * 5 + i + 3);
	}
	assert_int_equal(plugin_reg_mr(pair->send, from, BIG, NCCL_PTR_HOST, &send_mh), 0);
	assert_int_equal(plugin_reg_mr(pair->recv, to, BIG, NCCL_PTR_HOST, &recv_mh), 0);
	recv = rig_irecv(pair, to, BIG, recv_mh);
	send = rig_isend(pair, from, BIG, send_mh);
	rig_finish(send, recv, &sent, &received);
	assert_int_equal(received, BIG);
	assert_memory_equal(from, to, BIG);
	assert_int_equal(plugin_dereg_mr(pair->send, send_mh), 0);
	assert_int_equal(plugin_dereg_mr(pair->recv, recv_mh), 0);
}

/* Posted on the path by the sender, ever; the ends of this process are in no hurry to free it. */
static uint32_t posted_on(const struct rig_pair *pair, unsigned int path)
{
	return ((struct comm *)pair->send)->end.paths[path].sq.posted;
}

/* The path whose rail is `rail`. */
static unsigned int path_on(const struct rig_pair *pair, unsigned int rail)
{
	const struct comm *comm = pair->send;

	for (unsigned int p = 0; p < comm->path_count; p++) {
		if (comm->paths[p].rail->idx == rail) {
			return p;
		}
	}
	fail_msg("no path on rail %u", rail);
	return 0;
}

/* A port is down while a connection is made, and mended later: the connection gets its share. */
static void test_port_down_at_open(void **state)
{
	struct rig_pair first, second;
	uint32_t before;
	unsigned int p;

	(void)state;
	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_open(&first, 0); /* from now on events are read */
	rig_fault("port_down host=0 rail=1");
	await_port(1, false);
	rig_open(&second, 0);
	p = path_on(&second, 1);
	assert_int_equal(((struct comm *)second.send)->path_count, 2);
	assert_int_equal(((struct comm *)second.send)->end.active_count, 2);
	assert_int_equal(state_of(second.send, p), PATH_DOWN);
	assert_int_equal(state_of(second.send, 1 - p), PATH_UP);
	exchange(&second);
	rig_fault("port_up host=0 rail=1");
	await(&second, p, PATH_UP);
	before = posted_on(&second, p);
	exchange(&second);
	assert_true(posted_on(&second, p) > before);
	assert_int_equal(((struct comm *)second.send)->end.paths[p].epoch, 1);
	/* and it is what carries everything when the other one goes */
	rig_fault("port_down host=0 rail=0");
	await(&second, 1 - p, PATH_DOWN);
	exchange(&second);
	rig_fault("port_up host=0 rail=0");
	await(&second, 1 - p, PATH_UP);
	rig_close(&second);
	rig_close(&first);
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
}

/* One end can't connect its QP: no path for now, and no error. */
static void test_no_memory_at_open(void **state)
{
	(void)state;
	/* To INIT at the acceptor, at the connector; to RTR and RTS at the connector, at the
	 * acceptor. */
	for (unsigned int nth = 1; nth <= 6; nth++) {
		struct rig_pair pair;
		char rule[64];
		unsigned int p;

		assert_int_equal(plugin_init(NULL, NULL), 0);
		rig_listen(&pair, 0);
		(void)snprintf(rule, sizeof(rule), "enomem host=0 rail=1 call=modify_qp nth=%u",
			       nth);
		rig_fault(rule);
		rig_connect(&pair, 0);
		plugin_close_listen(pair.listen);
		p = path_on(&pair, 1);
		assert_int_equal(((struct comm *)pair.send)->path_count, 2);
		assert_int_equal(((struct comm *)pair.send)->end.paths[p].down_cause,
				 CAUSE_NOT_CONNECTED);
		await(&pair, p, PATH_UP);
		exchange(&pair);
		assert_true(posted_on(&pair, p) > 0);
		rig_close(&pair);
		plugin_finalize();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_port_down_at_open),
		cmocka_unit_test(test_no_memory_at_open),
	};

	return cmocka_run_group_tests(tests, begin, rig_end);
}
