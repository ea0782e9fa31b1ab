/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What each table holds and says of a device: NCCL hands in a structure of its own version's size,
 * on its stack and not cleared, so not a byte behind it may be touched and no field left out.
 */

#include "test/unit/loader_rig.h"

#include <sys/mman.h>

/* Where a field lies, to see that it was written. */
struct field {
	const char *name;
	size_t offset, size;
};

#define FIELD(version, member)                                                                     \
	{                                                                                          \
#member, offsetof(struct nccl_net_props_##version, member),                        \
			sizeof(((struct nccl_net_props_##version *)0)->member)                     \
	}

#define FIELDS_V6(v)                                                                               \
	FIELD(v, name), FIELD(v, pci_path), FIELD(v, guid), FIELD(v, ptr_support),                 \
		FIELD(v, speed_mbps), FIELD(v, port), FIELD(v, latency_us), FIELD(v, max_comms),   \
		FIELD(v, max_recvs)
#define FIELDS_V7(v) FIELDS_V6(v), FIELD(v, device_type), FIELD(v, device_version)
#define FIELDS_V8(v) FIELDS_V7(v), FIELD(v, reg_is_global)
#define FIELDS_V9(v)                                                                               \
	FIELDS_V8(v), FIELD(v, force_flush), FIELD(v, vprops.dev_count), FIELD(v, vprops.devs[0]), \
		FIELD(v, max_p2p_bytes), FIELD(v, max_coll_bytes)
#define FIELDS_V11(v) FIELDS_V9(v), FIELD(v, max_multi_request)

static const struct field fields_v6[] = {FIELDS_V6(v6), {NULL, 0, 0}};
static const struct field fields_v7[] = {FIELDS_V7(v7), {NULL, 0, 0}};
static const struct field fields_v8[] = {FIELDS_V8(v8), {NULL, 0, 0}};
static const struct field fields_v9[] = {FIELDS_V9(v9), {NULL, 0, 0}};
static const struct field fields_v11[] = {FIELDS_V11(v11), {NULL, 0, 0}};
static const struct field fields_v12[] = {
	FIELDS_V11(v12), FIELD(v12, rail_id), FIELD(v12, plane_id), {NULL, 0, 0}};

/* Sizes as NCCL's own headers have them, in numbers, so that ours cannot drift. */
static const struct layout {
	const struct field *fields;
	size_t size, table_size;
} layouts[VERSION_LAST + 1] = {
	[6] = {fields_v6, 48, 136},    [7] = {fields_v7, 56, 152},   [8] = {fields_v8, 64, 152},
	[9] = {fields_v9, 104, 160},   [10] = {fields_v9, 104, 160}, [11] = {fields_v11, 112, 176},
	[12] = {fields_v12, 128, 176},
};

typedef enum nccl_result (*properties_fn)(int dev, void *props);

/* Slots of the tables that begin with the name, counted from 0. */
enum slot {
	SLOT_PROPERTIES = 3,
	SLOT_DEVICE_MR = 17,
	SLOT_CONSUMED = 18,
	SLOT_MAKE_VDEV = 19,
	SLOT_FINALIZE = 20,
	SLOT_SET_ATTR = 21
};

static void *slot_of(const struct netapi *api, size_t slot)
{
	void *entry;

	memcpy(&entry, (const char *)api->table + slot * sizeof(entry), sizeof(entry));
	return entry;
}

/* Two pages, the second closed: whoever writes behind the first dies of it. */
static char *guarded_page_end(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	EXPECT(pages != MAP_FAILED);
	EXPECT(mprotect(pages + page, page, PROT_NONE) == 0);
	return pages + page;
}

static void properties_call(const struct netapi *api, int dev, void *props)
{
	void *entry = slot_of(api, SLOT_PROPERTIES);
	properties_fn properties;

	memcpy(&properties, &entry, sizeof(properties));
	EXPECT_OK(properties(dev, props));
}

/* Every field is the same whatever was there before: it was written. */
static void fields_expect(const struct netapi *api, int dev, char *end)
{
	const struct layout *layout = &layouts[api->version];
	char *props = end - layout->size;
	char before[256];

	memset(props, 0, layout->size);
	properties_call(api, dev, props);
	memcpy(before, props, layout->size);
	memset(props, 0xff, layout->size);
	properties_call(api, dev, props);
	for (const struct field *field = layout->fields; field->name != NULL; field++) {
		bool same = memcmp(before + field->offset, props + field->offset, field->size) == 0;

		if (!same) {
			fprintf(stderr, "%s was not written\n", field->name);
		}
		EXPECT(same);
	}
}

/* What NCCL makes of the numbers: zero would be a limit of nothing, or a division by it. */
static void numbers_expect(struct netapi *api, int dev)
{
	struct netapi_props props;

	EXPECT_OK(api->ops->properties(api, dev, &props));
	EXPECT(props.speed_mbps > 0);
	EXPECT(props.max_comms > 0);
	EXPECT(props.max_recvs == 1);
	EXPECT(props.device_type == NCCL_NET_DEVICE_HOST);
	EXPECT((props.ptr_support & NCCL_PTR_HOST) != 0);
	if (api->version >= 9 && api->version <= 11) {
		struct nccl_net_props_v11 wide; /* v9's and one more */

		properties_call(api, dev, &wide);
		EXPECT(wide.vprops.dev_count == 1 && wide.vprops.devs[0] == dev);
		EXPECT(wide.max_p2p_bytes > 0 && wide.max_coll_bytes > 0);
	}
	if (api->version == 12) {
		struct nccl_net_props_v12 last;

		properties_call(api, dev, &last);
		EXPECT(last.vprops.dev_count == 1 && last.vprops.devs[0] == dev);
		EXPECT(last.max_p2p_bytes > 0 && last.max_coll_bytes > 0);
		EXPECT(last.max_multi_request == 1);
	}
}

/* What NCCL may find NULL is NULL where we do not do it; the rest must be there. */
static void entries_expect(const struct netapi *api)
{
	size_t count = layouts[api->version].table_size / sizeof(void *);

	for (size_t slot = 1; slot < count; slot++) {
		bool optional = slot == SLOT_DEVICE_MR || slot == SLOT_CONSUMED ||
				slot == SLOT_MAKE_VDEV || slot == SLOT_SET_ATTR;

		EXPECT((slot_of(api, slot) == NULL) == optional);
	}
}

static void scenario_layouts(void)
{
	char *end = guarded_page_end();

	for (int version = VERSION_FIRST; version <= VERSION_LAST; version++) {
		struct netapi api = table_open(version);

		entries_expect(&api);
		EXPECT_OK(api.ops->init(&api, logger));
		EXPECT(devices_count(&api) == FABRIC_RAILS);
		for (int dev = 0; dev < FABRIC_RAILS; dev++) {
			fields_expect(&api, dev, end);
			numbers_expect(&api, dev);
		}
		EXPECT_OK(api.ops->finalize(&api));
		netapi_unload(&api);
	}
}

/* Every version sees the same devices; their names outlive communicator and library. */
static void scenario_names(void)
{
	const char *names[FABRIC_RAILS];

	for (int version = VERSION_LAST; version >= VERSION_FIRST; version--) {
		struct netapi api = table_open(version);
		struct netapi_props props;

		EXPECT_OK(api.ops->init(&api, logger));
		for (int dev = 0; dev < FABRIC_RAILS; dev++) {
			EXPECT_OK(api.ops->properties(&api, dev, &props));
			names[dev] = props.name;
		}
		EXPECT(api.ops->properties(&api, FABRIC_RAILS, &props) != NCCL_RESULT_SUCCESS);
		EXPECT(api.ops->properties(&api, -1, &props) != NCCL_RESULT_SUCCESS);
		EXPECT_OK(api.ops->finalize(&api));
		netapi_unload(&api);
		EXPECT(strcmp(names[0], "fab0") == 0 && strcmp(names[1], "fab1") == 0);
	}
}

static const struct scenario scenarios[] = {
	{"layouts", scenario_layouts},
	{"names", scenario_names},
};

static void test_layouts(void **state)
{
	(void)state;
	fabric_expect("layouts");
}

static void test_names(void **state)
{
	(void)state;
	fabric_expect("names");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layouts),
		cmocka_unit_test(test_names),
	};

	if (argc == 2) {
		return scenario_run(scenarios, sizeof(scenarios) / sizeof(scenarios[0]), argv[1]);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
