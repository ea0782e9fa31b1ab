/* SPDX-License-Identifier: Apache-2.0 */

/* Loss, delay, GIDs that move, control verbs that fail or take long. */

#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KB     1024u
#define WRITES 40u

static const struct rig_qp_options stubborn = {
	.send_wr = 64,
	.recv_wr = 64,
	.timeout = 8, /* 1 ms */
	.retry_cnt = 7,
	.rnr_retry = 7,
	.min_rnr_timer = 1,
};

static void install(struct rig *rig, const char *rule)
{
	char why[200] = "";

	if (fabric_ctl_fault(rig->ctl, rule, NULL, why, sizeof(why)) != 0) {
		fprintf(stderr, "%s: %s\n", rule, why);
		_exit(1);
	}
}

static const char *loss_rule;
static int loss_pipe[2];

static void loss_sender(struct rig *rig)
{
	struct fabric_counters c;

	rig_open(rig, 0);
	rig_connect(rig, 0, &stubborn);
	rig_fill(rig, 3, 0, WRITES * 100 * KB);
	install(rig, loss_rule);
	rig_barrier(rig);
	for (uint32_t i = 0; i < WRITES; i++) {
		CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, i, i * 100 * KB, 100 * KB) == 0);
	}
	for (uint32_t i = 0; i < WRITES; i++) {
		struct ibv_wc wc = rig_poll(rig);

		CHECK(wc.wr_id == i && wc.status == IBV_WC_SUCCESS);
	}
	CHECK(fabric_ctl_counters(rig->ctl, 0, 0, &c) == 0);
	/* No byte was placed twice, however often it was sent. */
	CHECK(c.tx_bytes == WRITES * 100 * KB && c.tx_msgs == WRITES);
	CHECK(write(loss_pipe[1], &c.lost, sizeof(c.lost)) == sizeof(c.lost));
	rig_barrier(rig);
	rig_close(rig);
}

static void loss_receiver(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &stubborn);
	for (uint32_t i = 0; i < WRITES; i++) {
		CHECK(rig_post_recv(rig, 0, i, 0, 0) == 0);
	}
	rig_barrier(rig);
	for (uint32_t i = 0; i < WRITES; i++) {
		struct ibv_wc wc = rig_poll(rig);

		CHECK(wc.wr_id == i && wc.status == IBV_WC_SUCCESS);
		CHECK(wc.imm_data == (i ^ 0x01020304u));
	}
	rig_quiet(rig, 2);
	CHECK(rig_holds(rig, 3, 0, WRITES * 100 * KB));
	rig_barrier(rig);
	rig_close(rig);
}

static uint64_t lost(const char *rule, const char *seed)
{
	struct rig_case c = {
		.host0 = loss_sender, .host1 = loss_receiver, .env = {"FABRIC_SEED", seed}};
	uint64_t count = 0;

	loss_rule = rule;
	assert_int_equal(pipe(loss_pipe), 0);
	assert_int_equal(rig_run(&c), 0);
	assert_int_equal(read(loss_pipe[0], &count, sizeof(count)), sizeof(count));
	close(loss_pipe[0]);
	close(loss_pipe[1]);
	return count;
}

/* 1000 packets of data: a seed always takes the same ones. */
static void test_loss(void **state)
{
	uint64_t first = lost("drop host=0 rail=0 dir=tx p=0.03", "1");

	(void)state;
	assert_in_range(first, 10, 70);
	assert_int_equal(lost("drop host=0 rail=0 dir=tx p=0.03", "1"), first);
	assert_int_equal(lost("drop host=1 rail=0 dir=rx p=0.03", "1"), first);
	assert_int_not_equal(lost("drop host=0 rail=0 dir=tx p=0.06", "2"), first);
	assert_int_equal(lost("drop host=0 rail=0 dir=rx p=0.2", "1"), 0); /* acknowledgements */
	assert_in_range(lost("drop host=0 rail=0 p=0.03", "3"), 10, 70);
}

/* One QP's sends keep their order, two QPs' need not. */
static void delay_sender(struct rig *rig)
{
	uint64_t start_ns;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_connect(rig, 1, &rig_defaults);
	install(rig, "delay host=0 rail=0 dir=tx us=20000");
	start_ns = rig_now_ns();
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 0, 0, 8) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	CHECK(rig_now_ns() - start_ns >= 20000000);
	install(rig, "delay host=0 rail=0 us=20000");
	start_ns = rig_now_ns();
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 0, 0, 8) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	CHECK(rig_now_ns() - start_ns >= 40000000);
	install(rig, "delay host=0 rail=0 dir=tx us=1000 jitter_us=20000");
	install(rig, "delay host=0 rail=0 dir=rx us=0");
	rig_barrier(rig);
	for (uint32_t i = 0; i < 16; i++) {
		/* at once: on a busy machine a pause would be longer than the jitter */
		CHECK(rig_post(rig, i % 2, IBV_WR_RDMA_WRITE_WITH_IMM, i, 0, 8) == 0);
	}
	for (uint32_t i = 0; i < 16; i++) {
		CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	}
	rig_barrier(rig);
	rig_close(rig);
}

