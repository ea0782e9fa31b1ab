/* SPDX-License-Identifier: Apache-2.0 */

/* What the header reaches through the context, past the symbols: refused with EOPNOTSUPP. */

#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

/* Refuses, and errno says why. */
#define REFUSED(call)                                                                              \
	do {                                                                                       \
		errno = 0;                                                                         \
		CHECK((call) == NULL);                                                             \
		CHECK(errno == EOPNOTSUPP);                                                        \
	} while (0)

static void objects(struct rig *rig)
{
	struct ibv_xrcd_init_attr xrcd = {.fd = -1};
	struct ibv_cq_init_attr_ex cq = {.cqe = 16};
	struct ibv_flow_attr flow = {.port = 1};
	struct ibv_alloc_dm_attr dm = {.length = 64};
	struct ibv_td_init_attr td = {.comp_mask = 0};
	struct ibv_parent_domain_init_attr domain = {.pd = rig->pd};
	struct ibv_wq_init_attr wq = {.pd = rig->pd, .cq = rig->cq};
	struct ibv_rwq_ind_table_init_attr table = {.comp_mask = 0};
	struct ibv_counters_init_attr counters = {.comp_mask = 0};
	struct ibv_qp_open_attr open_attr = {.comp_mask = 0};

	REFUSED(ibv_alloc_mw(rig->pd, IBV_MW_TYPE_1));
	REFUSED(ibv_open_xrcd(rig->context, &xrcd));
	REFUSED(ibv_create_cq_ex(rig->context, &cq));
	REFUSED(ibv_create_flow(rig->qps[0], &flow));
	REFUSED(ibv_alloc_dm(rig->context, &dm));
	REFUSED(ibv_alloc_td(rig->context, &td));
	REFUSED(ibv_alloc_parent_domain(rig->context, &domain));
	REFUSED(ibv_alloc_null_mr(rig->pd));
	REFUSED(ibv_create_wq(rig->context, &wq));
	REFUSED(ibv_create_rwq_ind_table(rig->context, &table));
	REFUSED(ibv_create_counters(rig->context, &counters));
	REFUSED(ibv_open_qp(rig->context, &open_attr));
}

static void queues(struct rig *rig)
{
	struct ibv_qp_init_attr_ex more = {
		.send_cq = rig->cq,
		.recv_cq = rig->cq,
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = rig->pd,
	};
	struct ibv_srq_init_attr_ex srq = {
		.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_XRC,
		.pd = rig->pd,
	};
	struct ibv_qp_init_attr ud = {
		.send_cq = rig->cq, .recv_cq = rig->cq, .qp_type = IBV_QPT_UD};
	struct ibv_sge sge = {.addr = (uintptr_t)rig->buf, .length = 8, .lkey = rig->mr->lkey};
	struct ibv_modify_cq_attr moderate = {.attr_mask = IBV_CQ_ATTR_MODERATE};
	struct ibv_qp_rate_limit_attr rate = {.rate_limit = 1};
	struct ibv_values_ex values = {.comp_mask = 0};

	REFUSED(ibv_create_qp_ex(rig->context, &more));
	REFUSED(ibv_create_srq_ex(rig->context, &srq));
	REFUSED(ibv_create_qp(rig->pd, &ud));
	CHECK(ibv_advise_mr(rig->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EOPNOTSUPP);
	CHECK(ibv_modify_cq(rig->cq, &moderate) == EOPNOTSUPP);
	CHECK(ibv_modify_qp_rate_limit(rig->qps[0], &rate) == EOPNOTSUPP);
	CHECK(ibv_query_rt_values_ex(rig->context, &values) == EOPNOTSUPP);
}

/* A kernel without DMA-BUF, for any descriptor, and ECE, which everybody asks for. */
static void probes(struct rig *rig)
{
	struct ibv_ece ece = {.vendor_id = 0};
	int fd = memfd_create("buffer", MFD_CLOEXEC);

	CHECK(fd >= 0 && ftruncate(fd, 4096) == 0);
	REFUSED(ibv_reg_dmabuf_mr(rig->pd, 0, 4096, 0, fd, IBV_ACCESS_LOCAL_WRITE));
	REFUSED(ibv_reg_dmabuf_mr(rig->pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE));
	close(fd);
	CHECK(ibv_query_ece(rig->qps[0], &ece) == EOPNOTSUPP);
	CHECK(ibv_set_ece(rig->qps[0], &ece) == EOPNOTSUPP);
}

static void unknown_opcode(struct rig *rig)
{
	CHECK(rig_post(rig, 0, IBV_WR_SEND_WITH_INV, 1, 0, 8) == EOPNOTSUPP);
	CHECK(rig_post(rig, 0, IBV_WR_TSO, 1, 0, 8) == EOPNOTSUPP);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 2, 0, 8) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
}

static void asks(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	objects(rig);
	queues(rig);
	probes(rig);
	unknown_opcode(rig);
	rig_barrier(rig);
	rig_close(rig);
}

static void passive(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_barrier(rig);
	rig_close(rig);
}

static void test_refused(void **state)
{
	static const struct rig_case c = {.host0 = asks, .host1 = passive};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
