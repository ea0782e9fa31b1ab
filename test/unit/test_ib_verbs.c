/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/qp.h"
#include "ib/verbs_load.h"
#include "ib_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_error_conventions(void **state)
{
	(void)state;
	assert_int_equal(ib_verbs_err(0), 0);
	assert_int_equal(ib_verbs_err(ENOMEM), -ENOMEM);
	errno = EBUSY;
	assert_int_equal(ib_verbs_err(-1), -EBUSY);
	errno = 0;
	assert_int_equal(ib_verbs_err(-1), -EIO);
	assert_int_equal(ib_verbs_err(-ENOMEM), -ENOMEM);
}

static void test_null_convention(void **state)
{
	struct ibv_pd *pd = (void *)&fake;
	struct ibv_context *ctx;

	(void)state;
	fake_reset();
	assert_int_equal(ib_verbs_open_device(&fake_handles[0], &ctx), 0);
	fake.fail_at = fake.call_count + 1;
	fake.fail_errno = EPERM;
	assert_int_equal(ib_verbs_alloc_pd(ctx, &pd), -EPERM);
	assert_ptr_equal(pd, &fake); /* outputs only on success */
	fake.fail_at = fake.call_count + 1;
	fake.fail_errno = 0; /* some providers forget it */
	assert_int_equal(ib_verbs_alloc_pd(ctx, &pd), -ENOMEM);
	assert_int_equal(ib_verbs_close_device(ctx), 0);
}

static void test_no_devices(void **state)
{
	struct ibv_device **list;
	int count = 7;

	(void)state;
	fake_reset();
	fake.fail_at = 1;
	fake.fail_errno = ENOSYS;
	assert_int_equal(ib_verbs_get_devices(&list, &count), 0);
	assert_int_equal(count, 0);
	ib_verbs_free_devices(list);
	fake_reset();
	fake.fail_at = 1;
	assert_int_equal(ib_verbs_get_devices(&list, &count), -ENOMEM);
	assert_int_equal(fake.live_count, 0);
}

/* What a newer library's port query and speed query add. */
static int ex_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr,
			 size_t len)
{
	uint32_t speed_ex = 256;

	(void)ctx;
	(void)port;
	assert_true(len >= sizeof(*attr) + sizeof(speed_ex));
	attr->active_speed = 128;
	attr->active_width = 2;
	memcpy((char *)attr + sizeof(*attr), &speed_ex, sizeof(speed_ex));
	return 0;
}

static void test_port_speed(void **state)
{
	struct verbs_context vctx = {.sz = sizeof(vctx), .query_port = ex_query_port};
	struct ibv_context *ctx;
	struct ibv_port_attr attr;
	uint32_t speed_mbps;

	(void)state;
	fake_reset();
	assert_int_equal(ib_verbs_open_device(&fake_handles[0], &ctx), 0);
	assert_int_equal(ib_verbs_query_port(ctx, 1, &attr, &speed_mbps), 0);
	assert_int_equal(speed_mbps, 200000);
	assert_int_equal(attr.lid, 11);
	vctx.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	assert_int_equal(ib_verbs_query_port(&vctx.context, 1, &attr, &speed_mbps), 0);
	assert_int_equal(speed_mbps, 800000);
	assert_int_equal(ib_verbs_close_device(ctx), 0);
}

static void test_gid_fallback(void **state)
{
	struct ibv_context *ctx;
	union ibv_gid gid;
	int type;

	(void)state;
	fake_reset();
	assert_int_equal(ib_verbs_open_device(&fake_handles[0], &ctx), 0);
	fake.devices[0].gid_types[0] = IBV_GID_TYPE_ROCE_V2;
	assert_int_equal(ib_verbs_query_gid(ctx, 1, 0, &gid, &type), 0);
	assert_int_equal(type, IBV_GID_TYPE_ROCE_V2);
	fake.fail_errno = EOPNOTSUPP;
	fake.fail_at = fake.call_count + 1;
	assert_int_equal(ib_verbs_query_gid(ctx, 1, 0, &gid, &type), 0);
	assert_int_equal(type, -1);
	assert_memory_equal(gid.raw, fake.devices[0].gids[0].raw, 16);
	fake.fail_errno = ENODATA; /* an unused entry is not asked for twice */
	fake.fail_at = fake.call_count + 1;
	assert_int_equal(ib_verbs_query_gid(ctx, 1, 0, &gid, &type), -ENODATA);
	assert_int_equal(ib_verbs_close_device(ctx), 0);
}

