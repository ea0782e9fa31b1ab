/* SPDX-License-Identifier: Apache-2.0 */

/* Keys, bounds and rights: the responder refuses, breaks its QP and touches nothing. */

#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define KB 1024u

/* One way to be refused: what the sender gets, and whether the responder's QP breaks too. */
struct refusal {
	const char *name;
	int (*post)(struct rig *rig);
	enum ibv_wc_status status;
	int breaks_peer;
};

static const struct refusal *refusal;

static int post_raw(struct rig *rig, uint64_t remote, uint32_t rkey, uint32_t lkey, uint32_t len)
{
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)rig->buf, .length = len, .lkey = lkey};
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = remote, .rkey = rkey},
	};

	return rig_post_wr(rig, 0, &wr);
}

static int post_bad_rkey(struct rig *rig)
{
	return post_raw(rig, rig->peer_buf, rig->peer_rkey ^ 1, rig->mr->lkey, 64);
}

static int post_no_rkey(struct rig *rig)
{
	return post_raw(rig, rig->peer_buf, 0, rig->mr->lkey, 64);
}

static int post_past_end(struct rig *rig)
{
	return post_raw(rig, rig->peer_buf + RIG_BUF_BYTES - 63, rig->peer_rkey, rig->mr->lkey, 64);
}

static int post_before_start(struct rig *rig)
{
	return post_raw(rig, rig->peer_buf - 1, rig->peer_rkey, rig->mr->lkey, 64);
}

static int post_around(struct rig *rig)
{
	return post_raw(rig, UINT64_MAX - 10, rig->peer_rkey, rig->mr->lkey, 64);
}

static int post_bad_lkey(struct rig *rig)
{
	return post_raw(rig, rig->peer_buf, rig->peer_rkey, rig->mr->lkey ^ 1, 64);
}

static int post_local_past_end(struct rig *rig)
{
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)rig->buf + RIG_BUF_BYTES - 63,
			      .length = 64,
			      .lkey = rig->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .wr.rdma = {.remote_addr = rig->peer_buf, .rkey = rig->peer_rkey}};

	return rig_post_wr(rig, 0, &wr);
}

static int post_long_send(struct rig *rig)
{
	return rig_post(rig, 0, IBV_WR_SEND, 1, 0, 65);
}

static const struct refusal refusals[] = {
	{"wrong rkey", post_bad_rkey, IBV_WC_REM_ACCESS_ERR, 1},
	{"rkey 0", post_no_rkey, IBV_WC_REM_ACCESS_ERR, 1},
	{"past the end", post_past_end, IBV_WC_REM_ACCESS_ERR, 1},
	{"before the start", post_before_start, IBV_WC_REM_ACCESS_ERR, 1},
	{"address wraps", post_around, IBV_WC_REM_ACCESS_ERR, 1},
	{"wrong lkey", post_bad_lkey, IBV_WC_LOC_PROT_ERR, 0},
	{"local past the end", post_local_past_end, IBV_WC_LOC_PROT_ERR, 0},
	{"send longer than the receive", post_long_send, IBV_WC_REM_INV_REQ_ERR, 1},
};

static void refused_send(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_fill(rig, 1, 0, KB);
	rig_barrier(rig);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 0, 0, 100) == 0);
	CHECK(refusal->post(rig) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 2, 0, 200) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	CHECK(rig_poll(rig).status == refusal->status);
	CHECK(rig_poll(rig).status == IBV_WC_WR_FLUSH_ERR);
	rig_barrier(rig);
	rig_close(rig);
}

static void refused_recv(struct rig *rig)
{
	int is_send = refusal->post == post_long_send;
	struct ibv_wc wc;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	CHECK(rig_post_recv(rig, 0, 10, 100 * KB, 64) == 0);
	CHECK(rig_post_recv(rig, 0, 11, 100 * KB, 64) == 0);
	rig_barrier(rig);
	rig_barrier(rig);
	if (refusal->breaks_peer) {
		wc = rig_poll(rig);
		CHECK(wc.wr_id == 10);
		CHECK(wc.status == (is_send ? IBV_WC_LOC_LEN_ERR : IBV_WC_WR_FLUSH_ERR));
		wc = rig_poll(rig);
		CHECK(wc.wr_id == 11 && wc.status == IBV_WC_WR_FLUSH_ERR);
		CHECK(rig_event(rig) == IBV_EVENT_QP_ACCESS_ERR);
	} else {
		rig_quiet(rig, 2);
	}
	CHECK(rig_holds(rig, 1, 0, 100) && rig_blank(rig, 100, RIG_BUF_BYTES - 100));
	rig_close(rig);
}

