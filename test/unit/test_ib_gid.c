/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/gid.h"
#include "ib_fake.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static union ibv_gid gid(const char *text)
{
	union ibv_gid out = {.raw = {0}};

	if (strchr(text, ':') != NULL) {
		assert_int_equal(inet_pton(AF_INET6, text, out.raw), 1);
		return out;
	}
	out.raw[10] = out.raw[11] = 0xff;
	assert_int_equal(inet_pton(AF_INET, text, out.raw + 12), 1);
	return out;
}

static struct gid_entry entry(const char *text, int version)
{
	return (struct gid_entry){.gid = gid(text), .roce_version = version};
}

static const struct gid_wish v2_ip4 = {.family = AF_INET, .roce_version = 2, .range = ""};

/* The usual table of a port with an IPv4 address: both families, each in v1 and v2. */
static void test_usual_table(void **state)
{
	const struct gid_entry table[] = {entry("fe80::1", 1), entry("fe80::1", 2),
					  entry("10.0.0.1", 1), entry("10.0.0.1", 2)};
	const struct gid_wish v1 = {.family = AF_INET, .roce_version = 1, .range = ""};

	(void)state;
	assert_int_equal(ib_gid_choose(table, 4, &v2_ip4), 3);
	assert_int_equal(ib_gid_choose(table, 4, &v1), 2);
	assert_int_equal(ib_gid_choose(table, 2, &v2_ip4), 1);
}

static void test_family(void **state)
{
	const struct gid_entry table[] = {entry("2001:db8::1", 2), entry("10.0.0.1", 2),
					  entry("2001:db8::2", 2)};
	const struct gid_wish ip6 = {.family = AF_INET6, .roce_version = 2, .range = ""};

	(void)state;
	assert_int_equal(ib_gid_choose(table, 3, &v2_ip4), 1);
	assert_int_equal(ib_gid_choose(table, 3, &ip6), 0);
	/* a routable address of the other family before a link-local one */
	assert_int_equal(ib_gid_choose(table, 1, &v2_ip4), 0);
}

static void test_routable_first(void **state)
{
	const struct gid_entry table[] = {entry("169.254.3.4", 2), entry("fe80::5", 2),
					  entry("2001:db8::1", 1)};

	(void)state;
	assert_int_equal(ib_gid_choose(table, 3, &v2_ip4), 2);
	assert_int_equal(ib_gid_choose(table, 2, &v2_ip4), 0);
}

static void test_range(void **state)
{
	const struct gid_entry table[] = {entry("10.0.0.1", 2), entry("10.1.0.1", 2),
					  entry("10.1.0.2", 1)};
	struct gid_wish wish = {.family = AF_INET, .roce_version = 2, .range = "10.1.0.0/16"};

	(void)state;
	assert_int_equal(ib_gid_choose(table, 3, &wish), 1);
	wish.range = "10.1.0.2/32";
	assert_int_equal(ib_gid_choose(table, 3, &wish), 2);
	wish.range = "192.168.0.0/16";
	assert_int_equal(ib_gid_choose(table, 3, &wish), 0);
}

static void test_in_range(void **state)
{
	const union ibv_gid ip4 = gid("10.1.2.3");
	const union ibv_gid ip6 = gid("2001:db8:8000::1");

	(void)state;
	assert_true(ib_gid_in_range(&ip4, ""));
	assert_true(ib_gid_in_range(&ip4, "10.1.2.0/24"));
	assert_true(ib_gid_in_range(&ip4, "10.1.2.2/31"));
	assert_false(ib_gid_in_range(&ip4, "10.1.2.2/32"));
	assert_true(ib_gid_in_range(&ip4, "0.0.0.0/0"));
	assert_false(ib_gid_in_range(&ip4, "10.1.2.3/33"));
	assert_false(ib_gid_in_range(&ip4, "::/0"));
	assert_false(ib_gid_in_range(&ip4, "10.1.2.3"));
	assert_true(ib_gid_in_range(&ip6, "2001:db8:8000::/33"));
	assert_false(ib_gid_in_range(&ip6, "2001:db8::/33"));
	assert_true(ib_gid_in_range(&ip6, "2001:db8::/32"));
}

static void test_unusable(void **state)
{
	const struct gid_entry table[] = {entry("::", 2), entry("fe80::", 2), entry("0.0.0.0", 2),
					  entry("fe80::1", 0)};

	(void)state;
	assert_int_equal(ib_gid_choose(table, 3, &v2_ip4), -ENOENT);
	assert_int_equal(ib_gid_choose(table, 0, &v2_ip4), -ENOENT);
	assert_int_equal(ib_gid_choose(table, 4, &v2_ip4), 3);
}

static void test_text(void **state)
{
	const union ibv_gid ip4 = gid("10.1.2.3"), ip6 = gid("fe80::1:2");
	char out[GID_TEXT_MAX_BYTES];

	(void)state;
	assert_string_equal(ib_gid_text(&ip4, out), "10.1.2.3");
	assert_string_equal(ib_gid_text(&ip6, out), "fe80::1:2");
}

