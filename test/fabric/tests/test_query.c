/* SPDX-License-Identifier: Apache-2.0 */

/* The surface: the versioned symbols NCCL looks up, what devices say about themselves, and that
 * shorter structs than this library's are not overrun. */

#include "test/fabric/tests/rig.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#undef ibv_query_port

struct symbol {
	const char *name;
	const char *version;
};

static const struct symbol symbols[] = {
	{"ibv_get_device_list", "IBVERBS_1.1"},
	{"ibv_free_device_list", "IBVERBS_1.1"},
	{"ibv_get_device_name", "IBVERBS_1.1"},
	{"ibv_open_device", "IBVERBS_1.1"},
	{"ibv_close_device", "IBVERBS_1.1"},
	{"ibv_get_async_event", "IBVERBS_1.1"},
	{"ibv_ack_async_event", "IBVERBS_1.1"},
	{"ibv_query_device", "IBVERBS_1.1"},
	{"ibv_query_port", "IBVERBS_1.1"},
	{"ibv_query_gid", "IBVERBS_1.1"},
	{"ibv_query_qp", "IBVERBS_1.1"},
	{"ibv_alloc_pd", "IBVERBS_1.1"},
	{"ibv_dealloc_pd", "IBVERBS_1.1"},
	{"ibv_reg_mr", "IBVERBS_1.1"},
	{"ibv_dereg_mr", "IBVERBS_1.1"},
	{"ibv_create_cq", "IBVERBS_1.1"},
	{"ibv_destroy_cq", "IBVERBS_1.1"},
	{"ibv_create_qp", "IBVERBS_1.1"},
	{"ibv_modify_qp", "IBVERBS_1.1"},
	{"ibv_destroy_qp", "IBVERBS_1.1"},
	{"ibv_fork_init", "IBVERBS_1.1"},
	{"ibv_event_type_str", "IBVERBS_1.1"},
	{"ibv_wc_status_str", "IBVERBS_1.1"},
	{"ibv_get_cq_event", "IBVERBS_1.1"},
	{"ibv_ack_cq_events", "IBVERBS_1.1"},
	{"ibv_create_comp_channel", "IBVERBS_1.0"},
	{"ibv_destroy_comp_channel", "IBVERBS_1.0"},
	{"ibv_reg_mr_iova2", "IBVERBS_1.8"},
	{"ibv_query_ece", "IBVERBS_1.10"},
	{"ibv_set_ece", "IBVERBS_1.10"},
	{"_ibv_query_gid_ex", "IBVERBS_1.11"},
	{"ibv_reg_dmabuf_mr", "IBVERBS_1.12"},
};

static void test_symbols(void **state)
{
	void *handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

	(void)state;
	assert_non_null(handle);
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		if (dlvsym(handle, symbols[i].name, symbols[i].version) == NULL) {
			fail_msg("%s@%s", symbols[i].name, symbols[i].version);
		}
	}
	dlclose(handle);
}

/* A caller's struct of `len` bytes with a mark behind it. */
struct guarded {
	uint8_t bytes[512];
	size_t len;
};

static void *guard(struct guarded *g, size_t len)
{
	memset(g->bytes, 0xa5, sizeof(g->bytes));
	g->len = len;
	return g->bytes;
}

static void guard_check(const struct guarded *g)
{
	for (size_t i = g->len; i < sizeof(g->bytes); i++) {
		CHECK(g->bytes[i] == 0xa5);
	}
}

/* Sizes NCCL was compiled with, where they are smaller than this header's. */
#define NCCL_QP_ATTR_LEN   136
#define COMPAT_PORT_LEN    50 /* ends with link_layer and flags */
#define RDMA_DEVICE_LEN    sizeof(struct ibv_device_attr)
#define RDMA_INIT_ATTR_LEN 64

static void query_one(struct rig *rig)
{
	struct guarded a;
	struct guarded b;
	struct ibv_device_attr device;
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	__be16 pkey;

	rig_open(rig, 1);
	rig->qps[0] = rig_qp_create(rig, &rig_defaults);
	CHECK(ibv_query_qp(rig->qps[0], guard(&a, NCCL_QP_ATTR_LEN), IBV_QP_STATE,
			   guard(&b, RDMA_INIT_ATTR_LEN)) == 0);
	guard_check(&a);
	guard_check(&b);
	CHECK(ibv_query_port(rig->context, 1, guard(&a, COMPAT_PORT_LEN)) == 0);
	guard_check(&a);
	CHECK(ibv_query_device(rig->context, guard(&a, RDMA_DEVICE_LEN)) == 0);
	guard_check(&a);
	CHECK(ibv_query_port(rig->context, 2, guard(&a, COMPAT_PORT_LEN)) == EINVAL);
	CHECK(ibv_query_device(rig->context, &device) == 0);
	CHECK(device.node_guid == ibv_get_device_guid(rig->context->device));
	CHECK(ibv_query_gid(rig->context, 1, 0, &gid) == 0);
	CHECK(ibv_query_gid(rig->context, 1, 1, &gid) == -1);
	CHECK(ibv_query_gid_ex(rig->context, 1, 0, &entry, 0) == 0);
	CHECK(ibv_query_gid_ex(rig->context, 1, 1, &entry, 0) == ENODATA);
	CHECK(memcmp(&entry.gid, &gid, sizeof(gid)) == 0);
	CHECK(ibv_query_pkey(rig->context, 1, 0, &pkey) == 0 && pkey == 0xffff);
	CHECK(strcmp(ibv_get_device_name(rig->context->device), "fab1") == 0);
	/* No two devices of the fabric are alike. */
	rig_send(rig, &device.sys_image_guid, sizeof(device.sys_image_guid));
	rig_recv(rig, &device.node_guid, sizeof(device.node_guid));
	CHECK(device.node_guid != device.sys_image_guid);
	rig_close(rig);
}

static void test_queries(void **state)
{
	static const struct rig_case ib = {.host0 = query_one, .host1 = query_one};
	static const struct rig_case roce = {
		.host0 = query_one, .host1 = query_one, .env = {"FABRIC_LINK", "roce"}};

	(void)state;
	assert_int_equal(rig_run(&ib), 0);
	assert_int_equal(rig_run(&roce), 0);
}

/* 500 QPs on a rail are cheap, and closing with everything still alive leaves nothing. */
static void many_one(struct rig *rig)
{
	uint64_t start_ns = rig_now_ns();

	rig_open(rig, 0);
	for (uint32_t i = 0; i < 500; i++) {
		CHECK(rig_qp_create(rig, &rig_defaults) != NULL);
	}
	CHECK(rig_now_ns() - start_ns < 5000000000ull);
	CHECK(ibv_close_device(rig->context) == 0);
}

static void test_many_qps(void **state)
{
	static const struct rig_case c = {.host0 = many_one, .host1 = many_one};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* Opening and closing at once, often: the engine must not sleep through its end. */
static void reopen_one(struct rig *rig)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	(void)rig;
	CHECK(list != NULL);
	for (uint32_t i = 0; i < 2000; i++) {
		struct ibv_context *context = ibv_open_device(list[0]);

		CHECK(context != NULL);
		CHECK(ibv_close_device(context) == 0);
	}
	ibv_free_device_list(list);
}

static void test_reopen(void **state)
{
	static const struct rig_case c = {.host0 = reopen_one, .host1 = reopen_one};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_symbols),
		cmocka_unit_test(test_queries),
		cmocka_unit_test(test_many_qps),
		cmocka_unit_test(test_reopen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
