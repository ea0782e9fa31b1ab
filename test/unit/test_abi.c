/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Layout of tables and properties, read as NCCL does, by slot and by byte offset, with numbers
 * written here a second time, so that a slip in the declaration cannot hide.
 */

#include "plugin/net_adapt.h"
#include "plugin/net_tables.h"
#include "test/unit/fake_core.h"

typedef void (*slot_fn)(void);
#define F(function) ((slot_fn)(function))

/* Slots 1 to 21 of each table, in NCCL's order. */
static void expect_slots(const void *table, unsigned slot_count, const slot_fn *slots)
{
	const char *name;

	memcpy(&name, table, sizeof(name));
	assert_string_equal(name, "Braid");
	for (unsigned i = 0; i < slot_count; i++) {
		slot_fn slot;

		memcpy(&slot, (const char *)table + 8 * (i + 1), sizeof(slot));
		assert_true(slot == slots[i]);
	}
}

#define MIDDLE(reg_mr, isend, irecv)                                                               \
	F(reg_mr), F(net_reg_mr_dmabuf), F(net_dereg_mr), F(isend), F(irecv), F(net_iflush),       \
		F(net_test), F(net_close_send), F(net_close_recv), F(net_close_listen)

static void test_slots_to_v9(void **state)
{
	const slot_fn v6[] = {F(net_init_v6),
			      F(net_devices),
			      F(net_props_v6),
			      F(net_listen_v6),
			      F(net_connect_v6),
			      F(net_accept_v6),
			      MIDDLE(net_reg_mr_v6, net_isend_v6, net_irecv_v6)};
	const slot_fn v7[] = {F(net_init_v6),
			      F(net_devices),
			      F(net_props_v7),
			      F(net_listen_v6),
			      F(net_connect_v7),
			      F(net_accept_v7),
			      MIDDLE(net_reg_mr_v6, net_isend_v6, net_irecv_v6),
			      NULL,
			      NULL};
	const slot_fn v8[] = {F(net_init_v6),
			      F(net_devices),
			      F(net_props_v8),
			      F(net_listen_v6),
			      F(net_connect_v7),
			      F(net_accept_v7),
			      MIDDLE(net_reg_mr_v8, net_isend_v6, net_irecv_v6),
			      NULL,
			      NULL};
	const slot_fn v9[] = {F(net_init_v6),
			      F(net_devices),
			      F(net_props_v9),
			      F(net_listen_v6),
			      F(net_connect_v7),
			      F(net_accept_v7),
			      MIDDLE(net_reg_mr_v8, net_isend_v9, net_irecv_v9),
			      NULL,
			      NULL,
			      NULL};
	(void)state;
	expect_slots(&ncclNetPlugin_v6, 16, v6);
	expect_slots(&ncclNetPlugin_v7, 18, v7);
	expect_slots(&ncclNetPlugin_v8, 18, v8);
	expect_slots(&ncclNetPlugin_v9, 19, v9);
}

static void test_slots_from_v10(void **state)
{
	const slot_fn v10[] = {F(net_init_v10),
			       F(net_devices),
			       F(net_props_v9),
			       F(net_listen_v6),
			       F(net_connect_v10),
			       F(net_accept_v7),
			       MIDDLE(net_reg_mr_v8, net_isend_v10, net_irecv_v10),
			       NULL,
			       NULL,
			       NULL};
	const slot_fn v11[] = {F(net_init_v11),
			       F(net_devices),
			       F(net_props_v11),
			       F(net_listen_v11),
			       F(net_connect_v11),
			       F(net_accept_v7),
			       MIDDLE(net_reg_mr_v8, net_isend_v10, net_irecv_v10),
			       NULL,
			       NULL,
			       NULL,
			       F(net_finalize),
			       NULL};
	const slot_fn v12[] = {F(net_init_v11),
			       F(net_devices),
			       F(net_props_v12),
			       F(net_listen_v11),
			       F(net_connect_v11),
			       F(net_accept_v7),
			       MIDDLE(net_reg_mr_v8, net_isend_v10, net_irecv_v10),
			       NULL,
			       NULL,
			       NULL,
			       F(net_finalize),
			       NULL};

	(void)state;
	expect_slots(&ncclNetPlugin_v10, 19, v10);
	expect_slots(&ncclNetPlugin_v11, 21, v11);
	expect_slots(&ncclNetPlugin_v12, 21, v12);
}

