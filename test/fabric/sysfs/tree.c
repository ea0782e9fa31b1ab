/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/sysfs/tree.h"

#include "test/fabric/sysfs/gids.h"
#include "test/fabric/sysfs/writer.h"

#include <stdio.h>
#include <string.h>

#define IB_PORT_PKEY "0xffff"

/* Last component of a path. */
static const char *leaf(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

/* One PCI function: a bridge on the way, or the adapter at the end. */
static void function_write(struct writer *w, const char *path, const struct fab_topo_device *device,
			   bool is_adapter)
{
	const char *kind = device->roce ? "0x020000" : "0x020700";
	char dir[FAB_TOPO_PATH_LEN + sizeof("devices/")];

	snprintf(dir, sizeof(dir), "devices/%s", path);
	writer_link_up(w, dir, "subsystem", "bus/pci");
	writer_put(w, is_adapter ? kind : "0x060400", "devices/%s/class", path);
	writer_put(w, is_adapter ? "0x0fab" : "0x1000", "devices/%s/vendor", path);
	writer_put(w, is_adapter ? "0x0001" : "0xc010", "devices/%s/device", path);
	writer_put(w, "0x0fab", "devices/%s/subsystem_vendor", path);
	writer_put(w, "0x0001", "devices/%s/subsystem_device", path);
	writer_put(w, "32.0 GT/s PCIe", "devices/%s/max_link_speed", path);
	writer_put(w, "32.0 GT/s PCIe", "devices/%s/current_link_speed", path);
	writer_put(w, "16", "devices/%s/max_link_width", path);
	writer_put(w, "16", "devices/%s/current_link_width", path);
	writer_put_number(w, device->numa_node, "devices/%s/numa_node", path);
	writer_link(w, "bus/pci/devices", leaf(path), "../../../devices/%s", path);
}

/* A bus and who is its bridge: a kernel's way from a function's name to its place. */
static void bus_write(struct writer *w, const char *bridge, const char *function)
{
	char bus[sizeof("0000:00")];

	snprintf(bus, sizeof(bus), "%s", function);
	writer_dir(w, "devices/%s/pci_bus/%s", bridge, bus);
	writer_link(w, "class/pci_bus", bus, "../../devices/%s/pci_bus/%s", bridge, bus);
}

/* The host bridge, every bridge below it, and the adapter. */
static void pci_write(struct writer *w, const struct fab_topo_device *device)
{
	char path[FAB_TOPO_PATH_LEN];
	char *slash;

	strcpy(path, device->pci);
	slash = strchr(path, '/');
	while (slash != NULL) {
		char *next = strchr(slash + 1, '/');

		if (next != NULL) {
			*next = '\0';
		}
		*slash = '\0';
		bus_write(w, path, slash + 1);
		*slash = '/';
		function_write(w, path, device, next == NULL);
		if (next != NULL) {
			*next = '/';
		}
		slash = next;
	}
}

/* physfn in the virtual function, virtfnN in the physical one. */
static void vf_write(struct writer *w, const struct fab_topo *topo,
		     const struct fab_topo_device *device)
{
	const struct fab_topo_device *pf = fab_topo_find(topo, device->vf_of);
	unsigned int number = 0;
	char dir[FAB_TOPO_PATH_LEN + 16];
	char name[32];

	for (const struct fab_topo_device *at = topo->devices; at != device; at++) {
		number += strcmp(at->vf_of, device->vf_of) == 0 ? 1 : 0;
	}
	snprintf(dir, sizeof(dir), "devices/%s", device->pci);
	writer_link_up(w, dir, "physfn", "devices/%s", pf->pci);
	snprintf(dir, sizeof(dir), "devices/%s", pf->pci);
	snprintf(name, sizeof(name), "virtfn%u", number);
	writer_link_up(w, dir, name, "devices/%s", device->pci);
}

static void gids_write(struct writer *w, const struct fab_topo_device *device, uint32_t host,
		       uint32_t port, const char *dir)
{
	uint32_t count = device->gid_count > 0 ? device->gid_count : FAB_GID_TABLE_MAX;

	for (uint32_t i = 0; i < count; i++) {
		enum fab_gid_kind kind = device->gid_count > 0 ? device->gids[i] : FAB_GID_IP4_V2;
		uint8_t gid[16];
		char text[40];
		size_t used = 0;

		fab_gid_make(device->gid_count > 0 || i == 0 ? kind : FAB_GID_EMPTY, host,
			     device->first_rail + port - 1, gid);
		for (unsigned int j = 0; j < 16; j += 2) {
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%02x%02x",
						 j > 0 ? ":" : "", gid[j], gid[j + 1]);
		}
		writer_put(w, text, "%s/ports/%u/gids/%u", dir, port, i);
		if (kind != FAB_GID_EMPTY) { /* the kernel refuses to read the type of a hole */
			writer_put(w,
				   fab_gid_kind_version(kind) == 2 && device->roce ? "RoCE v2"
										   : "IB/RoCE v1",
				   "%s/ports/%u/gid_attrs/types/%u", dir, port, i);
			writer_put(w, device->netdev, "%s/ports/%u/gid_attrs/ndevs/%u", dir, port,
				   i);
		}
	}
}

