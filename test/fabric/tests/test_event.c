/* SPDX-License-Identifier: Apache-2.0 */

/* Asynchronous events that come late, twice, for nothing, or in a train. */

#include "test/fabric/tests/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void install(struct rig *rig, const char *rule)
{
	char why[200] = "";

	if (fabric_ctl_fault(rig->ctl, rule, NULL, why, sizeof(why)) != 0) {
		fprintf(stderr, "%s: %s\n", rule, why);
		_exit(1);
	}
}

static enum ibv_port_state port_state(struct rig *rig)
{
	struct ibv_port_attr attr;

	CHECK(ibv_query_port(rig->context, 1, &attr) == 0);
	return attr.state;
}

static void peer(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_barrier(rig);
	rig_no_event(rig, 0);
	rig_close(rig);
}

static void leave(struct rig *rig)
{
	rig_barrier(rig);
	rig_close(rig);
}

/* The write that must still succeed: nothing but an event happened. */
static void moves(struct rig *rig)
{
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 7, 0, 1000) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
}

static void late_event(struct rig *rig)
{
	uint64_t start_ns;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	install(rig, "event_delay host=0 rail=0 delay_ms=150");
	start_ns = rig_now_ns();
	install(rig, "port_down host=0 rail=0");
	CHECK(port_state(rig) == IBV_PORT_DOWN);
	CHECK(!rig_has_event(rig));
	install(rig, "heal host=0 rail=0"); /* its own event keeps its place in the queue */
	CHECK(rig_event(rig) == IBV_EVENT_PORT_ERR);
	CHECK(rig_now_ns() - start_ns >= 150000000ull);
	CHECK(port_state(rig) == IBV_PORT_ACTIVE);
	CHECK(rig_event(rig) == IBV_EVENT_PORT_ACTIVE);
	install(rig, "event_twice host=0 rail=0");
	install(rig, "port_down host=0 rail=0");
	CHECK(rig_event(rig) == IBV_EVENT_PORT_ERR);
	CHECK(rig_event(rig) == IBV_EVENT_PORT_ERR);
	install(rig, "heal host=0 rail=0");
	CHECK(rig_event(rig) == IBV_EVENT_PORT_ACTIVE);
	rig_no_event(rig, 5);
	leave(rig);
}

static void groundless(struct rig *rig)
{
	struct ibv_async_event event;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	install(rig, "event host=0 rail=0 type=port_err");
	CHECK(rig_event(rig) == IBV_EVENT_PORT_ERR);
	CHECK(port_state(rig) == IBV_PORT_ACTIVE);
	moves(rig);
	install(rig, "event host=0 rail=0 type=port_err port=2");
	CHECK(ibv_get_async_event(rig->context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_PORT_ERR && event.element.port_num == 2);
	ibv_ack_async_event(&event);
	install(rig, "event host=0 rail=0 type=device_fatal");
	CHECK(rig_event(rig) == IBV_EVENT_DEVICE_FATAL);
	install(rig, "event host=0 rail=0 type=gid_change");
	CHECK(rig_event(rig) == IBV_EVENT_GID_CHANGE);
	moves(rig);
	leave(rig);
}

static void fatal_qp(struct rig *rig)
{
	struct ibv_async_event event;
	struct ibv_wc wc;

	rig_open(rig, 0);
	for (uint32_t i = 0; i < 3; i++) {
		rig_connect(rig, i, &rig_defaults);
	}
	CHECK(rig_post_recv(rig, 1, 5, 0, 0) == 0);
	install(rig, "qp_fatal host=0 rail=0 nth=2");
	CHECK(ibv_get_async_event(rig->context, &event) == 0);
	CHECK(event.event_type == IBV_EVENT_QP_FATAL && event.element.qp == rig->qps[1]);
	ibv_ack_async_event(&event);
	wc = rig_poll(rig);
	CHECK(wc.wr_id == 5 && wc.status == IBV_WC_WR_FLUSH_ERR);
	moves(rig);
	CHECK(rig_post(rig, 1, IBV_WR_RDMA_WRITE, 8, 0, 1000) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_WR_FLUSH_ERR);
	leave(rig);
}

static void fatal_peer(struct rig *rig)
{
	rig_open(rig, 0);
	for (uint32_t i = 0; i < 3; i++) {
		rig_connect(rig, i, &rig_defaults);
	}
	leave(rig);
}

static void flapping(struct rig *rig)
{
	uint64_t start_ns;
	struct fabric_fired fired;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	start_ns = rig_now_ns();
	install(rig, "flap host=0 rail=0 count=3 down_ms=20 up_ms=30 ms=10");
	CHECK(!rig_has_event(rig));
	for (int i = 0; i < 3; i++) {
		CHECK(rig_event(rig) == IBV_EVENT_PORT_ERR);
		CHECK(rig_event(rig) == IBV_EVENT_PORT_ACTIVE);
	}
	CHECK(rig_now_ns() - start_ns >= (10 + 3 * 20 + 2 * 30) * 1000000ull);
	rig_no_event(rig, 60);
	CHECK(fabric_ctl_fired_count(rig->ctl) == 6);
	CHECK(fabric_ctl_fired(rig->ctl, 5, &fired) == 0 && fired.rule_idx == 0);
	moves(rig);
	leave(rig);
}

static void run(void (*host0)(struct rig *), void (*host1)(struct rig *))
{
	struct rig_case c = {.host0 = host0, .host1 = host1};

	assert_int_equal(rig_run(&c), 0);
}

static void test_late(void **state)
{
	(void)state;
	run(late_event, peer);
}

static void test_groundless(void **state)
{
	(void)state;
	run(groundless, peer);
}

static void test_fatal(void **state)
{
	(void)state;
	run(fatal_qp, fatal_peer);
}

static void test_flap(void **state)
{
	(void)state;
	run(flapping, peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_groundless),
		cmocka_unit_test(test_fatal),
		cmocka_unit_test(test_flap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