static void test_refusals(void **state)
{
	static const struct rig_case c = {.host0 = refused_send, .host1 = refused_recv};

	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		refusal = &refusals[i];
		if (rig_run(&c) != 0) {
			fail_msg("%s", refusal->name);
		}
	}
}

/* A deregistered key is no key; a new registration of the same memory has another one. */
static void dereg_send(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_barrier(rig);
	rig_barrier(rig);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 0, 0, 100) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_REM_ACCESS_ERR);
	rig_barrier(rig);
	rig_close(rig);
}

static void dereg_recv(struct rig *rig)
{
	uint32_t old;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_barrier(rig);
	old = rig->mr->rkey;
	CHECK(ibv_dereg_mr(rig->mr) == 0);
	rig->mr = ibv_reg_mr(rig->pd, rig->buf, RIG_BUF_BYTES,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(rig->mr != NULL && rig->mr->rkey != old);
	rig_barrier(rig);
	rig_barrier(rig);
	rig_close(rig);
}

static void test_dereg(void **state)
{
	static const struct rig_case c = {.host0 = dereg_send, .host1 = dereg_recv};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* What registration itself refuses, iova, and a region without the right to be read. */
static void reg_send(struct rig *rig)
{
	void *hole;
	struct ibv_mr *mr;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	CHECK(ibv_reg_mr(rig->pd, rig->buf, 0, 0) == NULL && errno == EINVAL);
	CHECK(ibv_reg_mr(rig->pd, rig->buf, 64, IBV_ACCESS_REMOTE_WRITE) == NULL);
	CHECK(errno == EINVAL);
	hole = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(hole != MAP_FAILED && munmap((char *)hole + 4096, 4096) == 0);
	CHECK(ibv_reg_mr(rig->pd, hole, 8192, 0) == NULL && errno == EFAULT);
	CHECK(ibv_reg_dmabuf_mr(rig->pd, 0, 4096, 0, -1, 0) == NULL && errno == EOPNOTSUPP);
	mr = ibv_reg_mr_iova2(rig->pd, rig->buf + KB, 4 * KB, 0,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr != NULL);
	CHECK(rig_post_recv(rig, 0, 9, 0, 0) == 0); /* flushed when the peer's read is refused */
	rig_send(rig, &mr->rkey, sizeof(mr->rkey));
	CHECK(rig_poll(rig).wr_id == 9);
	CHECK(rig_holds(rig, 5, KB, 100));
	CHECK(ibv_dereg_mr(mr) == 0);
	munmap(hole, 4096);
	rig_close(rig);
}

static void reg_recv(struct rig *rig)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED};

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_fill(rig, 5, KB, 100);
	rig_recv(rig, &wr.wr.rdma.rkey, sizeof(wr.wr.rdma.rkey));
	sge.addr = (uint64_t)(uintptr_t)rig->buf + KB;
	sge.length = 100;
	sge.lkey = rig->mr->lkey;
	CHECK(rig_post_wr(rig, 0, &wr) == 0); /* remote address 0 is the region's first byte */
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	wr.opcode = IBV_WR_RDMA_READ;
	CHECK(rig_post_wr(rig, 0, &wr) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_REM_ACCESS_ERR);
	rig_close(rig);
}

static void test_registration(void **state)
{
	static const struct rig_case c = {.host0 = reg_send, .host1 = reg_recv};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* A QP that a peer breaks is destroyed at that very moment: the engine, which looks for broken ones
 * to flush, keeps none that is gone. */
#define BREAKS 200

static void breaks_send(struct rig *rig)
{
	rig_open(rig, 0);
	for (uint32_t i = 0; i < BREAKS; i++) {
		rig_connect(rig, 0, &rig_defaults);
		CHECK(post_bad_rkey(rig) == 0);
		CHECK(rig_poll(rig).status == IBV_WC_REM_ACCESS_ERR);
		CHECK(ibv_destroy_qp(rig->qps[0]) == 0);
		rig->qps[0] = NULL;
		rig_barrier(rig);
	}
	rig_close(rig);
}

static void breaks_recv(struct rig *rig)
{
	rig_open(rig, 0);
	for (uint32_t i = 0; i < BREAKS; i++) {
		rig_connect(rig, 0, &rig_defaults);
		/* Told by the engine, which looks for broken QPs next. */
		CHECK(rig_event(rig) == IBV_EVENT_QP_ACCESS_ERR);
		CHECK(ibv_destroy_qp(rig->qps[0]) == 0);
		rig->qps[0] = NULL;
		rig_barrier(rig);
	}
	rig_close(rig);
}

static void test_destroy_broken(void **state)
{
	static const struct rig_case c = {.host0 = breaks_send, .host1 = breaks_recv};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_dereg),
		cmocka_unit_test(test_registration),
		cmocka_unit_test(test_destroy_broken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
