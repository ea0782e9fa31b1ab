/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/flush.h"
#include "ib/post.h"
#include "ib_fake.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct braid_config cfg;
static struct ib_rails *rails;
static const struct ib_qp_opts opts = {
	.send_wrs_max = 128, .recv_wrs_max = 512, .inline_bytes = 64};

static int setup(void **state)
{
	(void)state;
	fake_reset();
	config_default(&cfg);
	return ib_rails_open(&cfg, &rails);
}

static int teardown(void **state)
{
	(void)state;
	fake.fail_at = 0;
	ib_rails_close(rails);
	return fake.live_count;
}

static struct ib_qp create(void)
{
	struct ib_qp qp;

	assert_int_equal(ib_qp_create(&rails->rails[0], &opts, &qp), 0);
	return qp;
}

static void test_create(void **state)
{
	struct ib_qp qp = create();

	(void)state;
	assert_int_equal(qp.qpn, 0x1234);
	assert_int_equal(qp.send_wrs_max, 128);
	assert_int_equal(qp.inline_max_bytes, 64);
	assert_true(qp.psn <= 0xffffff);
	assert_ptr_equal(qp.cq->cq_context, (void *)0x1234);
	assert_int_equal(fake.attr_init.port_num, 1);
	assert_int_equal(fake.attr_init.qp_access_flags,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	ib_qp_destroy(&qp);
	assert_null(qp.qp);
	ib_qp_destroy(&qp);
	ib_qp_destroy(NULL);
}

/* First PSNs are drawn anew: 8 equal ones in a row do not happen by chance. */
static void test_psn_random(void **state)
{
	struct ib_qp first = create();
	unsigned int equal_count = 0;

	(void)state;
	for (int i = 0; i < 8; i++) {
		struct ib_qp qp = create();

		equal_count += qp.psn == first.psn;
		ib_qp_destroy(&qp);
	}
	assert_true(equal_count < 8);
	ib_qp_destroy(&first);
}

static void test_inline_less(void **state)
{
	struct ib_qp qp;

	(void)state;
	fake.inline_limit = 40;
	qp = create();
	assert_int_equal(qp.inline_max_bytes, 32);
	ib_qp_destroy(&qp);
	fake.inline_limit = 0;
	qp = create();
	assert_int_equal(qp.inline_max_bytes, 0);
	ib_qp_destroy(&qp);
}

static void test_too_deep(void **state)
{
	const struct ib_qp_opts sends = {.send_wrs_max = 1025, .recv_wrs_max = 1};
	const struct ib_qp_opts recvs = {.send_wrs_max = 1, .recv_wrs_max = 1025};
	const struct ib_qp_opts both = {.send_wrs_max = 1000, .recv_wrs_max = 501};
	struct ib_qp qp;

	(void)state;
	assert_int_equal(ib_qp_create(&rails->rails[0], &sends, &qp), -EINVAL);
	assert_non_null(strstr(fake.log, "rail fab0:1: a queue of 1025 sends and 1 receives is "
					 "wanted, the device allows 1024"));
	assert_int_equal(ib_qp_create(&rails->rails[0], &recvs, &qp), -EINVAL);
	assert_int_equal(ib_qp_create(&rails->rails[0], &both, &qp), -EINVAL);
	assert_non_null(strstr(fake.log, "a completion queue of 1501 entries"));
}

static void test_create_fail_each_call(void **state)
{
	unsigned int start = fake.call_count, total;
	struct ib_qp qp = create();
	int live_count;

	(void)state;
	total = fake.call_count - start;
	assert_int_equal(total, 3);
	ib_qp_destroy(&qp);
	live_count = fake.live_count;
	for (unsigned int n = 1; n <= total; n++) {
		int rc;

		fake.fail_at = fake.call_count + n;
		fake.fail_errno = EPERM; /* not one that is tried again with less inline data */
		memset(&qp, 0x5a, sizeof(qp));
		rc = ib_qp_create(&rails->rails[0], &opts, &qp);
		assert_int_equal(rc, -EPERM);
		assert_int_equal(fake.live_count, live_count);
		assert_int_equal(qp.qpn, 0x5a5a5a5a); /* outputs only on success */
	}
}

static struct rail_desc peer_desc(void)
{
	struct rail_desc desc;

	ib_rail_describe(&rails->rails[1], &desc);
	desc.mtu = IBV_MTU_2048;
	desc.lid = 77;
	return desc;
}

static const struct qp_addr peer_addr = {.qpn = 0x99, .psn = 0x123456};

static void test_connect_infiniband(void **state)
{
	struct ib_qp qp = create();
	struct rail_desc peer = peer_desc();

	(void)state;
	cfg.ib_timeout = 13;
	cfg.ib_retry_count = 5;
	assert_int_equal(ib_qp_connect(&qp, &peer, &peer_addr, &cfg, -1), 0);
	assert_int_equal(fake.attr_rtr.path_mtu, IBV_MTU_2048);
	assert_int_equal(fake.attr_rtr.dest_qp_num, 0x99);
	assert_int_equal(fake.attr_rtr.rq_psn, 0x123456);
	assert_int_equal(fake.attr_rtr.min_rnr_timer, 12);
	assert_int_equal(fake.attr_rtr.ah_attr.dlid, 77);
	assert_int_equal(fake.attr_rtr.ah_attr.is_global, 0);
	assert_int_equal(fake.attr_rtr.ah_attr.sl, 0);
	assert_int_equal(fake.attr_rts.sq_psn, qp.psn);
	assert_int_equal(fake.attr_rts.timeout, 13);
	assert_int_equal(fake.attr_rts.retry_cnt, 5);
	assert_int_equal(fake.attr_rts.rnr_retry, 7);
	assert_int_equal(fake.attr_rts.max_rd_atomic, 1);
	assert_int_equal(fake.mask_rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						IBV_QP_MAX_QP_RD_ATOMIC);

	/* another subnet: by GID, and by FLID when there is one */
	peer.gid[7] = 1;
	assert_int_equal(ib_qp_connect(&qp, &peer, &peer_addr, &cfg, -1), 0);
	assert_int_equal(fake.attr_rtr.ah_attr.is_global, 1);
	assert_int_equal(fake.attr_rtr.ah_attr.dlid, 77);
	assert_memory_equal(fake.attr_rtr.ah_attr.grh.dgid.raw, peer.gid, 16);
	peer.gid[5] = 9;
	assert_int_equal(ib_qp_connect(&qp, &peer, &peer_addr, &cfg, -1), 0);
	assert_int_equal(fake.attr_rtr.ah_attr.dlid, 9);
	ib_qp_destroy(&qp);
}

static void test_connect_roce(void **state)
{
	struct ib_qp qp = create();
	struct rail_desc peer = peer_desc();

	(void)state;
	rails->rails[0].link_layer = peer.link_layer = RAIL_LINK_ETHERNET;
	rails->rails[0].addr.gid_index = 3;
	cfg.ib_tc = 106;
	assert_int_equal(ib_qp_connect(&qp, &peer, &peer_addr, &cfg, -1), 0);
	assert_int_equal(fake.attr_rtr.ah_attr.is_global, 1);
	assert_int_equal(fake.attr_rtr.ah_attr.grh.sgid_index, 3);
	assert_int_equal(fake.attr_rtr.ah_attr.grh.hop_limit, 255);
	assert_int_equal(fake.attr_rtr.ah_attr.grh.traffic_class, 106);
	assert_int_equal(fake.attr_rtr.ah_attr.sl, 0);
	assert_int_equal(fake.attr_rtr.ah_attr.dlid, 0);
	assert_int_equal(ib_qp_connect(&qp, &peer, &peer_addr, &cfg, 9), 0);
	assert_int_equal(fake.attr_rtr.ah_attr.grh.traffic_class, 9);
	assert_int_equal(fake.attr_rtr.ah_attr.sl, 9);
	cfg.ib_sl = 4;
	assert_int_equal(ib_qp_connect(&qp, &peer, &peer_addr, &cfg, 9), 0);
	assert_int_equal(fake.attr_rtr.ah_attr.sl, 4);
	ib_qp_destroy(&qp);
}

/* What came over the wire is checked before verbs sees it. */
static void test_connect_nonsense(void **state)
{
	struct ib_qp qp = create();
	unsigned int calls = fake.call_count;

	(void)state;
	for (int i = 0; i < 6; i++) {
		struct rail_desc peer = peer_desc();
		struct qp_addr addr = peer_addr;

		memset(peer.name, 'x', sizeof(peer.name)); /* not even terminated */
		if (i == 0) {
			peer.link_layer = RAIL_LINK_ETHERNET;
		} else if (i < 3) {
			peer.mtu = i == 1 ? 0 : 6;
		} else if (i < 5) {
			addr.qpn = i == 3 ? 0 : 0x1000000;
		} else {
			addr.psn = 0x1000000;
		}
		assert_int_equal(ib_qp_connect(&qp, &peer, &addr, &cfg, -1), -EINVAL);
	}
	assert_int_equal(fake.call_count, calls);
	ib_qp_destroy(&qp);
}

static void test_connect_patience(void **state)
{
	struct ib_qp qp = create();
	struct rail_desc peer = peer_desc();
	unsigned int calls;

	(void)state;
	fake.modify_timeouts = 2;
	assert_int_equal(ib_qp_connect(&qp, &peer, &peer_addr, &cfg, -1), 0);
	calls = fake.call_count;
	fake.modify_timeouts = 1000;
	assert_int_equal(ib_qp_connect(&qp, &peer, &peer_addr, &cfg, -1), -ETIMEDOUT);
	assert_true(fake.call_count - calls <= 8);
	assert_non_null(strstr(fake.log, "QP 0x1234 cannot go to RTR towards fab1:1"));
	/* any other error is final */
	fake.modify_timeouts = 0;
	calls = fake.call_count;
	fake.fail_at = calls + 2;
	fake.fail_errno = EINVAL;
	assert_int_equal(ib_qp_connect(&qp, &peer, &peer_addr, &cfg, -1), -EINVAL);
	assert_int_equal(fake.call_count, calls + 2);
	assert_non_null(strstr(fake.log, "cannot go to RTS"));
	ib_qp_destroy(&qp);
}

static void test_fence_and_reset(void **state)
{
	struct ib_qp qp = create();

	(void)state;
	assert_int_equal(ib_qp_fence(&qp), 0);
	assert_int_equal(fake.state_last, IBV_QPS_ERR);
	assert_int_equal(ib_qp_reset(&qp), 0);
	assert_int_equal(fake.state_last, IBV_QPS_RESET);
	fake.fail_at = fake.call_count + 1;
	fake.fail_errno = EIO;
	assert_int_equal(ib_qp_fence(&qp), -EIO);
	ib_qp_destroy(&qp);
}

static void test_post_writes(void **state)
{
	const struct ib_write writes[] = {
		{.wr_id = 7,
		 .local_addr = 1,
		 .remote_addr = 2,
		 .lkey = 3,
		 .rkey = 4,
		 .len_bytes = 100},
		{.wr_id = 8,
		 .remote_addr = 5,
		 .rkey = 6,
		 .imm = 0x01020304,
		 .len_bytes = 0,
		 .flags = IB_WRITE_WITH_IMM | IB_WRITE_SIGNALED},
		{.wr_id = 9, .len_bytes = 64, .flags = IB_WRITE_INLINE},
	};
	const struct ib_write fat = {.len_bytes = 65, .flags = IB_WRITE_INLINE};
	struct ib_qp qp = create();
	unsigned int posted = 99;

	(void)state;
	assert_int_equal(ib_qp_post_writes(&qp, writes, 3, &posted), 0);
	assert_int_equal(posted, 3);
	assert_int_equal(fake.sent_count, 3);
	assert_int_equal(fake.sent[0].opcode, IBV_WR_RDMA_WRITE);
	assert_int_equal(fake.sent[0].send_flags, 0);
	assert_int_equal(fake.sent[0].wr.rdma.remote_addr, 2);
	assert_int_equal(fake.sent_len[0], 100);
	assert_int_equal(fake.sent[1].opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
	assert_int_equal(fake.sent[1].num_sge, 0);
	assert_int_equal(fake.sent[1].send_flags, IBV_SEND_SIGNALED);
	assert_int_equal(fake.sent[1].imm_data, htonl(0x01020304));
	assert_int_equal(fake.sent[2].send_flags, IBV_SEND_INLINE);
	assert_null(fake.sent[2].next);

	fake.post_limit = 2;
	assert_int_equal(ib_qp_post_writes(&qp, writes, 3, &posted), -ENOMEM);
	assert_int_equal(posted, 2);
	assert_int_equal(ib_qp_post_writes(&qp, writes, 3, &posted), -ENOMEM);
	assert_int_equal(posted, 0);
	fake.post_limit = 0;
	assert_int_equal(ib_qp_post_writes(&qp, &fat, 1, &posted), -EINVAL);
	assert_int_equal(posted, 0);
	ib_qp_destroy(&qp);
}

static void test_post_recvs(void **state)
{
	struct ib_qp qp = create();
	unsigned int posted;

	(void)state;
	assert_int_equal(ib_qp_post_recvs(&qp, 5, 512, &posted), 0);
	assert_int_equal(posted, 512);
	assert_int_equal(fake.recv_count, 512);
	fake.post_limit = 70;
	assert_int_equal(ib_qp_post_recvs(&qp, 5, 512, &posted), -ENOMEM);
	assert_int_equal(posted, 70);
	assert_int_equal(ib_qp_post_recvs(&qp, 5, 0, &posted), 0);
	assert_int_equal(posted, 0);
	ib_qp_destroy(&qp);
}

static void test_poll(void **state)
{
	struct ib_qp qp = create();
	struct ib_wc wcs[40];

	(void)state;
	fake.wcs[0] = (struct ibv_wc){.wr_id = 1,
				      .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
				      .wc_flags = IBV_WC_WITH_IMM,
				      .imm_data = htonl(0xa1b2c3d4),
				      .byte_len = 640};
	/* on an error all but wr_id, status and vendor_err may be rubbish */
	fake.wcs[1] = (struct ibv_wc){.wr_id = 2,
				      .status = IBV_WC_RETRY_EXC_ERR,
				      .vendor_err = 129,
				      .opcode = IBV_WC_RECV_RDMA_WITH_IMM,
				      .wc_flags = IBV_WC_WITH_IMM,
				      .imm_data = 0xffffffff,
				      .byte_len = 0xffffffff};
	fake.wcs[2] = (struct ibv_wc){.wr_id = 3, .opcode = IBV_WC_RDMA_WRITE, .byte_len = 9};
	fake.wc_count = 35;
	assert_int_equal(ib_qp_poll(&qp, wcs, 40), 35);
	assert_true(wcs[0].is_recv);
	assert_int_equal(wcs[0].cause, CAUSE_NONE);
	assert_int_equal(wcs[0].imm, 0xa1b2c3d4);
	assert_int_equal(wcs[0].len_bytes, 640);
	assert_int_equal(wcs[1].wr_id, 2);
	assert_int_equal(wcs[1].cause, CAUSE_RETRY_EXC);
	assert_int_equal(wcs[1].vendor_err, 129);
	assert_false(wcs[1].is_recv);
	assert_int_equal(wcs[1].imm, 0);
	assert_int_equal(wcs[1].len_bytes, 0);
	assert_false(wcs[2].is_recv);
	assert_int_equal(ib_qp_poll(&qp, wcs, 40), 0);
	ib_qp_destroy(&qp);
}

static void test_poll_bound_and_error(void **state)
{
	struct ib_qp qp = create();
	struct ib_wc wcs[20];

	(void)state;
	fake.wc_count = 36; /* a whole batch is left for the second call */
	assert_int_equal(ib_qp_poll(&qp, wcs, 20), 20);
	fake.poll_error = -1;
	fake.fail_errno = 0;
	assert_int_equal(ib_qp_poll(&qp, wcs, 20), 16); /* what was there comes first */
	assert_int_equal(ib_qp_poll(&qp, wcs, 20), -EIO);
	ib_qp_destroy(&qp);
}

static void test_flush(void **state)
{
	struct ib_mr_cache *cache;
	struct ib_flush flush;

	(void)state;
	assert_int_equal(ib_mr_cache_create(rails, &cache), 0);
	assert_int_equal(ib_flush_create(&rails->rails[1], cache, &cfg, &flush), 0);
	assert_int_equal(fake.attr_rtr.dest_qp_num, flush.qp.qpn);
	assert_int_equal(fake.attr_rtr.rq_psn, flush.qp.psn);
	assert_int_equal(fake.attr_rtr.ah_attr.dlid, rails->rails[1].addr.lid);
	assert_int_equal(ib_flush_post(&flush, 0x5000, 42, 11), 0);
	assert_int_equal(fake.sent[0].opcode, IBV_WR_RDMA_READ);
	assert_int_equal(fake.sent[0].wr.rdma.rkey, 42);
	assert_int_equal(fake.sent[0].send_flags, IBV_SEND_SIGNALED);
	assert_int_equal(fake.sent_len[0], 1);
	ib_flush_destroy(&flush);
	ib_flush_destroy(&flush);
	ib_flush_destroy(NULL);
	ib_mr_cache_destroy(cache);
	assert_null(strstr(fake.log, "never given back"));
}

static void test_flush_fail_each_call(void **state)
{
	struct ib_mr_cache *cache;
	struct ib_flush flush;
	unsigned int start, total;
	int live_count;

	(void)state;
	assert_int_equal(ib_mr_cache_create(rails, &cache), 0);
	start = fake.call_count;
	live_count = fake.live_count;
	assert_int_equal(ib_flush_create(&rails->rails[1], cache, &cfg, &flush), 0);
	total = fake.call_count - start;
	ib_flush_destroy(&flush);
	fake.fail_errno = EPERM;
	for (unsigned int n = 1; n <= total; n++) {
		int rc;

		fake.fail_at = fake.call_count + n;
		rc = ib_flush_create(&rails->rails[1], cache, &cfg, &flush);
		/* another rail's registration does not matter */
		assert_int_equal(rc != 0, n > 1);
		if (rc == 0) {
			ib_flush_destroy(&flush);
		}
		assert_int_equal(fake.live_count, live_count);
	}
	ib_mr_cache_destroy(cache);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_create),
		TEST(test_psn_random),
		TEST(test_inline_less),
		TEST(test_too_deep),
		TEST(test_create_fail_each_call),
		TEST(test_connect_infiniband),
		TEST(test_connect_roce),
		TEST(test_connect_nonsense),
		TEST(test_connect_patience),
		TEST(test_fence_and_reset),
		TEST(test_post_writes),
		TEST(test_post_recvs),
		TEST(test_poll),
		TEST(test_poll_bound_and_error),
		TEST(test_flush),
		TEST(test_flush_fail_each_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
