/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Handshake frames that no Braid sends: the connection under way fails with a reason, or takes no
 * notice. They are given to a sender that waits for the answer of a process which is not there.
 */

#include "core_rig.h"
#include "plugin/comm.h"
#include "plugin/listen.h"
#include "plugin/runtime.h"
#include "plugin/setup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>

static struct rig_pair pair;
static struct comm *comm;

static enum frame_type expected(void)
{
	enum frame_type type;

	lock_take(&comm->lock);
	type = comm->state == COMM_OPENING ? comm->expect : FRAME_TYPE_COUNT;
	lock_give(&comm->lock);
	return type;
}

/* Until what is under way has been done: FRAME_TYPE_COUNT says that the handshake is over. */
static enum frame_type settle(void)
{
	uint64_t start_ns = clock_mono_ns();

	while (expected() == FRAME_NONE) {
		rig_pause();
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
	return expected();
}

/* A port on which nobody ever says anything. */
static uint16_t silent_port(void)
{
	static uint16_t port;
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(addr);
	int fd;

	if (!port) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
		assert_int_equal(listen(fd, 64), 0);
		assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
		port = ntohs(addr.sin_port);
	}
	return port;
}

/* A sender in the state of having sent OPEN. */
static void begin(void)
{
	struct handle handle;

	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_listen(&pair, 0);
	memcpy(&handle, pair.handle, sizeof(handle));
	handle.addr.port = silent_port();
	memset(&handle.addr.proc, 7, sizeof(handle.addr.proc));
	memcpy(pair.handle, &handle, sizeof(handle));
	assert_int_equal(plugin_connect(0, -1, pair.handle, &pair.send), 0);
	memcpy(&handle, pair.handle, sizeof(handle));
	comm = comm_find(handle.connecting);
	assert_non_null(comm);
	assert_int_equal(settle(), FRAME_OPENED);
}

/* What plugin_connect says of it, and that it leaves nothing behind. */
static int outcome(void)
{
	int rc = 0;

	comm_put(comm);
	rc = plugin_connect(0, -1, pair.handle, &pair.send);
	assert_null(pair.send);
	plugin_close_listen(pair.listen);
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
	return rc;
}

static struct frame opened(void)
{
	struct frame frame = {.type = FRAME_OPENED, .dst_comm = comm->id};

	frame.opened.src_comm = 99;
	frame.opened.rail_count = comm->rail_count;
	memcpy(frame.opened.rails, comm->rail_descs, sizeof(comm->rail_descs));
	frame.opened.path_count = comm->rail_count;
	for (unsigned int i = 0; i < comm->rail_count; i++) {
		frame.opened.paths[i] = (struct frame_path){.local_rail = (uint8_t)i,
							    .remote_rail = (uint8_t)i,
							    .qp = {.qpn = 0x123456 + i, .psn = 1}};
	}
	frame.opened.records.len_bytes = 1 << 20;
	frame.opened.probes.len_bytes = 1 << 20;
	return frame;
}

static void test_too_many_paths(void **state)
{
	struct frame frame;

	(void)state;
	begin();
	frame = opened();
	frame.opened.path_count = comm->rail_count + 1;
	setup_on_frame(comm, &frame);
	assert_int_equal(settle(), FRAME_TYPE_COUNT);
	assert_int_equal(outcome(), -EPROTO);
}

static void test_no_paths(void **state)
{
	struct frame frame;

	(void)state;
	begin();
	frame = opened();
	frame.opened.path_count = 0;
	setup_on_frame(comm, &frame);
	assert_int_equal(settle(), FRAME_TYPE_COUNT);
	assert_int_equal(outcome(), -EPROTO);
}

static void test_rail_out_of_range(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 2; i++) {
		struct frame frame;

		begin();
		frame = opened();
		if (i) {
			frame.opened.paths[0].remote_rail = (uint8_t)comm->rail_count;
		} else {
			frame.opened.paths[0].local_rail = (uint8_t)frame.opened.rail_count;
		}
		setup_on_frame(comm, &frame);
		assert_int_equal(settle(), FRAME_TYPE_COUNT);
		assert_int_equal(outcome(), -EPROTO);
	}
}

static void test_small_rings(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 2; i++) {
		struct frame frame;

		begin();
		frame = opened();
		if (i) {
			frame.opened.records.len_bytes = 64;
		} else {
			frame.opened.probes.len_bytes = 64;
		}
		setup_on_frame(comm, &frame);
		assert_int_equal(settle(), FRAME_TYPE_COUNT);
		assert_int_equal(outcome(), -EPROTO);
	}
}

