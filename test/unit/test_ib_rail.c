/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/discover.h"
#include "ib_rails_rig.h"
#include "ib_tree.h"

#include <fcntl.h>

static void test_open(void **state)
{
	struct ib_rails *rails = open_rails(2);
	const struct ib_rail *rail = &rails->rails[1];
	struct rail_desc desc;

	(void)state;
	assert_int_equal(rail->idx, 1);
	assert_string_equal(rail->name, "fab1");
	assert_string_equal(rail->label, "fab1:1");
	assert_int_equal(rail->link_layer, RAIL_LINK_INFINIBAND);
	assert_int_equal(rail->speed_mbps, 200000);
	assert_int_equal(rail->guid, 0xabc1);
	assert_int_equal(rail->nccl_port, 1);
	assert_int_equal(rail->device->attr.max_qp_wr, 1024);
	assert_true(rail->relaxed_ordering);
	assert_null(rail->pci_path);
	assert_int_equal(rail->numa_node, -1);
	assert_true(atomic_load(&rail->port_up));
	assert_true((fcntl(rail->device->ctx->async_fd, F_GETFL) & O_NONBLOCK) != 0);
	ib_rail_describe(rail, &desc);
	assert_string_equal(desc.name, "fab1");
	assert_int_equal(desc.lid, 11);
	assert_int_equal(desc.mtu, IBV_MTU_4096);
	assert_memory_equal(desc.gid, rail->addr.gid.raw, 16);
	/* no topology: equally near */
	assert_int_equal(ib_rail_distance(&rails->rails[0], rail), 0);
	assert_true(logged("rail 1: fab1:1 InfiniBand 200000 Mb/s"));
	close_rails(rails);
}

static void test_two_ports_share_device(void **state)
{
	struct ib_rails *rails;

	(void)state;
	fake.device_count = 1;
	fake.devices[0].port_count = 2;
	rails = open_rails(2);
	assert_ptr_equal(rails->rails[0].device, rails->rails[1].device);
	assert_string_equal(rails->rails[1].label, "fab0:2");
	close_rails(rails);
}

static void test_disabled(void **state)
{
	(void)state;
	cfg.ib_disable = true;
	close_rails(open_rails(0));
	assert_int_equal(fake.call_count, 0);
	assert_true(logged("NCCL_IB_DISABLE"));
}

static void test_filter(void **state)
{
	struct ib_rails *rails;

	(void)state;
	strcpy(cfg.ib_hca, "=fab1:1:5,fab7");
	rails = open_rails(1);
	assert_string_equal(rails->rails[0].name, "fab1");
	assert_int_equal(rails->rails[0].rail_id, 5);
	assert_int_equal(rails->rails[0].plane_id, -1);
	assert_true(logged("NCCL_IB_HCA: nothing is named fab7; there are: fab0:1, fab1:1"));
	close_rails(rails);
}

static void test_filter_matches_nothing(void **state)
{
	(void)state;
	strcpy(cfg.ib_hca, "mlx5");
	close_rails(open_rails(0));
	assert_true(logged("WARN NET/Braid NCCL_IB_HCA=mlx5 leaves none of the ports that exist: "
			   "fab0:1, fab1:1"));
}

static void test_filter_malformed(void **state)
{
	(void)state;
	strcpy(cfg.ib_hca, "fab0:x");
	close_rails(open_rails(0));
	assert_true(logged("NCCL_IB_HCA=fab0:x is malformed"));
	assert_true(logged("there are: fab0, fab1"));
}

static void test_too_many(void **state)
{
	struct ib_rails *rails;

	(void)state;
	fake.devices[0].port_count = RAILS_MAX;
	rails = open_rails(RAILS_MAX);
	assert_true(logged("port fab1:1 left out: more ports than Braid uses"));
	close_rails(rails);
}