static void delay_receiver(struct rig *rig)
{
	uint32_t next[2] = {0, 1};
	uint32_t newest = 0;
	uint32_t overtaken = 0;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_connect(rig, 1, &rig_defaults);
	for (uint32_t i = 0; i < 16; i++) {
		CHECK(rig_post_recv(rig, i % 2, i, 0, 0) == 0);
	}
	rig_barrier(rig);
	for (uint32_t i = 0; i < 16; i++) {
		struct ibv_wc wc = rig_poll(rig);
		uint32_t number = wc.imm_data ^ 0x01020304u;

		CHECK(wc.status == IBV_WC_SUCCESS && number == next[number % 2]);
		next[number % 2] += 2;
		overtaken += number < newest;
		newest = number > newest ? number : newest;
	}
	CHECK(overtaken > 0);
	rig_barrier(rig);
	rig_close(rig);
}

static void test_delay(void **state)
{
	static const struct rig_case c = {
		.host0 = delay_sender, .host1 = delay_receiver, .env = {"FABRIC_SEED", "1"}};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

static int rtr_with_gid(struct rig *rig, struct ibv_qp *qp, uint8_t index)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = index}},
	};

	(void)rig;
	memcpy(&attr.ah_attr.grh.dgid, (uint8_t[16]){[10] = 0xff, 0xff, 10, 77, 0, 1}, 16);
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

static void gid_moves(struct rig *rig)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry table[4];
	union ibv_gid before;
	union ibv_gid gid;
	struct ibv_qp *qp;

	rig_open(rig, 0);
	CHECK(ibv_query_gid(rig->context, 1, 0, &before) == 0);
	install(rig, "gid_move host=0 rail=0 index=3");
	CHECK(rig_event(rig) == IBV_EVENT_GID_CHANGE);
	CHECK(ibv_query_port(rig->context, 1, &port) == 0 && port.gid_tbl_len == 4);
	CHECK(ibv_query_gid(rig->context, 1, 0, &gid) == 0);
	CHECK(memcmp(&gid, (uint8_t[16]){0}, 16) == 0);
	CHECK(ibv_query_gid(rig->context, 1, 3, &gid) == 0);
	CHECK(memcmp(&gid, &before, 16) == 0);
	CHECK(ibv_query_gid_table(rig->context, table, 4, 0) == 1 && table[0].gid_index == 3);
	qp = rig_qp_create(rig, &rig_defaults);
	CHECK(qp != NULL && rig_qp_init(qp) == 0);
	CHECK(rtr_with_gid(rig, qp, 0) == EINVAL);
	CHECK(rtr_with_gid(rig, qp, 3) == 0);
	install(rig, "gid_clear host=0 rail=0");
	CHECK(rig_event(rig) == IBV_EVENT_GID_CHANGE);
	CHECK(ibv_query_gid(rig->context, 1, 0, &gid) == 0);
	CHECK(memcmp(&gid, (uint8_t[16]){0}, 16) == 0);
	CHECK(ibv_query_gid_table(rig->context, table, 4, 0) == 0);
	CHECK(ibv_destroy_qp(qp) == 0);
	rig_barrier(rig);
	rig_close(rig);
}

static void bystander(struct rig *rig)
{
	rig_open(rig, 0);
	rig_barrier(rig);
	rig_close(rig);
}

static void test_gid(void **state)
{
	static const struct rig_case c = {
		.host0 = gid_moves, .host1 = bystander, .env = {"FABRIC_LINK", "roce"}};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

static void calls_fail(struct rig *rig)
{
	struct ibv_qp *qps[3];
	struct ibv_mr *mr;
	uint64_t start_ns;

	rig_open(rig, 0);
	install(rig, "enomem host=0 rail=0 call=create_qp nth=2");
	qps[0] = rig_qp_create(rig, &rig_defaults);
	errno = 0;
	qps[1] = rig_qp_create(rig, &rig_defaults);
	CHECK(qps[1] == NULL && errno == ENOMEM);
	qps[2] = rig_qp_create(rig, &rig_defaults);
	CHECK(qps[0] != NULL && qps[2] != NULL);
	install(rig, "enomem host=0 rail=0 call=modify_qp");
	CHECK(rig_qp_init(qps[0]) == ENOMEM && rig_qp_init(qps[0]) == 0);
	install(rig, "enomem host=0 rail=0 call=reg_mr");
	CHECK(ibv_reg_mr(rig->pd, rig->buf, 4096, 0) == NULL && errno == ENOMEM);
	install(rig, "enomem host=0 rail=0 call=create_cq");
	CHECK(ibv_create_cq(rig->context, 1, NULL, NULL, 0) == NULL && errno == ENOMEM);
	install(rig, "block host=0 rail=0 call=reg_mr delay_ms=60");
	start_ns = rig_now_ns();
	mr = ibv_reg_mr(rig->pd, rig->buf, 4096, 0);
	CHECK(mr != NULL && rig_now_ns() - start_ns >= 60000000);
	install(rig, "block host=0 rail=0 call=destroy_qp delay_ms=60000");
	install(rig, "heal host=0 rail=0 ms=40");
	start_ns = rig_now_ns();
	CHECK(ibv_destroy_qp(qps[0]) == 0 && rig_now_ns() - start_ns >= 38000000);
	CHECK(ibv_destroy_qp(qps[2]) == 0 && ibv_dereg_mr(mr) == 0);
	rig_barrier(rig);
	rig_close(rig);
}

static void test_calls(void **state)
{
	static const struct rig_case c = {.host0 = calls_fail, .host1 = bystander};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loss),
		cmocka_unit_test(test_delay),
		cmocka_unit_test(test_gid),
		cmocka_unit_test(test_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
