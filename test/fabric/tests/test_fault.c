/* SPDX-License-Identifier: Apache-2.0 */

/* Each kind of fault, at its exact place: what landed, byte for byte, and what either end sees. */

#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KB 1024u

static void setup(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
}

static void install(struct rig *rig, const char *rule)
{
	char why[200] = "";

	if (fabric_ctl_fault(rig->ctl, rule, NULL, why, sizeof(why)) != 0) {
		fprintf(stderr, "%s: %s\n", rule, why);
		_exit(1);
	}
}

/* The send at the head fails with `status`, the other `flushed` ones come out in order. */
static void expect_failure(struct rig *rig, uint64_t first_id, uint32_t flushed,
			   enum ibv_wc_status status)
{
	struct ibv_wc wc = rig_poll(rig);

	CHECK(wc.wr_id == first_id && wc.status == status);
	CHECK(wc.qp_num == rig->qps[0]->qp_num);
	for (uint32_t i = 1; i <= flushed; i++) {
		wc = rig_poll(rig);
		CHECK(wc.wr_id == first_id + i && wc.status == IBV_WC_WR_FLUSH_ERR);
	}
}

/* Is there a line with `text` in fired.log? */
static int log_has(struct rig *rig, const char *text)
{
	char path[256];
	char line[512] = "";
	FILE *file;
	int found = 0;

	snprintf(path, sizeof(path), "%s/fired.log", rig->dir);
	file = fopen(path, "r");
	CHECK(file != NULL);
	while (fgets(line, sizeof(line), file) != NULL) {
		found |= strstr(line, text) != NULL && line[strlen(line) - 2] == '}';
	}
	fclose(file);
	return found;
}

/* cut after 300001 bytes, in the middle of the second of three writes of 200 KB. */
static void cut_send(struct rig *rig)
{
	struct fabric_counters counters;
	struct fabric_fired fired;
	struct ibv_wc wc;
	uint64_t start_ns;

	setup(rig);
	rig_fill(rig, 1, 0, 600 * KB);
	install(rig, "cut host=0 rail=0 dir=tx bytes=300001");
	start_ns = rig_now_ns();
	for (uint32_t i = 0; i < 3; i++) {
		CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, i, i * 200 * KB, 200 * KB) == 0);
	}
	wc = rig_poll(rig);
	CHECK(wc.wr_id == 0 && wc.status == IBV_WC_SUCCESS);
	expect_failure(rig, 1, 1, IBV_WC_RETRY_EXC_ERR);
	/* (3 + 1) tries of 4.096 us * 2^8; a busy machine makes it later, never earlier */
	CHECK(rig_now_ns() - start_ns > 4194000);
	CHECK(fabric_ctl_fired(rig->ctl, 0, &fired) == 0);
	CHECK(fired.seen == 300001 && fired.tx_bytes == 300001);
	CHECK(log_has(rig, "\"action\":\"cut\",\"host\":0,\"rail\":0,\"seen\":300001"));
	CHECK(fabric_ctl_counters(rig->ctl, 0, 0, &counters) == 0);
	CHECK(counters.tx_bytes == 300001 && counters.tx_msgs == 1);
	rig_no_event(rig, 0);
	rig_barrier(rig);
	rig_close(rig);
}

static void cut_recv(struct rig *rig)
{
	struct ibv_port_attr port;
	struct ibv_wc wc;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	for (uint64_t i = 0; i < 3; i++) {
		CHECK(rig_post_recv(rig, 0, 100 + i, 0, 0) == 0);
	}
	wc = rig_poll(rig);
	CHECK(wc.wr_id == 100 && wc.status == IBV_WC_SUCCESS && wc.byte_len == 200 * KB);
	rig_barrier(rig);
	CHECK(rig_holds(rig, 1, 0, 300001));
	CHECK(rig_blank(rig, 300001, 600 * KB - 300001));
	rig_quiet(rig, 5);
	CHECK(ibv_query_port(rig->context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
	rig_close(rig);
}

/* Every fault that comes as "something after the first imm" is the same game with other rules. */
struct edge_plan {
	const char *rule;
	uint32_t landed; /* bytes at the receiver, of 100 KB + 50 KB */
	uint32_t told;   /* immediates the receiver got */
	uint32_t acked;  /* sends the sender saw succeed */
	int sender_dead; /* the sender's own adapter died: nothing comes back at all */
};

static const struct edge_plan *plan;

static void edge_send(struct rig *rig)
{
	struct ibv_wc wc;

	setup(rig);
	rig_fill(rig, 2, 0, 150 * KB);
	install(rig, plan->rule);
	rig_barrier(rig);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 100 * KB) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 100 * KB, 50 * KB) == 0);
	for (uint32_t i = 0; i < plan->acked; i++) {
		wc = rig_poll(rig);
		CHECK(wc.wr_id == i && wc.status == IBV_WC_SUCCESS);
	}
	if (plan->sender_dead) {
		CHECK(rig_event(rig) == IBV_EVENT_DEVICE_FATAL);
		rig_quiet(rig, 20);
		CHECK(rig_qp_error(rig->qps[0]) == EIO);
	} else if (plan->acked < 2) {
		expect_failure(rig, plan->acked, 1 - plan->acked, IBV_WC_RETRY_EXC_ERR);
	}
	rig_barrier(rig);
	rig_close(rig);
}

