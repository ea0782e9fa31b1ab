/* SPDX-License-Identifier: Apache-2.0 */
#include "include/limits.h"
#include "plugin/pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct rail_desc ib_rail(unsigned int nr, uint8_t subnet, uint8_t dist, uint32_t speed_mbps)
{
	struct rail_desc rail = {.port = 1,
				 .link_layer = RAIL_LINK_INFINIBAND,
				 .dist = dist,
				 .speed_mbps = speed_mbps};

	snprintf(rail.name, sizeof(rail.name), "mlx5_%u", nr);
	rail.gid[0] = 0xfe;
	rail.gid[1] = 0x80;
	rail.gid[7] = subnet;
	rail.gid[15] = (uint8_t)nr;
	return rail;
}

static struct rail_desc roce_rail(uint8_t net, uint8_t host)
{
	struct rail_desc rail = {.port = 1, .link_layer = RAIL_LINK_ETHERNET, .speed_mbps = 100000};

	rail.gid[10] = 0xff;
	rail.gid[11] = 0xff;
	rail.gid[12] = 10;
	rail.gid[14] = net;
	rail.gid[15] = host;
	return rail;
}

/* Subnets decide, not positions: the peer lists its rails the other way round. */
static void test_subnet_beats_order(void **state)
{
	struct rail_desc local[] = {ib_rail(0, 1, 0, 400000), ib_rail(1, 2, 0, 400000),
				    ib_rail(2, 3, 0, 400000)};
	struct rail_desc remote[] = {ib_rail(0, 3, 0, 400000), ib_rail(1, 2, 0, 400000),
				     ib_rail(2, 1, 0, 400000)};
	struct rail_pair pairs[PATHS_MAX];

	(void)state;
	assert_int_equal(rail_pair_all(local, 3, remote, 3, pairs, PATHS_MAX), 3);
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(local[pairs[i].local].gid[7], remote[pairs[i].remote].gid[7]);
	}
}

/* A rail whose subnet the peer lacks is parked, not paired across subnets. */
static void test_unpaired_is_parked(void **state)
{
	struct rail_desc local[] = {ib_rail(0, 1, 0, 400000), ib_rail(1, 9, 0, 400000)};
	struct rail_desc remote[] = {ib_rail(0, 1, 0, 400000), ib_rail(1, 2, 0, 400000)};
	struct rail_pair pairs[PATHS_MAX];

	(void)state;
	assert_int_equal(rail_pair_all(local, 2, remote, 2, pairs, PATHS_MAX), 1);
	assert_int_equal(pairs[0].local, 0);
	assert_int_equal(pairs[0].remote, 0);
}

/* With no subnet in common routing may still join them. */
static void test_cross_subnet_as_last_resort(void **state)
{
	struct rail_desc local[] = {ib_rail(0, 1, 0, 400000)};
	struct rail_desc remote[] = {ib_rail(0, 2, 0, 400000)};
	struct rail_pair pairs[PATHS_MAX];

	(void)state;
	assert_int_equal(rail_pair_all(local, 1, remote, 1, pairs, PATHS_MAX), 1);
}

static void test_link_layers_never_mix(void **state)
{
	struct rail_desc local[] = {ib_rail(0, 1, 0, 100000)};
	struct rail_desc remote[] = {roce_rail(1, 2)};
	struct rail_pair pairs[PATHS_MAX];

	(void)state;
	assert_int_equal(rail_pair_all(local, 1, remote, 1, pairs, PATHS_MAX), 0);
}

static void test_roce_subnet(void **state)
{
	struct rail_desc local[] = {roce_rail(1, 1), roce_rail(2, 1)};
	struct rail_desc remote[] = {roce_rail(2, 2), roce_rail(1, 2)};
	struct rail_pair pairs[PATHS_MAX];

	(void)state;
	assert_int_equal(rail_pair_all(local, 2, remote, 2, pairs, PATHS_MAX), 2);
	assert_int_equal(local[pairs[0].local].gid[14], remote[pairs[0].remote].gid[14]);
	assert_int_equal(local[pairs[1].local].gid[14], remote[pairs[1].remote].gid[14]);
}

/* Near rails come first and near ones are not spent on far ones. */
static void test_nearness_sorts(void **state)
{
	struct rail_desc local[] = {ib_rail(0, 1, 0, 400000), ib_rail(1, 1, 2, 400000)};
	struct rail_desc remote[] = {ib_rail(0, 1, 0, 400000), ib_rail(1, 1, 1, 400000)};
	struct rail_pair pairs[PATHS_MAX];

	(void)state;
	assert_int_equal(rail_pair_all(local, 2, remote, 2, pairs, PATHS_MAX), 2);
	assert_int_equal(pairs[0].local, 0);
	assert_int_equal(pairs[0].remote, 0);
	assert_int_equal(pairs[0].dist, 0);
	assert_int_equal(pairs[1].dist, 2);
}

static void test_equal_speeds_meet(void **state)
{
	struct rail_desc local[] = {ib_rail(0, 1, 0, 100000), ib_rail(1, 1, 0, 400000)};
	struct rail_desc remote[] = {ib_rail(0, 1, 0, 400000), ib_rail(1, 1, 0, 100000)};
	struct rail_pair pairs[PATHS_MAX];

	(void)state;
	assert_int_equal(rail_pair_all(local, 2, remote, 2, pairs, PATHS_MAX), 2);
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(local[pairs[i].local].speed_mbps,
				 remote[pairs[i].remote].speed_mbps);
	}
}