static void test_roce(void **state)
{
	struct ib_rails *rails;

	(void)state;
	fake.device_count = 1;
	fake.devices[0].link_layer = IBV_LINK_LAYER_ETHERNET;
	fake.devices[0].gids[0] =
		(union ibv_gid){.raw = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 9}};
	fake.devices[0].gid_types[0] = IBV_GID_TYPE_ROCE_V2;
	rails = open_rails(1);
	assert_int_equal(rails->rails[0].link_layer, RAIL_LINK_ETHERNET);
	assert_true(logged("fab0:1 RoCE 200000 Mb/s, GID 0 10.0.0.9"));
	close_rails(rails);
	cfg.ib_gid_idx = 3;
	close_rails(open_rails(0));
	assert_true(logged("no address at NCCL_IB_GID_INDEX"));
}

static void test_pkey(void **state)
{
	(void)state;
	cfg.ib_pkey_idx = 1;
	close_rails(open_rails(0));
	assert_true(logged("NCCL_IB_PKEY is beyond"));
}

/* Every verbs call fails in turn: fewer rails, or -ENOMEM for the list; never a leak. */
static void test_fail_each_call(void **state)
{
	unsigned int total, fewer_count = 0;

	(void)state;
	fake.devices[1].port_count = 2;
	close_rails(open_rails(3));
	total = fake.call_count;
	assert_true(total > 8);
	for (unsigned int n = 1; n <= total; n++) {
		struct ib_rails *rails = NULL;
		int rc;

		fake_reset();
		fake.devices[1].port_count = 2;
		fake.fail_at = n;
		rc = ib_rails_open(&cfg, &rails);
		if (strcmp(fake.failed, "get_device_list") == 0) {
			assert_int_equal(rc, -ENOMEM);
			assert_null(rails);
		} else {
			assert_int_equal(rc, 0);
			/* reading the GID falls back to the older call */
			assert_true(rails->count < 3 || strcmp(fake.failed, "query_gid_ex") == 0);
			fewer_count += rails->count < 3;
		}
		close_rails(rails);
	}
	assert_true(fewer_count >= 6);
}

static union ibv_gid ip4(uint8_t last)
{
	return (union ibv_gid){.raw = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = last}};
}

/* An address that is taken off and put on again comes back at another index. */
static void test_refresh_moved(void **state)
{
	struct fake_device *dev = &fake.devices[0];
	struct ib_rail_addr addr;
	struct ib_rails *rails;
	bool moved = true;

	(void)state;
	fake.device_count = 1;
	dev->link_layer = IBV_LINK_LAYER_ETHERNET;
	dev->gid_count = 4;
	dev->gids[0] = (union ibv_gid){.raw = {0}};
	dev->gids[1] = ip4(9);
	for (int i = 0; i < 4; i++) {
		dev->gid_types[i] = IBV_GID_TYPE_ROCE_V2;
	}
	rails = open_rails(1);
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), 0);
	assert_false(moved);

	dev->gids[1] = (union ibv_gid){.raw = {0}};
	dev->gids[0] = ip4(1); /* would be chosen at the start */
	dev->gids[2] = ip4(9);
	dev->gids[3] = ip4(9);
	dev->gid_types[2] = IBV_GID_TYPE_ROCE_V1;
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), 0);
	assert_true(moved);
	ib_rail_addr_get(&rails->rails[0], &addr);
	assert_int_equal(addr.gid_index, 3);
	assert_int_equal(addr.gid.raw[15], 9);
	assert_true(logged("rail fab0:1: address is now GID 3 10.0.0.9"));

	dev->gid_count = 2; /* gone for good: another one is taken */
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), 0);
	assert_true(moved);
	ib_rail_addr_get(&rails->rails[0], &addr);
	assert_int_equal(addr.gid_index, 0);
	close_rails(rails);
}

/* While the address is away, the link-local one that is always there must not take its place. */
static void test_refresh_link_local(void **state)
{
	static const union ibv_gid link_local = {.raw = {0xfe, 0x80, [15] = 1}};
	struct fake_device *dev = &fake.devices[0];
	struct ib_rail_addr addr;
	struct ib_rails *rails;
	bool moved = true;

	(void)state;
	fake.device_count = 1;
	dev->link_layer = IBV_LINK_LAYER_ETHERNET;
	dev->gid_count = 3;
	dev->gids[0] = link_local;
	dev->gids[1] = ip4(9);
	dev->gids[2] = (union ibv_gid){.raw = {0}};
	for (int i = 0; i < 3; i++) {
		dev->gid_types[i] = IBV_GID_TYPE_ROCE_V2;
	}
	rails = open_rails(1);
	dev->gids[1] = (union ibv_gid){.raw = {0}};
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), -ENETDOWN);
	assert_true(logged("rail fab0:1: still out: its address is gone"));
	assert_false(logged("only link-local")); /* which is not taken, so not worth a warning */
	dev->gids[2] = ip4(7);                   /* another one, at another index */
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), 0);
	ib_rail_addr_get(&rails->rails[0], &addr);
	assert_int_equal(addr.gid_index, 2);
	assert_int_equal(addr.gid.raw[15], 7);
	close_rails(rails);
}