static void port_write(struct writer *w, const struct fab_topo_device *device, uint32_t host,
		       uint32_t port, const char *dir)
{
	char rate[64];

	snprintf(rate, sizeof(rate), "%u Gb/sec (4X EDR)", device->speed_gbps);
	writer_put(w, "4: ACTIVE", "%s/ports/%u/state", dir, port);
	writer_put(w, "5: LinkUp", "%s/ports/%u/phys_state", dir, port);
	writer_put(w, rate, "%s/ports/%u/rate", dir, port);
	writer_put(w, device->roce ? "Ethernet" : "InfiniBand", "%s/ports/%u/link_layer", dir,
		   port);
	writer_put(w, IB_PORT_PKEY, "%s/ports/%u/pkeys/0", dir, port);
	gids_write(w, device, host, port, dir);
}

static void verbs_write(struct writer *w, const struct fab_topo_device *device, unsigned int number)
{
	char name[32];

	snprintf(name, sizeof(name), "uverbs%u", number);
	writer_put(w, device->name, "class/infiniband_verbs/%s/ibdev", name);
	writer_put(w, "1", "class/infiniband_verbs/%s/abi_version", name);
}

static void netdev_write(struct writer *w, const char *pci, const char *name, unsigned int gbps)
{
	char dir[FAB_TOPO_PATH_LEN + 64];

	snprintf(dir, sizeof(dir), "devices/%s/net/%s", pci, name);
	writer_put(w, "up", "%s/operstate", dir);
	writer_put(w, "4200", "%s/mtu", dir);
	writer_put(w, "1", "%s/type", dir);
	writer_put_number(w, (int)gbps * 1000, "%s/speed", dir);
	if (strncmp(pci, "pci", 3) == 0) {
		writer_link(w, dir, "device", "../../../%s", leaf(pci));
	}
	writer_link(w, "class/net", name, "../../%s", dir);
}

/* Port 1 has the netdev's name, port 2 the name with "p2" behind it, and so on. */
static void netdevs_write(struct writer *w, const struct fab_topo_device *device)
{
	const char *pci = device->pci[0] != '\0' ? device->pci : "virtual";

	if (device->bond_count > 0) {
		char slaves[FAB_TOPO_BOND_MAX * FAB_TOPO_NAME_LEN] = "";

		for (uint32_t i = 0; i < device->bond_count; i++) {
			netdev_write(w, pci, device->bond[i], device->speed_gbps);
			strcat(slaves, i > 0 ? " " : "");
			strcat(slaves, device->bond[i]);
		}
		netdev_write(w, "virtual", device->netdev, device->speed_gbps);
		writer_put(w, slaves, "devices/virtual/net/%s/bonding/slaves", device->netdev);
		return;
	}
	for (uint32_t port = 1; device->netdev[0] != '\0' && port <= device->port_count; port++) {
		char name[FAB_TOPO_NAME_LEN + 16];

		snprintf(name, sizeof(name), port > 1 ? "%sp%u" : "%s", device->netdev, port);
		netdev_write(w, pci, name, device->speed_gbps);
	}
}

static void device_write(struct writer *w, const struct fab_topo *topo, uint32_t host,
			 const struct fab_topo_device *device)
{
	char dir[FAB_TOPO_PATH_LEN + 80];

	if (device->pci[0] != '\0') {
		snprintf(dir, sizeof(dir), "devices/%s/infiniband/%s", device->pci, device->name);
		pci_write(w, device);
		writer_link(w, dir, "device", "../../../%s", leaf(device->pci));
	} else {
		snprintf(dir, sizeof(dir), "devices/virtual/infiniband/%s", device->name);
	}
	writer_link(w, "class/infiniband", device->name, "../../%s", dir);
	writer_put(w, "1: CA", "%s/node_type", dir);
	writer_put(w, "0.1.0", "%s/fw_ver", dir);
	writer_put(w, "FAB0000000001", "%s/board_id", dir);
	for (uint32_t port = 1; port <= device->port_count; port++) {
		port_write(w, device, host, port, dir);
	}
	verbs_write(w, device, (unsigned int)(device - topo->devices));
	netdevs_write(w, device);
	if (device->vf_of[0] != '\0') {
		vf_write(w, topo, device);
	}
}

int fab_tree_write(const struct fab_topo *topo, uint32_t host, const char *root)
{
	struct writer w = {.root = root};

	writer_dir(&w, "class/infiniband"); /* also when there is no device */
	for (uint32_t i = 0; i < topo->device_count; i++) {
		device_write(&w, topo, host, &topo->devices[i]);
	}
	return w.rc;
}
