/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/discover.h"
#include "ib_rails_rig.h"
#include "ib_tree.h"

#include <fcntl.h>

static int next_event(struct ib_rail *rail, enum ibv_event_type type, struct ib_event *out)
{
	fake.event.event_type = type;
	fake.has_event = true;
	return ib_rail_event_next(rail->rails, rail->device, out);
}

static void test_left_out(void **state)
{
	struct ib_rails *rails;

	(void)state;
	fake.device_count = 3;
	fake.devices[0].state = IBV_PORT_DOWN;
	fake.devices[1].transport = IBV_TRANSPORT_IWARP;
	rails = open_rails(2);
	assert_int_equal(ib_rails_device_count(rails), 1);
	assert_string_equal(rails->rails[0].name, "fab2");
	assert_int_equal(rails->rails[0].idx, 0);
	assert_string_equal(rails->rails[1].name, "fab0");
	assert_int_equal(rails->rails[1].idx, 1);
	assert_false(atomic_load(&rails->rails[1].port_up));
	assert_true(logged("port fab0:1 is no device for NCCL: port is down"));
	assert_true(logged("device fab1 left out: no InfiniBand transport"));
	close_rails(rails);
}

static void test_nothing_usable(void **state)
{
	struct ib_rails *rails;

	(void)state;
	fake.devices[0].state = fake.devices[1].state = IBV_PORT_INIT;
	rails = open_rails(2);
	assert_int_equal(ib_rails_device_count(rails), 0);
	close_rails(rails);
	assert_true(logged("WARN NET/Braid none of the ports fab0:1, fab1:1 can be used"));
	fake_reset();
	fake.device_count = 0;
	close_rails(open_rails(0));
	assert_true(logged("INFO NET/Braid no InfiniBand or RoCE port"));
}

/* A port that was down when it was found: not before it has been read does its address count. */
static void test_hidden(void **state)
{
	struct ib_rails *rails;
	struct ib_event event;
	struct ib_rail *rail;
	struct rail_desc desc;
	bool moved;

	(void)state;
	fake.devices[0].state = IBV_PORT_DOWN;
	fake.no_link = true;
	rails = open_rails(2);
	rail = &rails->rails[1];
	assert_string_equal(rail->label, "fab0:1");
	ib_rail_describe(rail, &desc);
	assert_in_range(desc.mtu, IBV_MTU_256, IBV_MTU_4096); /* a peer takes no other */
	assert_int_equal(desc.speed_mbps, 50000);
	fake.no_link = false;
	fake.devices[0].state = IBV_PORT_ACTIVE;
	fake.event.element.port_num = 1;
	assert_int_equal(next_event(rail, IBV_EVENT_PORT_ACTIVE, &event), 1);
	assert_int_equal(event.kind, IB_EVENT_PORT_UP);
	assert_false(atomic_load(&rail->port_up));
	assert_int_equal(ib_rail_refresh(rail, &cfg, &moved), 0);
	assert_true(moved);
	assert_true(atomic_load(&rail->port_up));
	assert_int_equal(atomic_load(&rail->speed_mbps), 200000);
	ib_rail_describe(rail, &desc);
	assert_int_equal(desc.mtu, IBV_MTU_4096);
	assert_int_equal(desc.speed_mbps, 200000);
	assert_int_equal(next_event(rail, IBV_EVENT_PORT_ERR, &event), 1);
	assert_false(atomic_load(&rail->port_up));
	assert_int_equal(next_event(rail, IBV_EVENT_PORT_ACTIVE, &event), 1);
	assert_true(atomic_load(&rail->port_up));
	close_rails(rails);
}

/* Without a link there is no address but the makeshift one, which stays; the proper one is taken.
 */
static void test_hidden_makeshift(void **state)
{
	static const union ibv_gid makeshift = {.raw = {0xfe, 0x80, [15] = 1}};
	static const union ibv_gid proper = {
		.raw = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 9}};
	struct fake_device *dev = &fake.devices[0];
	struct ib_rail_addr addr;
	struct ib_rails *rails;
	bool moved;

	(void)state;
	fake.device_count = 1;
	dev->state = IBV_PORT_DOWN;
	dev->link_layer = IBV_LINK_LAYER_ETHERNET;
	dev->gid_count = 2;
	dev->gids[0] = makeshift;
	dev->gids[1] = (union ibv_gid){.raw = {0}};
	dev->gid_types[0] = dev->gid_types[1] = IBV_GID_TYPE_ROCE_V2;
	rails = open_rails(1);
	assert_int_equal(rails->hidden_count, 1);
	dev->state = IBV_PORT_ACTIVE;
	dev->gids[1] = proper;
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), 0);
	ib_rail_addr_get(&rails->rails[0], &addr);
	assert_memory_equal(addr.gid.raw, proper.raw, sizeof(proper.raw));
	assert_int_equal(addr.gid_index, 1);
	close_rails(rails);
}

