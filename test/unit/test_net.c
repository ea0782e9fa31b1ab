/* SPDX-License-Identifier: Apache-2.0 */

/* What the version tables hand to the core, and what they refuse or hide. */

#include "plugin/net_tables.h"
#include "test/unit/fake_core.h"

#include <limits.h>

static enum nccl_result profiler(void **event, int type, void *parent, int64_t id, void *data)
{
	(void)event;
	(void)type;
	(void)parent;
	(void)id;
	(void)data;
	return NCCL_RESULT_SUCCESS;
}

static void test_init_old(void **state)
{
	(void)state;
	assert_int_equal(ncclNetPlugin_v8.init(sink), 0);
	assert_int_equal(ncclNetPlugin_v10.init(sink, profiler), 0);
	assert_int_equal(core.init_count, 2);
	assert_true(core.profiler == profiler);
	core.rc = -ENOMEM;
	assert_int_equal(ncclNetPlugin_v6.init(sink), NCCL_RESULT_SYSTEM);
}

static int connect_class(void *ctx)
{
	void *comm = REQUEST;

	core.traffic_class = -99;
	assert_int_equal(ncclNetPlugin_v11.connect(ctx, 1, pointed, &comm, NULL), 0);
	assert_null(comm);
	return core.traffic_class;
}

static void *init_class(int traffic_class)
{
	struct nccl_net_config config = {traffic_class};
	void *ctx = REQUEST;

	assert_int_equal(ncclNetPlugin_v12.init(&ctx, 1, &config, sink, NULL), 0);
	assert_non_null(ctx);
	return ctx;
}

static void test_ctx(void **state)
{
	static const int classes[] = {0, 1, 105, 255};
	void *ctx;

	(void)state;
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
		ctx = init_class(classes[i]);
		assert_int_equal(connect_class(ctx), classes[i]);
		assert_int_equal(ncclNetPlugin_v11.finalize(ctx), 0);
	}
	ctx = init_class(INT_MIN);
	assert_int_equal(connect_class(ctx), -1);
	ncclNetPlugin_v11.finalize(ctx);
	ctx = init_class(256);
	assert_int_equal(connect_class(ctx), -1);
	ncclNetPlugin_v11.finalize(ctx);
	assert_int_equal(ncclNetPlugin_v11.init(&ctx, 1, NULL, sink, NULL), 0);
	assert_int_equal(connect_class(ctx), -1);
	ncclNetPlugin_v11.finalize(ctx);
	assert_int_equal(core.init_count, 7);
	assert_int_equal(core.finalize_count, 7);
}

/* NCCL 2.28.3 to 2.29.2 finalize after a failed init too, with whatever stands in ctx. */
static void test_finalize_traps(void **state)
{
	void *ctx = REQUEST;

	(void)state;
	core.rc = -ENOMEM;
	assert_int_equal(ncclNetPlugin_v11.init(&ctx, 1, NULL, sink, NULL), NCCL_RESULT_SYSTEM);
	assert_null(ctx);
	assert_int_equal(ncclNetPlugin_v11.finalize(ctx), 0);
	assert_int_equal(ncclNetPlugin_v11.finalize(REQUEST), 0);
	assert_int_equal(ncclNetPlugin_v11.finalize((void *)UINTPTR_MAX), 0);
	core.rc = 0;
	ctx = init_class(7);
	assert_int_equal(ncclNetPlugin_v11.finalize((char *)ctx - 3), 0);
	assert_int_equal(core.finalize_count, 0);
	assert_int_equal(init_class(7) == ctx, 1);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(ncclNetPlugin_v11.finalize(ctx), 0);
	}
	assert_int_equal(core.finalize_count, 2);
	assert_int_equal(connect_class(REQUEST), -1);
	assert_int_equal(connect_class(NULL), -1);
}