static void test_old_library(void **state)
{
	struct ib_verbs_syms syms = {.reg_mr = fake_reg_mr, .dereg_mr = fake_dereg_mr};
	const struct ib_dmabuf buf = {.fd = 3};
	struct ibv_pd pd = {0};
	struct ibv_mr *mr;

	(void)state;
	fake_reset();
	ib_verbs_use(&syms);
	assert_false(ib_verbs_has_iova2());
	assert_int_equal(ib_verbs_reg_mr(&pd, &fake, 8,
					 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING, &mr),
			 0);
	assert_int_equal(fake.reg_access, IBV_ACCESS_LOCAL_WRITE);
	assert_int_equal(ib_verbs_dereg_mr(mr), 0);
	assert_int_equal(ib_verbs_reg_dmabuf(&pd, &buf, 0, &mr), -EOPNOTSUPP);
}

static void test_library_missing(void **state)
{
	const char *const missing[] = {NULL, "", "libnot-there-1.so", "libnot-there-2.so"};
	const char *const wrong[] = {"libnot-there-1.so", "libm.so.6"};
	struct ib_verbs_syms syms;

	(void)state;
	fake_reset();
	assert_int_equal(ib_verbs_library_open(missing, 4, &syms), -ENOENT);
	assert_non_null(strstr(fake.log, "libnot-there-1.so"));
	assert_non_null(strstr(fake.log, "libnot-there-2.so"));
	assert_non_null(strstr(fake.log, "install libibverbs1"));
	fake_reset();
	assert_int_equal(ib_verbs_library_open(wrong, 2, &syms), -ENOSYS);
	assert_non_null(strstr(fake.log, "libm.so.6 has no symbol ibv_get_device_list"));
}

static void test_event_names(void **state)
{
	(void)state;
	fake_reset();
	assert_string_equal(ib_verbs_event_name(IBV_EVENT_PORT_ERR), "port error");
}

static void test_causes(void **state)
{
	(void)state;
	assert_int_equal(ib_wc_cause(IBV_WC_SUCCESS), CAUSE_NONE);
	assert_int_equal(ib_wc_cause(IBV_WC_WR_FLUSH_ERR), CAUSE_FLUSH);
	assert_int_equal(ib_wc_cause(IBV_WC_RETRY_EXC_ERR), CAUSE_RETRY_EXC);
	/* nothing that points at memory, keys or lengths may be taken for a path's fault */
	for (int status = 0; status <= IBV_WC_TM_RNDV_INCOMPLETE; status++) {
		enum cause cause = ib_wc_cause(status);
		enum cause_class want = CAUSE_CLASS_PATH;

		switch (status) {
		case IBV_WC_SUCCESS:
		case IBV_WC_WR_FLUSH_ERR:
			want = CAUSE_CLASS_ECHO;
			break;
		case IBV_WC_LOC_LEN_ERR:
		case IBV_WC_LOC_PROT_ERR:
		case IBV_WC_MW_BIND_ERR:
		case IBV_WC_BAD_RESP_ERR:
		case IBV_WC_LOC_ACCESS_ERR:
		case IBV_WC_REM_INV_REQ_ERR:
		case IBV_WC_REM_ACCESS_ERR:
		case IBV_WC_LOC_RDD_VIOL_ERR:
		case IBV_WC_REM_INV_RD_REQ_ERR:
		case IBV_WC_TM_ERR:
		case IBV_WC_TM_RNDV_INCOMPLETE:
			want = CAUSE_CLASS_SOFT;
			break;
		default:
			break;
		}
		if (cause_class(cause) != want || (status != 0 && cause == CAUSE_NONE)) {
			fail_msg("status %d: cause %s", status, cause_name(cause));
		}
	}
	assert_int_equal(ib_wc_cause(999), CAUSE_GENERAL);
	assert_int_equal(ib_wc_cause(-1), CAUSE_GENERAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_error_conventions),
		cmocka_unit_test(test_null_convention),
		cmocka_unit_test(test_no_devices),
		cmocka_unit_test(test_port_speed),
		cmocka_unit_test(test_gid_fallback),
		cmocka_unit_test(test_old_library),
		cmocka_unit_test(test_library_missing),
		cmocka_unit_test(test_event_names),
		cmocka_unit_test(test_causes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