static void test_max_is_kept_and_rails_used_once(void **state)
{
	struct rail_desc local[PATHS_MAX], remote[PATHS_MAX];
	struct rail_pair pairs[PATHS_MAX];
	uint32_t used_local = 0, used_remote = 0;

	(void)state;
	for (unsigned int i = 0; i < PATHS_MAX; i++) {
		local[i] = ib_rail(i, 1, 0, 400000);
		remote[i] = ib_rail(i, 1, 0, 400000);
	}
	assert_int_equal(rail_pair_all(local, PATHS_MAX, remote, PATHS_MAX, pairs, 5), 5);
	assert_int_equal(rail_pair_all(local, PATHS_MAX, remote, PATHS_MAX, pairs, PATHS_MAX),
			 PATHS_MAX);
	for (unsigned int i = 0; i < PATHS_MAX; i++) {
		used_local |= 1u << pairs[i].local;
		used_remote |= 1u << pairs[i].remote;
	}
	assert_int_equal(used_local, (1u << PATHS_MAX) - 1);
	assert_int_equal(used_remote, (1u << PATHS_MAX) - 1);
	assert_int_equal(rail_pair_all(local, 0, remote, 3, pairs, PATHS_MAX), 0);
}

/* What is up goes together first, and what is down waits in its place by distance. */
static void test_down_comes_last(void **state)
{
	struct rail_desc local[] = {ib_rail(0, 1, 0, 400000), ib_rail(1, 1, 1, 400000),
				    ib_rail(2, 1, 0, 400000)};
	struct rail_desc remote[] = {ib_rail(0, 1, 0, 400000), ib_rail(1, 1, 1, 400000),
				     ib_rail(2, 1, 0, 400000)};
	struct rail_pair pairs[PATHS_MAX];

	(void)state;
	local[0].is_down = 1;
	remote[2].is_down = 1;
	assert_int_equal(rail_pair_all(local, 3, remote, 3, pairs, PATHS_MAX), 3);
	assert_int_equal(pairs[0].local, 2);
	assert_int_equal(pairs[0].remote, 0);
	assert_int_equal(pairs[0].is_down, 0);
	assert_int_equal(pairs[1].local, 0);
	assert_int_equal(pairs[1].remote, 2);
	assert_int_equal(pairs[1].is_down, 1);
	assert_int_equal(pairs[1].dist, 0);
	assert_int_equal(pairs[2].local, 1);
	assert_int_equal(pairs[2].dist, 1);
	assert_int_equal(pairs[2].is_down, 0);
}

/* A subnet in common counts only where packets can go: else the pairs cross subnets, as without the
 * rails that are down. */
static void test_down_is_no_subnet(void **state)
{
	struct rail_desc local[] = {ib_rail(0, 1, 0, 400000), ib_rail(1, 2, 0, 400000)};
	struct rail_desc remote[] = {ib_rail(0, 2, 0, 400000)};
	struct rail_pair pairs[PATHS_MAX];

	(void)state;
	local[1].is_down = 1;
	assert_int_equal(rail_pair_all(local, 2, remote, 1, pairs, PATHS_MAX), 1);
	assert_int_equal(pairs[0].local, 0);
	assert_int_equal(pairs[0].is_down, 0);
}

/* Two processes of one host, each with another card as its own: a card that dies ends one path. */
static void test_port_meets_itself(void **state)
{
	struct rail_desc local[] = {ib_rail(0, 1, 0, 400000), ib_rail(1, 1, 0, 400000)};
	struct rail_desc remote[2];
	struct rail_pair pairs[PATHS_MAX];

	(void)state;
	local[0].guid = 7;
	local[1].guid = 8;
	remote[0] = local[1];
	remote[1] = local[0];
	assert_int_equal(rail_pair_all(local, 2, remote, 2, pairs, PATHS_MAX), 2);
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(local[pairs[i].local].guid, remote[pairs[i].remote].guid);
		assert_int_equal(pairs[i].dist, 0);
	}
	remote[0].dist = 1; /* nearness comes first: it costs bandwidth all the time */
	assert_int_equal(rail_pair_all(local, 2, remote, 1, pairs, PATHS_MAX), 1);
	local[1].dist = 2;
	assert_int_equal(rail_pair_all(local, 2, remote, 1, pairs, PATHS_MAX), 1);
	assert_int_equal(pairs[0].local, 0);
	assert_int_equal(pairs[0].dist, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_subnet_beats_order),
		cmocka_unit_test(test_unpaired_is_parked),
		cmocka_unit_test(test_cross_subnet_as_last_resort),
		cmocka_unit_test(test_link_layers_never_mix),
		cmocka_unit_test(test_roce_subnet),
		cmocka_unit_test(test_nearness_sorts),
		cmocka_unit_test(test_equal_speeds_meet),
		cmocka_unit_test(test_port_meets_itself),
		cmocka_unit_test(test_max_is_kept_and_rails_used_once),
		cmocka_unit_test(test_down_comes_last),
		cmocka_unit_test(test_down_is_no_subnet),
	};

	return cmocka_run_group_tests_name("pair", tests, NULL, NULL);
}