static void *props; /* filled with 0xee before each call */

static int int_at(size_t offset)
{
	int value;

	memcpy(&value, (char *)props + offset, sizeof(value));
	return value;
}

static uint64_t word_at(size_t offset)
{
	uint64_t value;

	memcpy(&value, (char *)props + offset, sizeof(value));
	return value;
}

/* The head of every layout, and from speed_at on the five fields that stay together. */
static void expect_head(size_t speed_at)
{
	float latency_us;

	assert_string_equal((const char *)(uintptr_t)word_at(0), "mlx5_7");
	assert_string_equal((const char *)(uintptr_t)word_at(8), "/sys/x");
	assert_true(word_at(16) == 0x1122334455667788);
	assert_int_equal(int_at(24), 5);
	assert_int_equal(int_at(speed_at), 400000);
	assert_int_equal(int_at(speed_at + 4), 3);
	memcpy(&latency_us, (char *)props + speed_at + 8, sizeof(latency_us));
	assert_true(latency_us > 1.4F && latency_us < 1.6F);
	assert_int_equal(int_at(speed_at + 12), 1234);
	assert_int_equal(int_at(speed_at + 16), 1);
}

static void expect_v9_on(int dev)
{
	expect_head(36);
	assert_int_equal(int_at(28), 1);
	assert_int_equal(int_at(32), 11);
	assert_int_equal(int_at(56), 0);
	assert_int_equal(int_at(60), 0);
	assert_int_equal(int_at(64), 1);
	assert_int_equal(int_at(68), dev);
}

#define GET_PROPS(version, dev)                                                                    \
	(memset(props, 0xee, 256), ncclNetPlugin_v##version.properties((dev), props))

static void test_props(void **state)
{
	char room[256];

	(void)state;
	props = room;
	assert_int_equal(GET_PROPS(6, 0), 0);
	expect_head(28);
	assert_true(word_at(48) == 0xeeeeeeeeeeeeeeee);
	assert_int_equal(GET_PROPS(7, 0), 0);
	expect_head(28);
	assert_int_equal(int_at(48), 0);
	assert_int_equal(int_at(52), 0);
	assert_true(word_at(56) == 0xeeeeeeeeeeeeeeee);
	assert_int_equal(GET_PROPS(8, 0), 0);
	expect_head(32);
	assert_int_equal(int_at(28), 1);
	assert_int_equal(int_at(52), 0);
	assert_int_equal(int_at(56), 0);
	assert_true(word_at(64) == 0xeeeeeeeeeeeeeeee);
	assert_int_equal(GET_PROPS(9, 1), 0);
	expect_v9_on(1);
	assert_true(word_at(88) == 1ULL << 40 && word_at(96) == 1ULL << 39);
	assert_true(word_at(104) == 0xeeeeeeeeeeeeeeee);
	assert_int_equal(GET_PROPS(10, 1), 0);
	expect_v9_on(1);
	assert_int_equal(GET_PROPS(11, 1), 0);
	expect_v9_on(1);
	assert_true(word_at(88) == 1ULL << 40 && word_at(96) == 1ULL << 39);
	assert_int_equal(int_at(104), 1);
	assert_true(word_at(112) == 0xeeeeeeeeeeeeeeee);
	assert_int_equal(GET_PROPS(12, 1), 0);
	expect_v9_on(1);
	assert_true(word_at(104) == 1ULL << 40 && word_at(112) == 1ULL << 39);
	assert_int_equal(int_at(120), 1);
	assert_int_equal(int_at(124), 0x0009ffff);
	assert_true(word_at(128) == 0xeeeeeeeeeeeeeeee);
}

static void test_props_no_such_device(void **state)
{
	char room[256];

	(void)state;
	props = room;
	assert_int_equal(GET_PROPS(6, 2), 4);
	assert_int_equal(GET_PROPS(8, 2), 4);
	assert_int_equal(GET_PROPS(12, 2), 4);
	assert_true(word_at(0) == 0xeeeeeeeeeeeeeeee);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_slots_to_v9, setup),
		cmocka_unit_test_setup(test_slots_from_v10, setup),
		cmocka_unit_test_setup(test_props, setup),
		cmocka_unit_test_setup(test_props_no_such_device, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