static void edge_recv(struct rig *rig)
{
	setup(rig);
	CHECK(rig_post_recv(rig, 0, 10, 0, 0) == 0);
	CHECK(rig_post_recv(rig, 0, 11, 0, 0) == 0);
	rig_barrier(rig);
	rig_barrier(rig);
	for (uint32_t i = 0; i < plan->told; i++) {
		struct ibv_wc wc = rig_poll(rig);

		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 10 + i);
		CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && (wc.wc_flags & IBV_WC_WITH_IMM));
		CHECK(wc.imm_data == (i ^ 0x01020304u));
	}
	rig_quiet(rig, 5);
	CHECK(rig_holds(rig, 2, 0, plan->landed));
	CHECK(rig_blank(rig, plan->landed, 150 * KB - plan->landed));
	rig_close(rig);
}

static const struct edge_plan edge_plans[] = {
	{"cut host=0 rail=0 imms=1 edge=before", 0, 0, 0, 0},
	{"cut host=0 rail=0 imms=1 edge=mid", 100 * KB, 0, 0, 0},
	{"cut host=0 rail=0 imms=1 edge=after", 100 * KB, 1, 0, 0},
	{"cut host=1 rail=0 imms=2 edge=before", 100 * KB, 1, 1, 0},
	{"cut host=1 rail=0 imms=2 edge=mid", 150 * KB, 1, 1, 0},
	{"cut host=1 rail=0 imms=2", 150 * KB, 2, 1, 0},
	{"cut host=1 rail=0 dir=rx bytes=102399", 102399, 0, 0, 0},
	{"cut host=1 rail=0 dir=rx bytes=102400", 102400, 0, 0, 0},
	{"cut host=1 rail=0 bytes=1", 1, 0, 0, 0},
	{"cut host=1 rail=0 dir=tx", 150 * KB, 2, 0, 0},
	{"cut host=0 rail=0 dir=rx", 150 * KB, 2, 0, 0},
	{"cut host=0 rail=0 dir=tx", 0, 0, 0, 0},
	{"cut host=1 rail=0 dir=rx", 0, 0, 0, 0},
	{"ack_loss host=0 rail=0", 150 * KB, 2, 0, 0},
	{"ack_loss host=1 rail=0", 150 * KB, 2, 0, 0},
	{"ack_loss host=0 rail=0 dir=tx", 150 * KB, 2, 0, 0},
	{"ack_loss host=1 rail=0 dir=rx", 150 * KB, 2, 0, 0},
	{"ack_loss host=1 rail=0 imms=1 edge=after", 150 * KB, 2, 0, 0},
	{"ack_loss host=1 rail=0 bytes=102401", 150 * KB, 2, 1, 0},
	{"nic_death host=1 rail=0 imms=1 edge=before", 0, 0, 0, 0},
	{"nic_death host=1 rail=0 imms=1 edge=mid", 100 * KB, 0, 0, 0},
	{"nic_death host=1 rail=0 imms=1 edge=after", 100 * KB, 1, 0, 0},
	{"nic_death host=1 rail=0 imms=1 edge=acked_blank", 0, 0, 1, 0},
	{"nic_death host=1 rail=0 imms=1 edge=acked", 100 * KB, 0, 1, 0},
	{"nic_death host=1 rail=0 imms=2 edge=acked", 150 * KB, 1, 2, 0},
	{"nic_death host=1 rail=0 bytes=120000", 120000, 1, 1, 0},
	{"nic_death host=0 rail=0 imms=1 edge=before", 0, 0, 0, 1},
	{"nic_death host=0 rail=0 imms=1 edge=mid", 100 * KB, 0, 0, 1},
	{"nic_death host=0 rail=0 imms=1 edge=after", 100 * KB, 1, 0, 1},
	{"nic_death host=0 rail=0 bytes=120000 dir=tx", 120000, 1, 1, 1},
};

static void test_edges(void **state)
{
	static const struct rig_case c = {.host0 = edge_send, .host1 = edge_recv};

	(void)state;
	for (size_t i = 0; i < sizeof(edge_plans) / sizeof(edge_plans[0]); i++) {
		plan = &edge_plans[i];
		if (rig_run(&c) != 0) {
			fail_msg("%s", plan->rule);
		}
	}
}