static void test_flid(void **state)
{
	const union ibv_gid routed = gid("fe80:0:1234::1"), plain = gid("fe80::1");

	(void)state;
	assert_int_equal(ib_gid_flid(&routed), 0x1234);
	assert_int_equal(ib_gid_flid(&plain), 0);
}

/* Reading the table of a port, with and without the types that a library may not tell. */
static void test_pick(void **state)
{
	struct braid_config cfg;
	struct ibv_context *ctx;
	struct gid_entry got;
	struct gid_port port = {.device = "fab0",
				.sysfs_root = "/nowhere",
				.port = 1,
				.link_layer = RAIL_LINK_ETHERNET,
				.table_len = 4};

	(void)state;
	fake_reset();
	config_default(&cfg);
	fake.devices[0].gid_count = 4;
	fake.devices[0].gids[0] = gid("fe80::1");
	fake.devices[0].gids[1] = gid("10.0.0.7");
	fake.devices[0].gids[2] = gid("10.0.0.7");
	fake.devices[0].gid_types[1] = IBV_GID_TYPE_ROCE_V1;
	fake.devices[0].gid_types[2] = IBV_GID_TYPE_ROCE_V2;
	ctx = fake_open_device(&fake_handles[0]);
	port.ctx = ctx;
	assert_int_equal(ib_gid_pick(&port, &cfg, &got), 0);
	assert_int_equal(got.idx, 2);
	assert_int_equal(got.roce_version, 2);
	assert_string_equal(fake.log, "");

	cfg.ib_gid_idx = 1;
	assert_int_equal(ib_gid_pick(&port, &cfg, &got), 0);
	assert_int_equal(got.idx, 1);
	cfg.ib_gid_idx = 3;
	assert_int_equal(ib_gid_pick(&port, &cfg, &got), -ENOENT);

	cfg.ib_gid_idx = -1;
	port.table_len = 1;
	assert_int_equal(ib_gid_pick(&port, &cfg, &got), 0);
	assert_int_equal(got.idx, 0);
	assert_string_equal(fake.log, ""); /* a try says nothing */
	ib_gid_warn(&port, &cfg, &got);
	assert_non_null(strstr(fake.log, "WARN NET/Braid fab0:1: only link-local"));

	/* InfiniBand takes index 0, whatever the other variables say, or a routed entry at 1 */
	port.link_layer = RAIL_LINK_INFINIBAND;
	port.table_len = 4;
	cfg.ib_gid_idx = 2;
	assert_int_equal(ib_gid_pick(&port, &cfg, &got), 0);
	assert_int_equal(got.idx, 0);
	fake.devices[0].gids[1] = gid("fe80:0:7::1");
	assert_int_equal(ib_gid_pick(&port, &cfg, &got), 0);
	assert_int_equal(got.idx, 1);
	fake_close_device(ctx);
}

/* Wishes that the table cannot meet are said, others not. */
static void test_warn(void **state)
{
	struct gid_port port = {.device = "fab0", .port = 1, .link_layer = RAIL_LINK_ETHERNET};
	struct gid_entry got = entry("10.0.0.7", 2);
	struct braid_config cfg;

	(void)state;
	fake_reset();
	config_default(&cfg);
	ib_gid_warn(&port, &cfg, &got);
	assert_string_equal(fake.log, "");
	strcpy(cfg.ib_addr_range, "10.0.0.0/29");
	ib_gid_warn(&port, &cfg, &got);
	assert_string_equal(fake.log, "");
	cfg.ib_roce_version = 1;
	ib_gid_warn(&port, &cfg, &got);
	assert_non_null(strstr(fake.log, "WARN NET/Braid fab0:1: no usable GID of RoCE version 1"));
	strcpy(cfg.ib_addr_range, "10.0.0.0/30");
	ib_gid_warn(&port, &cfg, &got);
	assert_non_null(
		strstr(fake.log, "no GID in NCCL_IB_ADDR_RANGE=10.0.0.0/30, using index 0"));

	/* an index that the user named is the user's business, and InfiniBand has no such wishes */
	fake_reset();
	got = entry("fe80::1", 2);
	cfg.ib_gid_idx = 0;
	ib_gid_warn(&port, &cfg, &got);
	cfg.ib_gid_idx = -1;
	port.link_layer = RAIL_LINK_INFINIBAND;
	ib_gid_warn(&port, &cfg, &got);
	assert_string_equal(fake.log, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_usual_table),    cmocka_unit_test(test_family),
		cmocka_unit_test(test_routable_first), cmocka_unit_test(test_range),
		cmocka_unit_test(test_in_range),       cmocka_unit_test(test_unusable),
		cmocka_unit_test(test_text),           cmocka_unit_test(test_flid),
		cmocka_unit_test(test_pick),           cmocka_unit_test(test_warn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
