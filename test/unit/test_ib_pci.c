/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/intern.h"
#include "ib/pci.h"
#include "ib_tree.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define BRIDGE "devices/pci0000:16/0000:16:02.0"

static int setup(void **state)
{
	bool ok = true;

	(void)state;
	if (!tree_begin()) {
		return -1;
	}
	tree_folder(BRIDGE "/0000:17:00.1");
	tree_folder(BRIDGE "/0000:17:03.2");
	tree_folder("class/infiniband/mlx5_0");
	tree_folder("class/infiniband/mlx5_1");
	tree_folder("class/infiniband/rxe0");
	tree_folder("devices/virtual/rxe0");
	ok = ok && tree_link(BRIDGE "/0000:17:00.1", "class/infiniband/mlx5_0/device");
	ok = ok && tree_link(BRIDGE "/0000:17:03.2", "class/infiniband/mlx5_1/device");
	ok = ok && tree_link("devices/virtual/rxe0", "class/infiniband/rxe0/device");
	ok = ok && tree_link(BRIDGE "/0000:17:00.1", BRIDGE "/0000:17:03.2/physfn");
	ok = ok && tree_text(BRIDGE "/0000:17:00.1/numa_node", "1\n");
	ok = ok && tree_text(BRIDGE "/0000:17:03.2/numa_node", "-1\n");
	return ok ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return tree_end();
}

static void test_function(void **state)
{
	struct pci_place place;
	char want[PATH_MAX];

	(void)state;
	ib_pci_place_read(tree_root, "mlx5_0", &place);
	assert_non_null(realpath(tree_at(BRIDGE "/0000:17:00.1"), want));
	assert_string_equal(place.path, want);
	assert_string_equal(place.physfn, "");
	assert_int_equal(place.numa_node, 1);
}

static void test_virtual_function(void **state)
{
	struct pci_place place, pf;

	(void)state;
	ib_pci_place_read(tree_root, "mlx5_0", &pf);
	ib_pci_place_read(tree_root, "mlx5_1", &place);
	assert_string_equal(place.physfn, pf.path);
	assert_int_equal(place.numa_node, -1);
	ib_pci_path_fold(place.path, true);
	ib_pci_path_fold(pf.path, true);
	assert_string_equal(place.path, pf.path);
}

static void test_none(void **state)
{
	struct pci_place place;

	(void)state;
	ib_pci_place_read(tree_root, "rxe0", &place);
	assert_string_equal(place.path, "");
	ib_pci_place_read(tree_root, "not_there", &place);
	assert_string_equal(place.path, "");
	assert_string_equal(place.physfn, "");
	assert_int_equal(place.numa_node, -1);
}

static void test_fold(void **state)
{
	char path[] = "/sys/devices/pci0000:00/0000:17:13.5";
	char other[] = "/sys/devices/virtual/rxe0";

	(void)state;
	ib_pci_path_fold(path, false);
	assert_string_equal(path, "/sys/devices/pci0000:00/0000:17:13.0");
	ib_pci_path_fold(path, true);
	assert_string_equal(path, "/sys/devices/pci0000:00/0000:17:00.0");
	ib_pci_path_fold(other, true);
	assert_string_equal(other, "/sys/devices/virtual/rxe0");
}

static void test_bridges(void **state)
{
	const char *a = "/sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0";
	const char *b = "/sys/devices/pci0000:16/0000:16:02.0/0000:18:00.0/0000:19:00.0";
	const char *c = "/sys/devices/pci0000:16/0000:16:04.0/0000:17:00.0";
	const char *d = "/sys/devices/pci0000:64/0000:64:02.0/0000:65:00.0";
	const char *vm = "/sys/devices/LNXSYSTM:00/VMBUS:00/x/pcic0de:00/c0de:00:02.0";

	(void)state;
	assert_true(ib_pci_path_same_bridge(a, a));
	assert_true(ib_pci_path_same_bridge(a, b));
	assert_false(ib_pci_path_same_bridge(a, c));
	assert_true(ib_pci_path_same_root(a, c));
	assert_false(ib_pci_path_same_root(a, d));
	assert_false(ib_pci_path_same_root(a, vm));
	assert_true(ib_pci_path_same_root(vm, vm));
	assert_false(ib_pci_path_same_bridge("/sys/devices/virtual/a", "/sys/devices/virtual/a"));
}

static void test_intern(void **state)
{
	char text[] = "/sys/x";
	char *first = ib_intern(text);

	(void)state;
	assert_ptr_not_equal(first, text);
	assert_string_equal(first, "/sys/x");
	assert_ptr_equal(first, ib_intern("/sys/x"));
	assert_ptr_not_equal(first, ib_intern("/sys/y"));
	assert_null(ib_intern(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_function, setup, teardown),
		cmocka_unit_test_setup_teardown(test_virtual_function, setup, teardown),
		cmocka_unit_test_setup_teardown(test_none, setup, teardown),
		cmocka_unit_test(test_fold),
		cmocka_unit_test(test_bridges),
		cmocka_unit_test(test_intern),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