static void test_cut_bytes(void **state)
{
	static const struct rig_case c = {.host0 = cut_send, .host1 = cut_recv};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* writes=2: the data is there, the record after it is not. */
static void writes_send(struct rig *rig)
{
	setup(rig);
	rig_fill(rig, 3, 0, 40 * KB);
	install(rig, "cut host=1 rail=0 writes=2");
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 0, 0, 10 * KB) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 1, 10 * KB, 10 * KB) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 20 * KB, 10 * KB) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	expect_failure(rig, 1, 1, IBV_WC_RETRY_EXC_ERR);
	rig_barrier(rig);
	rig_close(rig);
}

static void writes_recv(struct rig *rig)
{
	setup(rig);
	CHECK(rig_post_recv(rig, 0, 10, 0, 0) == 0);
	rig_barrier(rig);
	rig_quiet(rig, 5);
	CHECK(rig_holds(rig, 3, 0, 20 * KB));
	CHECK(rig_blank(rig, 20 * KB, 20 * KB));
	rig_close(rig);
}

static void test_cut_writes(void **state)
{
	static const struct rig_case c = {.host0 = writes_send, .host1 = writes_recv};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* port_down tells its own host and the black hole the other; port_up brings it back in time. */
static void port_send(struct rig *rig)
{
	struct rig_qp_options slow = rig_defaults;
	struct ibv_port_attr port;

	slow.timeout = 12; /* 17 ms a try, 7 retries */
	slow.retry_cnt = 7;
	rig_open(rig, 0);
	rig_connect(rig, 0, &slow);
	rig_fill(rig, 4, 0, 10 * KB);
	install(rig, "port_down host=0 rail=0");
	CHECK(rig_event(rig) == IBV_EVENT_PORT_ERR);
	CHECK(ibv_query_port(rig->context, 1, &port) == 0 && port.state == IBV_PORT_DOWN);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 5, 0, 10 * KB) == 0);
	rig_quiet(rig, 10);
	install(rig, "port_up host=0 rail=0");
	CHECK(rig_event(rig) == IBV_EVENT_PORT_ACTIVE);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	rig_barrier(rig);
	rig_close(rig);
}

static void port_recv(struct rig *rig)
{
	struct rig_qp_options slow = rig_defaults;

	rig_open(rig, 0);
	rig_connect(rig, 0, &slow);
	CHECK(rig_post_recv(rig, 0, 10, 0, 0) == 0);
	rig_no_event(rig, 5);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	rig_no_event(rig, 0);
	CHECK(rig_holds(rig, 4, 0, 10 * KB));
	rig_barrier(rig);
	rig_close(rig);
}

static void test_port_down_up(void **state)
{
	static const struct rig_case c = {.host0 = port_send, .host1 = port_recv};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* ms=T fires by itself with everybody asleep; heal before the last try makes it whole. */
static void ms_send(struct rig *rig)
{
	struct rig_qp_options slow = rig_defaults;
	struct fabric_fired fired;
	uint64_t start_ns;
	uint32_t rule;

	slow.timeout = 12;
	slow.retry_cnt = 7;
	rig_open(rig, 0);
	rig_connect(rig, 0, &slow);
	start_ns = rig_now_ns();
	CHECK(fabric_ctl_fault(rig->ctl, "port_down host=1 rail=0 ms=30", &rule, NULL, 0) == 0);
	CHECK(fabric_ctl_wait_fired(rig->ctl, rule, 5000, &fired) == 0);
	CHECK(fired.t_ns >= start_ns + 30000000);
	rig_fill(rig, 5, 0, 10 * KB);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 5, 0, 10 * KB) == 0);
	rig_quiet(rig, 10);
	install(rig, "heal host=1 rail=0");
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	rig_barrier(rig);
	rig_close(rig);
}

static void ms_recv(struct rig *rig)
{
	setup(rig);
	CHECK(rig_post_recv(rig, 0, 10, 0, 0) == 0);
	CHECK(rig_event(rig) == IBV_EVENT_PORT_ERR);
	CHECK(rig_event(rig) == IBV_EVENT_PORT_ACTIVE);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	rig_barrier(rig);
	rig_close(rig);
}

static void test_ms_heal(void **state)
{
	static const struct rig_case c = {.host0 = ms_send, .host1 = ms_recv};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* Half a message, healed within the retries: the rest follows, once, and the receiver is told once.
 */
static void half_send(struct rig *rig)
{
	struct rig_qp_options slow = rig_defaults;

	slow.timeout = 12;
	slow.retry_cnt = 7;
	rig_open(rig, 0);
	rig_connect(rig, 0, &slow);
	rig_fill(rig, 6, 0, 100 * KB);
	install(rig, "cut host=0 rail=0 bytes=50001");
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 5, 0, 100 * KB) == 0);
	rig_quiet(rig, 10);
	install(rig, "heal host=0 rail=0");
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	rig_barrier(rig);
	rig_close(rig);
}