static void test_connect_and_accept(void **state)
{
	struct nccl_net_config config = {42};
	struct nccl_net_device_handle *handle = COMM;
	void *comm = REQUEST;

	(void)state;
	assert_int_equal(ncclNetPlugin_v6.connect(1, pointed, &comm), 0);
	assert_null(comm);
	assert_int_equal(core.traffic_class, -1);
	comm = REQUEST;
	assert_int_equal(ncclNetPlugin_v9.connect(1, pointed, &comm, &handle), 0);
	assert_null(comm);
	assert_int_equal(core.traffic_class, -1);
	assert_int_equal(ncclNetPlugin_v10.connect(1, &config, pointed, &comm, NULL), 0);
	assert_int_equal(core.traffic_class, 42);
	assert_int_equal(core.dev, 1);
	comm = REQUEST;
	assert_int_equal(ncclNetPlugin_v8.accept(COMM, &comm, &handle), 0);
	assert_null(comm);
	assert_ptr_equal(core.comm, COMM);
	assert_ptr_equal(handle, COMM);
	comm = REQUEST;
	assert_int_equal(ncclNetPlugin_v6.accept(COMM, &comm), 0);
	assert_null(comm);
	core.rc = -ECONNREFUSED;
	assert_int_equal(ncclNetPlugin_v6.connect(1, pointed, &comm), NCCL_RESULT_REMOTE);
	assert_int_equal(ncclNetPlugin_v12.connect(NULL, 1, pointed, &comm, NULL),
			 NCCL_RESULT_REMOTE);
	assert_int_equal(ncclNetPlugin_v12.listen(NULL, 5, pointed, &comm), NCCL_RESULT_REMOTE);
	assert_int_equal(core.dev, 5);
}

static void test_reg_mr(void **state)
{
	void *mh = NULL;

	(void)state;
	assert_int_equal(ncclNetPlugin_v7.reg_mr(COMM, DATA, INT_MAX, 2, &mh), 0);
	assert_true(core.size == INT_MAX && core.type == 2 && core.data == DATA && mh == MH);
	assert_int_equal(ncclNetPlugin_v7.reg_mr(COMM, DATA, -1, 2, &mh), 4);
	assert_string_equal(warned, "NET/Braid regMr: size -1 refused");
	assert_int_equal(ncclNetPlugin_v8.reg_mr(COMM, DATA, (size_t)1 << 40, 1, &mh), 0);
	assert_true(core.size == (size_t)1 << 40);
	assert_int_equal(ncclNetPlugin_v8.reg_mr(COMM, DATA, ((size_t)1 << 40) + 1, 1, &mh), 4);
	assert_int_equal(ncclNetPlugin_v8.reg_mr_dmabuf(COMM, DATA, 4096, 2, 64, 3, &mh), 0);
	assert_true(core.offset == 64 && core.fd == 3 && core.size == 4096);
	assert_int_equal(ncclNetPlugin_v8.reg_mr_dmabuf(COMM, DATA, SIZE_MAX, 2, 64, 3, &mh), 4);
	assert_int_equal(core.data_count, 3);
	core.rc = -ENOMEM;
	assert_int_equal(ncclNetPlugin_v8.reg_mr(COMM, DATA, 1, 1, &mh), NCCL_RESULT_SYSTEM);
	assert_int_equal(ncclNetPlugin_v8.dereg_mr(COMM, MH), 0);
	assert_ptr_equal(core.mh, MH);
}

static void test_isend(void **state)
{
	void *request = REQUEST;

	(void)state;
	assert_int_equal(ncclNetPlugin_v8.isend(COMM, DATA, 4096, 6, MH, &request), 0);
	assert_null(request);
	assert_true(core.comm == COMM && core.data == DATA && core.size == 4096 && core.tag == 6 &&
		    core.mh == MH);
	request = REQUEST;
	assert_int_equal(ncclNetPlugin_v8.isend(COMM, DATA, -4096, 6, MH, &request), 4);
	assert_null(request);
	assert_string_equal(warned, "NET/Braid isend: size -4096 refused");
	request = (void *)1;
	assert_int_equal(ncclNetPlugin_v9.isend(COMM, DATA, (size_t)1 << 33, 6, MH, &request), 0);
	assert_null(request);
	assert_true(core.size == (size_t)1 << 33);
	request = (void *)1;
	assert_int_equal(ncclNetPlugin_v12.isend(COMM, DATA, 0, 8, MH, COMM, &request), 0);
	assert_null(request);
	assert_true(core.size == 0 && core.tag == 8);
	assert_int_equal(core.data_count, 3);
	core.rc = -ENETDOWN;
	assert_int_equal(ncclNetPlugin_v12.isend(COMM, DATA, 0, 8, MH, NULL, &request),
			 NCCL_RESULT_REMOTE);
}