/* Frames of the other role, of a later step, or twice: no notice is taken. */
static void test_out_of_turn(void **state)
{
	static const enum frame_type types[] = {FRAME_PATHS, FRAME_READY, FRAME_OPEN};
	struct frame frame;

	(void)state;
	begin();
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		frame = (struct frame){.type = types[i], .dst_comm = comm->id};
		setup_on_frame(comm, &frame);
		assert_int_equal(expected(), FRAME_OPENED);
	}
	frame = opened();
	setup_on_frame(comm, &frame);
	setup_on_frame(comm, &frame);
	assert_int_equal(settle(), FRAME_READY);
	setup_on_frame(comm, &frame);
	assert_int_equal(expected(), FRAME_READY);
	assert_int_equal(comm->path_count, comm->rail_count);
	frame = (struct frame){.type = FRAME_REFUSED, .refused = {.err = -ENODEV, .reason = "no"}};
	setup_on_frame(comm, &frame);
	assert_int_equal(settle(), FRAME_TYPE_COUNT);
	assert_int_equal(outcome(), -ENODEV);
}

/* Bits of paths that are not there make no path. */
static void test_ready_of_nothing(void **state)
{
	struct frame frame;

	(void)state;
	begin();
	frame = opened();
	setup_on_frame(comm, &frame);
	assert_int_equal(settle(), FRAME_READY);
	frame = (struct frame){.type = FRAME_READY, .dst_comm = comm->id};
	frame.ready.path_mask = ~((1u << comm->path_count) - 1);
	setup_on_frame(comm, &frame);
	assert_int_equal(settle(), FRAME_TYPE_COUNT);
	assert_int_equal(outcome(), -EHOSTUNREACH);
}

/* A reason that says nothing bad is one all the same. */
static void test_refused_without_error(void **state)
{
	struct frame frame;

	(void)state;
	begin();
	frame = (struct frame){.type = FRAME_REFUSED, .refused = {.err = 5}};
	setup_on_frame(comm, &frame);
	assert_int_equal(outcome(), -EPROTO);
}

static void test_closed_by_the_peer(void **state)
{
	struct frame frame;

	(void)state;
	begin();
	frame = opened();
	setup_on_frame(comm, &frame);
	frame = (struct frame){.type = FRAME_CLOSE, .dst_comm = comm->id};
	setup_on_frame(comm, &frame);
	assert_int_equal(settle(), FRAME_TYPE_COUNT);
	assert_int_equal(outcome(), -ECONNABORTED);
}

/* The acceptor, READY first, fences a path at once: that must not be lost on the way. */
static void test_before_ready(void **state)
{
	struct frame frame;

	(void)state;
	begin();
	frame = opened();
	setup_on_frame(comm, &frame);
	assert_int_equal(settle(), FRAME_READY);
	frame = (struct frame){.type = FRAME_FENCE, .dst_comm = comm->id};
	frame.fence = (struct frame_fence){.path = 1, .cause = CAUSE_PORT_DOWN, .epoch = 1};
	watch_link_handlers.frame(NULL, comm->link, &frame);
	frame = (struct frame){.type = FRAME_READY, .dst_comm = comm->id};
	frame.ready.path_mask = 3;
	setup_on_frame(comm, &frame);
	assert_int_equal(settle(), FRAME_TYPE_COUNT);
	lock_take(&comm->lock);
	assert_int_equal(comm->state, COMM_READY);
	assert_int_equal(comm->end.paths[0].state, PATH_UP);
	assert_int_not_equal(comm->end.paths[1].state, PATH_UP);
	assert_int_equal(comm->end.paths[1].cause, CAUSE_PORT_DOWN);
	lock_give(&comm->lock);
	comm_put(comm);
	assert_int_equal(plugin_connect(0, -1, pair.handle, &pair.send), 0);
	plugin_close_send(pair.send);
	plugin_close_listen(pair.listen);
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
}

/* A peer that never stops talking before it is READY. */
static void test_flood_before_ready(void **state)
{
	struct frame frame;

	(void)state;
	begin();
	frame = (struct frame){.type = FRAME_FENCE, .dst_comm = comm->id};
	frame.fence.epoch = 1;
	for (unsigned int i = 0; i < 1000; i++) {
		watch_link_handlers.frame(NULL, comm->link, &frame);
	}
	assert_int_equal(comm->early_count, 4 * PATHS_MAX);
	assert_int_equal(settle(), FRAME_TYPE_COUNT);
	assert_int_equal(outcome(), -ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_too_many_paths),
		cmocka_unit_test(test_no_paths),
		cmocka_unit_test(test_rail_out_of_range),
		cmocka_unit_test(test_small_rings),
		cmocka_unit_test(test_out_of_turn),
		cmocka_unit_test(test_ready_of_nothing),
		cmocka_unit_test(test_refused_without_error),
		cmocka_unit_test(test_closed_by_the_peer),
		cmocka_unit_test(test_before_ready),
		cmocka_unit_test(test_flood_before_ready),
	};

	return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