static void half_recv(struct rig *rig)
{
	setup(rig);
	CHECK(rig_post_recv(rig, 0, 10, 0, 0) == 0);
	CHECK(rig_post_recv(rig, 0, 11, 0, 0) == 0);
	CHECK(rig_poll(rig).byte_len == 100 * KB);
	rig_barrier(rig);
	rig_quiet(rig, 2);
	CHECK(rig_holds(rig, 6, 0, 100 * KB));
	rig_close(rig);
}

static void test_half_then_heal(void **state)
{
	static const struct rig_case c = {.host0 = half_send, .host1 = half_recv};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

static void revive_recv(struct rig *rig);

static struct ibv_device *listed(const char *name, int *count)
{
	struct ibv_device **list = ibv_get_device_list(count);
	struct ibv_device *found = NULL;

	for (int i = 0; i < *count; i++) {
		found = strcmp(ibv_get_device_name(list[i]), name) == 0 ? list[i] : found;
	}
	ibv_free_device_list(list);
	return found;
}

/* One that is unplugged and comes back is another device; who has it open is told that its port is
 * down, and never reaches anything again. */
static void unplug_send(struct rig *rig)
{
	struct rig again = {.host = rig->host, .sock = rig->sock, .dir = rig->dir, .ctl = rig->ctl};
	struct ibv_device *before, *after;
	struct ibv_port_attr attr;
	struct ibv_wc wc;
	int all, fewer, count;

	setup(rig);
	before = listed("fab0", &all);
	CHECK(before == rig->context->device);
	install(rig, "unplug host=0 rail=0");
	CHECK(rig_event(rig) == IBV_EVENT_PORT_ERR);
	CHECK(listed("fab0", &fewer) == NULL && fewer == all - 1);
	CHECK(ibv_open_device(before) == NULL && errno == ENODEV);
	install(rig, "heal host=0 rail=0");
	after = listed("fab0", &count);
	CHECK(count == all && after != NULL && after != before);
	CHECK(ibv_get_device_guid(after) == ibv_get_device_guid(before));
	CHECK(ibv_get_device_index(after) == ibv_get_device_index(before));
	CHECK(ibv_open_device(before) == NULL && errno == ENODEV);
	CHECK(ibv_query_port(rig->context, 1, &attr) == 0 && attr.state == IBV_PORT_DOWN);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 5, 0, 10 * KB) == 0);
	wc = rig_poll(rig);
	CHECK(wc.status == IBV_WC_RETRY_EXC_ERR);
	setup(&again);
	CHECK(again.context->device == after);
	CHECK(rig_post(&again, 0, IBV_WR_RDMA_WRITE, 5, 0, 10 * KB) == 0);
	CHECK(rig_poll(&again).status == IBV_WC_SUCCESS);
	rig_barrier(rig);
	rig_close(&again);
	rig_close(rig);
}

static void test_unplug(void **state)
{
	static const struct rig_case c = {.host0 = unplug_send, .host1 = revive_recv};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* A dead adapter comes back by heal, for those who open it anew; the old context stays dead. */
static void revive_send(struct rig *rig)
{
	struct rig again = {.host = rig->host, .sock = rig->sock, .dir = rig->dir, .ctl = rig->ctl};

	setup(rig);
	install(rig, "nic_death host=0 rail=0");
	CHECK(rig_event(rig) == IBV_EVENT_DEVICE_FATAL);
	install(rig, "heal host=0 rail=0");
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 5, 0, 10 * KB) == 0);
	rig_quiet(rig, 10);
	CHECK(ibv_reg_mr(rig->pd, rig->buf, 4096, 0) == NULL && errno == EIO);
	setup(&again);
	CHECK(rig_post(&again, 0, IBV_WR_RDMA_WRITE, 5, 0, 10 * KB) == 0);
	CHECK(rig_poll(&again).status == IBV_WC_SUCCESS);
	rig_barrier(rig);
	rig_close(&again);
	rig_close(rig);
}

static void revive_recv(struct rig *rig)
{
	struct rig again = {.host = rig->host, .sock = rig->sock, .dir = rig->dir, .ctl = rig->ctl};

	setup(rig);
	setup(&again);
	rig_barrier(rig);
	rig_close(&again);
	rig_close(rig);
}

static void test_nic_revives(void **state)
{
	static const struct rig_case c = {.host0 = revive_send, .host1 = revive_recv};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_bytes),      cmocka_unit_test(test_edges),
		cmocka_unit_test(test_cut_writes),     cmocka_unit_test(test_port_down_up),
		cmocka_unit_test(test_unplug),         cmocka_unit_test(test_ms_heal),
		cmocka_unit_test(test_half_then_heal), cmocka_unit_test(test_nic_revives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