static void test_irecv(void **state)
{
	void *request = (void *)1;
	void *data[] = {DATA, NULL};
	void *mhs[] = {MH, NULL};
	int sizes[] = {512, 512};
	size_t wide[] = {(size_t)1 << 35, 1};
	int tags[] = {9, 9};

	(void)state;
	assert_int_equal(ncclNetPlugin_v8.irecv(COMM, 1, data, sizes, tags, mhs, &request), 0);
	assert_null(request);
	assert_true(core.n == 1 && core.size == 512 && core.tag == 9 && core.mh == MH);
	request = (void *)1;
	assert_int_equal(ncclNetPlugin_v9.irecv(COMM, 1, data, wide, tags, mhs, &request), 0);
	assert_null(request);
	assert_true(core.size == (size_t)1 << 35);
	request = (void *)1;
	assert_int_equal(ncclNetPlugin_v11.irecv(COMM, 1, data, wide, tags, mhs, NULL, &request),
			 0);
	assert_null(request);
	assert_int_equal(core.data_count, 3);
	sizes[0] = -2;
	request = REQUEST;
	assert_int_equal(ncclNetPlugin_v6.irecv(COMM, 1, data, sizes, tags, mhs, &request), 4);
	assert_null(request);
	sizes[0] = 1;
	assert_int_equal(ncclNetPlugin_v6.irecv(COMM, 2, data, sizes, tags, mhs, &request), 4);
	assert_int_equal(ncclNetPlugin_v6.irecv(COMM, 0, data, sizes, tags, mhs, &request), 4);
	assert_int_equal(ncclNetPlugin_v10.irecv(COMM, 2, data, wide, tags, mhs, NULL, &request),
			 4);
	assert_int_equal(core.data_count, 3);
}

static void test_iflush_and_test(void **state)
{
	void *request = REQUEST;
	void *data[] = {DATA};
	void *mhs[] = {MH};
	int sizes[] = {512};
	int done = 1;

	(void)state;
	assert_int_equal(ncclNetPlugin_v8.iflush(COMM, 1, data, sizes, mhs, &request), 0);
	assert_null(request);
	assert_int_equal(core.size, 512);
	assert_int_equal(ncclNetPlugin_v8.test(REQUEST, &done, sizes), 0);
	assert_int_equal(done, 0);
	assert_int_equal(sizes[0], 77);
	assert_ptr_equal(core.comm, REQUEST);
	assert_int_equal(ncclNetPlugin_v8.test(REQUEST, &done, NULL), 0);
	core.rc = -ECONNRESET;
	done = 1;
	assert_int_equal(ncclNetPlugin_v8.test(REQUEST, &done, NULL), NCCL_RESULT_REMOTE);
	assert_int_equal(done, 0);
}

static void test_close_never_fails(void **state)
{
	(void)state;
	core.rc = -EIO;
	assert_int_equal(ncclNetPlugin_v8.close_send(COMM), 0);
	assert_ptr_equal(core.comm, COMM);
	assert_int_equal(ncclNetPlugin_v8.close_recv(MH), 0);
	assert_ptr_equal(core.comm, MH);
	assert_int_equal(ncclNetPlugin_v8.close_listen(DATA), 0);
	assert_ptr_equal(core.comm, DATA);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_init_old, setup),
		cmocka_unit_test_setup(test_ctx, setup),
		cmocka_unit_test_setup(test_finalize_traps, setup),
		cmocka_unit_test_setup(test_connect_and_accept, setup),
		cmocka_unit_test_setup(test_reg_mr, setup),
		cmocka_unit_test_setup(test_isend, setup),
		cmocka_unit_test_setup(test_irecv, setup),
		cmocka_unit_test_setup(test_iflush_and_test, setup),
		cmocka_unit_test_setup(test_close_never_fails, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