/* An address that is not what the user asked for is worth one line, not one for each attempt. */
static void test_refresh_warns_once(void **state)
{
	struct fake_device *dev = &fake.devices[0];
	struct ib_rails *rails;
	bool moved;

	(void)state;
	fake.device_count = 1;
	dev->link_layer = IBV_LINK_LAYER_ETHERNET;
	dev->gid_count = 1;
	dev->gids[0] = ip4(9);
	dev->gid_types[0] = IBV_GID_TYPE_ROCE_V2;
	strcpy(cfg.ib_addr_range, "10.0.0.8/29");
	rails = open_rails(1);
	assert_false(logged("WARN"));
	dev->gids[0] = ip4(1);
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), 0);
	assert_true(moved);
	assert_true(logged("WARN NET/Braid fab0:1: no GID in NCCL_IB_ADDR_RANGE=10.0.0.8/29"));
	fake.log[0] = '\0';
	assert_int_equal(ib_rail_refresh(&rails->rails[0], &cfg, &moved), 0);
	assert_false(moved);
	assert_false(logged("WARN"));
	close_rails(rails);
}

static void test_refresh_out(void **state)
{
	struct ib_rails *rails = open_rails(2);
	struct ib_rail *rail = &rails->rails[0];
	unsigned int calls;
	bool moved = true;

	(void)state;
	fake.devices[0].state = IBV_PORT_DOWN;
	assert_int_equal(ib_rail_refresh(rail, &cfg, &moved), -ENETDOWN);
	assert_true(moved); /* outputs only on success */
	assert_false(atomic_load(&rail->port_up));
	assert_true(logged("rail fab0:1: still out: port is down"));
	fake.devices[0].state = IBV_PORT_ACTIVE;
	assert_int_equal(ib_rail_refresh(rail, &cfg, &moved), 0);
	assert_true(atomic_load(&rail->port_up));
	fake.devices[0].link_layer = IBV_LINK_LAYER_ETHERNET;
	assert_int_equal(ib_rail_refresh(rail, &cfg, &moved), -ENETDOWN);
	atomic_store(&rail->device->is_fatal, true);
	calls = fake.call_count;
	assert_int_equal(ib_rail_refresh(rail, &cfg, &moved), -EIO);
	assert_int_equal(fake.call_count, calls); /* the context is not touched again */
	close_rails(rails);
}

static int next_event(struct ib_rail *rail, enum ibv_event_type type, struct ib_event *out)
{
	fake.event.event_type = type;
	fake.has_event = true;
	return ib_rail_event_next(rail->rails, rail->device, out);
}

