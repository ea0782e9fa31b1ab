/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/sysfs/gids.h"
#include "test/fabric/sysfs/tree.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/fabric-topo.XXXXXX";

static int dir_make(void **state)
{
	(void)state;
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	return mkdtemp(dir) == NULL;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int dir_remove(void **state)
{
	(void)state;
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static int load(const char *text, struct fab_topo *topo, char *why, size_t why_len)
{
	char path[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/topo", dir);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	return fab_topo_load(path, topo, why, why_len);
}

static void test_words(void **state)
{
	struct fab_topo topo;
	char why[256];

	(void)state;
	assert_int_equal(load("# nothing\n\n"
			      "device a ports=2 speed=400\n"
			      "device b pci=pci0000:10/0000:1a:00.0 numa=1 link=roce "
			      "gids=ll-v1,empty,ip4-v2 netdev=eth7 # and a remark\n",
			      &topo, why, sizeof(why)),
			 0);
	assert_int_equal(topo.device_count, 2);
	assert_int_equal(topo.rail_count, 3);
	assert_int_equal(topo.devices[0].numa_node, -1);
	assert_int_equal(topo.devices[0].speed_gbps, 400);
	assert_int_equal(topo.devices[1].first_rail, 2);
	assert_int_equal(topo.devices[1].numa_node, 1);
	assert_true(topo.devices[1].roce);
	assert_int_equal(topo.devices[1].gid_count, 3);
	assert_int_equal(topo.devices[1].gids[1], FAB_GID_EMPTY);
	assert_string_equal(topo.devices[1].netdev, "eth7");
	assert_ptr_equal(fab_topo_find(&topo, "b"), &topo.devices[1]);
	assert_null(fab_topo_find(&topo, "c"));
}

static void test_mistakes(void **state)
{
	static const struct {
		const char *text;
		const char *why;
	} cases[] = {
		{"device a\ndevise b\n", ":2: unknown word 'devise', nearest is 'device'"},
		{"device a nmua=1\n", ":1: unknown key 'nmua', nearest is 'numa'"},
		{"device a link=roec\n", "unknown link 'roec', nearest is 'roce'"},
		{"device a link=roce gids=ip4-v3\n",
		 "unknown kind of GID 'ip4-v3', nearest is 'ip4-v"},
		{"device a ports=0\n", "ports= counts from 1"},
		{"device a ports=5\n", "ports='5' is not a whole number from 0 to 4"},
		{"device a numa=1 numa=1\n", "'numa=' is given twice"},
		{"device a numa\n", "'numa' is not of the form key=value"},
		{"device a\ndevice a\n", ":2: device a: there is a device of that name above"},
		{"device a/b\n", "device 'a/b' is not a name"},
		{"device\n", "device '' is not a name"},
		{"device a pci=0000:1a:00.0\n", "is not a path such as pci0000:10/"},
		{"device a pci=pci0000:10\n", "is not a path such as pci0000:10/"},
		{"device a pci=pci0000:10/0000:1a:00.0/\n", "is not a path such as pci0000:10/"},
		{"device a gids=ll-v1\n", "'gids=' goes with 'link=roce' only"},
		{"device a bond=x,y\n", "'bond=' needs 'netdev='"},
		{"device a pci=pci0000:10/0000:1a:00.0 vf_of=b\n", "'vf_of=' names no PCI device"},
		{"device a ports=4\ndevice b ports=4\ndevice c ports=4\ndevice d ports=4\ndevice "
		 "e\n",
		 ":5: device e: more ports than a host has rails"},
	};
	struct fab_topo topo = {.device_count = 77};
	char why[512];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(load(cases[i].text, &topo, why, sizeof(why)), -EINVAL);
		if (strstr(why, cases[i].why) == NULL) {
			fail_msg("'%s' does not say '%s'", why, cases[i].why);
		}
	}
	assert_int_equal(topo.device_count, 77);
	assert_int_equal(fab_topo_load("/nowhere/topo", &topo, why, sizeof(why)), -ENOENT);
	assert_non_null(strstr(why, "/nowhere/topo"));
}

/* Every kind of GID of every port leads back to its port. */
static void test_gids(void **state)
{
	uint8_t gid[16];
	uint32_t got_host;
	uint32_t got_rail;

	(void)state;
	for (unsigned int kind = 0; kind < FAB_GID_EMPTY; kind++) {
		for (uint32_t host = 0; host < FAB_MAX_HOSTS; host++) {
			for (uint32_t rail = 0; rail < FAB_MAX_RAILS; rail++) {
				fab_gid_make((enum fab_gid_kind)kind, host, rail, gid);
				assert_int_equal(fab_gid_owner(gid, &got_host, &got_rail), 0);
				assert_int_equal(got_host, host);
				assert_int_equal(got_rail, rail);
			}
		}
	}
	fab_gid_make(FAB_GID_EMPTY, 3, 3, gid);
	assert_int_equal(fab_gid_owner(gid, &got_host, &got_rail), -EINVAL);
}

static void assert_file(const char *path, const char *text)
{
	char name[PATH_MAX];
	char line[128] = "";
	FILE *file;

	snprintf(name, sizeof(name), "%s/%s", dir, path);
	file = fopen(name, "r");
	if (file == NULL) {
		fail_msg("%s: %s", name, strerror(errno));
	} else {
		assert_non_null(fgets(line, sizeof(line), file));
		fclose(file);
	}
	line[strcspn(line, "\n")] = '\0';
	assert_string_equal(line, text);
}

static void assert_leads_to(const char *path, const char *target)
{
	char name[PATH_MAX];
	char real[PATH_MAX];
	char want[PATH_MAX];

	snprintf(name, sizeof(name), "%s/%s", dir, path);
	snprintf(want, sizeof(want), "%s/%s", dir, target);
	if (realpath(name, real) == NULL) {
		fail_msg("%s: %s", name, strerror(errno));
	}
	assert_string_equal(real, want);
}

static const char *const two_cards =
	"device a pci=pci0000:10/0000:10:01.0/0000:1a:00.0 numa=3 ports=2 netdev=ib0\n"
	"device b pci=pci0000:10/0000:10:02.0/0000:1b:00.0 link=roce gids=ll-v1,empty,ip4-v2\n"
	"device v pci=pci0000:10/0000:10:02.0/0000:1b:00.1 link=roce vf_of=b\n"
	"device w pci=pci0000:10/0000:10:02.0/0000:1b:00.2 link=roce vf_of=b\n"
	"device soft netdev=bond0 bond=eth0,eth1\n";

static void test_tree(void **state)
{
	struct fab_topo topo;
	char why[256];
	char name[PATH_MAX];

	(void)state;
	assert_int_equal(load(two_cards, &topo, why, sizeof(why)), 0);
	assert_int_equal(fab_tree_write(&topo, 4, dir), 0);
	assert_int_equal(fab_tree_write(&topo, 4, dir), 0); /* again, over what is there */
	assert_leads_to("class/infiniband/a/device",
			"devices/pci0000:10/0000:10:01.0/0000:1a:00.0");
	assert_leads_to("class/infiniband/v/device/physfn",
			"devices/pci0000:10/0000:10:02.0/0000:1b:00.0");
	assert_leads_to("class/infiniband/b/device/virtfn1",
			"devices/pci0000:10/0000:10:02.0/0000:1b:00.2");
	assert_leads_to("class/net/ib0p2/device", "devices/pci0000:10/0000:10:01.0/0000:1a:00.0");
	assert_leads_to("bus/pci/devices/0000:10:02.0", "devices/pci0000:10/0000:10:02.0");
	assert_leads_to("class/pci_bus/0000:10", "devices/pci0000:10/pci_bus/0000:10");
	assert_leads_to("class/pci_bus/0000:1a/../../0000:1a:00.0",
			"devices/pci0000:10/0000:10:01.0/0000:1a:00.0");
	assert_leads_to("class/infiniband/a/device/subsystem", "bus/pci");
	assert_file("class/infiniband/a/device/numa_node", "3");
	assert_file("class/infiniband/b/device/numa_node", "-1");
	assert_file("class/infiniband/a/device/class", "0x020700");
	assert_file("devices/pci0000:10/0000:10:01.0/class", "0x060400");
	assert_file("class/infiniband/a/ports/2/link_layer", "InfiniBand");
	assert_file("class/infiniband/b/ports/1/gid_attrs/types/2", "RoCE v2");
	assert_file("class/infiniband/b/ports/1/gid_attrs/types/0", "IB/RoCE v1");
	assert_file("class/infiniband/b/ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:0a4d:0205");
	assert_file("class/infiniband/b/ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000");
	snprintf(name, sizeof(name), "%s/class/infiniband/b/ports/1/gid_attrs/types/1", dir);
	assert_int_equal(access(name, F_OK), -1);
	snprintf(name, sizeof(name), "%s/class/infiniband/soft/device", dir);
	assert_int_equal(access(name, F_OK), -1);
	assert_file("class/net/bond0/bonding/slaves", "eth0 eth1");
	assert_file("class/infiniband_verbs/uverbs1/ibdev", "b");
}

static void test_tree_nowhere(void **state)
{
	struct fab_topo topo;
	char why[256];

	(void)state;
	assert_int_equal(load("device a\n", &topo, why, sizeof(why)), 0);
	assert_int_equal(fab_tree_write(&topo, 0, "/nowhere/at/all"), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_words, dir_make, dir_remove),
		cmocka_unit_test_setup_teardown(test_mistakes, dir_make, dir_remove),
		cmocka_unit_test(test_gids),
		cmocka_unit_test_setup_teardown(test_tree, dir_make, dir_remove),
		cmocka_unit_test_setup_teardown(test_tree_nowhere, dir_make, dir_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