/* Why a rail is out is said when it changes, not with each attempt. */
static void test_out_said_once(void **state)
{
	struct ib_rails *rails = open_rails(2);
	bool moved;

	(void)state;
	fake.devices[0].state = IBV_PORT_DOWN;
	fake.log[0] = '\0';
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), -ENETDOWN);
	assert_true(logged("rail fab0:1: still out: port is down"));
	fake.log[0] = '\0';
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), -ENETDOWN);
	assert_string_equal(fake.log, "");
	fake.devices[0].state = IBV_PORT_INIT;
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), -ENETDOWN);
	assert_true(logged("rail fab0:1: still out: port is not configured"));
	fake.devices[0].state = IBV_PORT_ACTIVE;
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), 0);
	fake.log[0] = '\0';
	fake.devices[0].state = IBV_PORT_INIT;
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), -ENETDOWN);
	assert_true(logged("still out"));
	close_rails(rails);
}

#define CARD "devices/pci0000:00/0000:00:01.0"

/* A card with a physical (fab0) and a virtual (fab1) function, and another card (fab2). */
static bool make_cards(void)
{
	tree_folder(CARD "/0000:01:00.0");
	tree_folder(CARD "/0000:01:00.2");
	tree_folder("devices/pci0000:80/0000:80:01.0/0000:81:00.0");
	tree_folder("class/infiniband/fab0");
	tree_folder("class/infiniband/fab1");
	tree_folder("class/infiniband/fab2");
	return tree_link(CARD "/0000:01:00.0", "class/infiniband/fab0/device") &&
	       tree_link(CARD "/0000:01:00.2", "class/infiniband/fab1/device") &&
	       tree_link("devices/pci0000:80/0000:80:01.0/0000:81:00.0",
			 "class/infiniband/fab2/device") &&
	       tree_link(CARD "/0000:01:00.0", CARD "/0000:01:00.2/physfn");
}

/* A function that is down, of a port that is a rail by another one, found later. */
static void test_hidden_twin(void **state)
{
	struct discovery d = {.cfg = &cfg};
	struct ib_rails *rails = calloc(1, sizeof(*rails));

	(void)state;
	assert_true(tree_begin());
	assert_true(make_cards());
	d.sysfs_root = tree_root;
	d.rails = rails;
	assert_int_equal(pthread_mutex_init(&rails->lock, NULL), 0);
	fake.devices[1].state = IBV_PORT_DOWN;
	for (unsigned int i = 3; i-- > 0;) {
		ib_discover_device(&d, &fake_handles[i]);
	}
	ib_discover_finish(&d);
	assert_int_equal(rails->count, 2);
	assert_int_equal(rails->hidden_count, 0);
	assert_true(logged("port fab1:1 left out: same physical port as fab0:1"));
	close_rails(rails);
	assert_true(tree_end() == 0);
}

static void test_twin(void **state)
{
	struct discovery d = {.cfg = &cfg};
	struct ib_rails *rails = calloc(1, sizeof(*rails));

	(void)state;
	assert_true(tree_begin());
	assert_true(make_cards());
	d.sysfs_root = tree_root;
	d.rails = rails;
	for (unsigned int i = 0; i < 3; i++) {
		ib_discover_device(&d, &fake_handles[i]);
	}
	assert_int_equal(rails->count, 2);
	assert_true(logged("port fab1:1 left out: same physical port as fab0:1"));
	assert_int_equal(ib_rail_distance(&rails->rails[0], &rails->rails[1]), 2);
	assert_non_null(strstr(rails->rails[0].pci_path, "0000:01:00.0"));
	/* each is a rail when asked for; NCCL tells the functions of a card apart by port */
	cfg.ib_merge_vfs = false;
	ib_discover_device(&d, &fake_handles[1]);
	assert_int_equal(rails->count, 3);
	assert_ptr_equal(rails->rails[2].pci_path, rails->rails[0].pci_path);
	assert_int_equal(rails->rails[2].nccl_port, 2);
	assert_int_equal(ib_rail_distance(&rails->rails[0], &rails->rails[2]), 0);
	close_rails(rails);
	assert_int_equal(tree_end(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_left_out, setup),
		cmocka_unit_test_setup(test_nothing_usable, setup),
		cmocka_unit_test_setup(test_hidden, setup),
		cmocka_unit_test_setup(test_out_said_once, setup),
		cmocka_unit_test_setup(test_hidden_makeshift, setup),
		cmocka_unit_test_setup(test_hidden_twin, setup),
		cmocka_unit_test_setup(test_twin, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