static void test_port_events(void **state)
{
	struct ib_rails *rails;
	struct ib_event event;

	(void)state;
	fake.devices[0].port_count = 2;
	rails = open_rails(3);
	assert_int_equal(ib_rail_event_next(rails, rails->rails[0].device, &event), 0);
	fake.event.element.port_num = 2;
	assert_int_equal(next_event(&rails->rails[0], IBV_EVENT_PORT_ERR, &event), 1);
	assert_int_equal(event.kind, IB_EVENT_PORT_DOWN);
	assert_int_equal(event.cause, CAUSE_PORT_DOWN);
	assert_int_equal(event.port, 2);
	assert_string_equal(event.text, "port error");
	/* the event belongs to the other rail of the device, and to no other device */
	assert_true(atomic_load(&rails->rails[0].port_up));
	assert_false(atomic_load(&rails->rails[1].port_up));
	assert_true(atomic_load(&rails->rails[2].port_up));
	assert_int_equal(next_event(&rails->rails[0], IBV_EVENT_PORT_ACTIVE, &event), 1);
	assert_int_equal(event.kind, IB_EVENT_PORT_UP);
	assert_true(atomic_load(&rails->rails[1].port_up));
	assert_int_equal(next_event(&rails->rails[0], IBV_EVENT_GID_CHANGE, &event), 1);
	assert_int_equal(event.kind, IB_EVENT_GID_CHANGE);
	assert_int_equal(next_event(&rails->rails[0], IBV_EVENT_DEVICE_FATAL, &event), 1);
	assert_int_equal(event.kind, IB_EVENT_DEVICE_FATAL);
	assert_true(atomic_load(&rails->rails[0].device->is_fatal));
	assert_true(atomic_load(&rails->rails[1].device->is_fatal));
	assert_false(atomic_load(&rails->rails[2].device->is_fatal));
	assert_int_equal(fake.events_out, 0);
	close_rails(rails);
}

static void test_qp_events(void **state)
{
	static const struct {
		enum ibv_event_type type;
		enum ib_event_kind kind;
		enum cause cause;
	} rows[] = {
		{IBV_EVENT_QP_FATAL, IB_EVENT_QP_FATAL, CAUSE_QP_FATAL},
		{IBV_EVENT_QP_REQ_ERR, IB_EVENT_QP_FATAL, CAUSE_REM_INV_REQ},
		{IBV_EVENT_QP_ACCESS_ERR, IB_EVENT_QP_FATAL, CAUSE_LOC_ACCESS},
		{IBV_EVENT_COMM_EST, IB_EVENT_OTHER, CAUSE_NONE},
	};
	struct ib_rails *rails = open_rails(2);
	struct ibv_cq cq = {.cq_context = (void *)(uintptr_t)0x77};
	struct ibv_qp qp = {.qp_num = 0x55};
	struct ib_event event;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fake.event.element.qp = &qp;
		assert_int_equal(next_event(&rails->rails[0], rows[i].type, &event), 1);
		assert_int_equal(event.kind, rows[i].kind);
		assert_int_equal(event.cause, rows[i].cause);
		assert_int_equal(event.qpn, 0x55);
	}
	fake.event.element.cq = &cq;
	assert_int_equal(next_event(&rails->rails[0], IBV_EVENT_CQ_ERR, &event), 1);
	assert_int_equal(event.kind, IB_EVENT_QP_FATAL);
	assert_int_equal(event.qpn, 0x77);
	/* newer than anything known: passed on, not guessed at */
	assert_int_equal(next_event(&rails->rails[0], (enum ibv_event_type)99, &event), 1);
	assert_int_equal(event.kind, IB_EVENT_OTHER);
	assert_int_equal(event.qpn, 0);
	fake.fail_at = fake.call_count + 1;
	fake.fail_errno = EIO;
	assert_int_equal(ib_rail_event_next(rails, rails->rails[0].device, &event), -EIO);
	assert_int_equal(fake.events_out, 0);
	close_rails(rails);
}

static void test_close_null(void **state)
{
	(void)state;
	ib_rails_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_open, setup),
		cmocka_unit_test_setup(test_two_ports_share_device, setup),
		cmocka_unit_test_setup(test_disabled, setup),
		cmocka_unit_test_setup(test_filter, setup),
		cmocka_unit_test_setup(test_filter_matches_nothing, setup),
		cmocka_unit_test_setup(test_filter_malformed, setup),
		cmocka_unit_test_setup(test_too_many, setup),
		cmocka_unit_test_setup(test_roce, setup),
		cmocka_unit_test_setup(test_pkey, setup),
		cmocka_unit_test_setup(test_fail_each_call, setup),
		cmocka_unit_test_setup(test_refresh_moved, setup),
		cmocka_unit_test_setup(test_refresh_link_local, setup),
		cmocka_unit_test_setup(test_refresh_warns_once, setup),
		cmocka_unit_test_setup(test_refresh_out, setup),
		cmocka_unit_test_setup(test_port_events, setup),
		cmocka_unit_test_setup(test_qp_events, setup),
		cmocka_unit_test_setup(test_close_null, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
