/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/rail.h"

#include "ib/discover.h"
#include "ib/gid.h"
#include "ib/pci.h"
#include "ib/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void log_rail(const struct ib_rail *rail)
{
	char gid[GID_TEXT_MAX_BYTES];

	LOG_INFO("rail %u: %s %s %u Mb/s, GID %d %s, LID %u, MTU %u, PCI %s, NUMA %d%s", rail->idx,
		 rail->label, rail->link_layer == RAIL_LINK_ETHERNET ? "RoCE" : "InfiniBand",
		 rail->speed_mbps, rail->addr.gid_index, ib_gid_text(&rail->addr.gid, gid),
		 rail->addr.lid, 128u << rail->addr.mtu,
		 rail->dev_path != NULL ? rail->dev_path : "none", rail->numa_node,
		 rail->relaxed_ordering ? ", relaxed ordering" : "");
}

static void log_filter(const struct discovery *d)
{
	const struct hca_filter *filter = &d->filter;

	if (d->passed_count == 0) {
		LOG_WARN("NCCL_IB_HCA=%s leaves none of the ports that exist: %s", d->cfg->ib_hca,
			 d->seen);
		return;
	}
	for (unsigned int i = 0; i < filter->count; i++) {
		if (!filter->tokens[i].used) {
			LOG_WARN("NCCL_IB_HCA: nothing is named %s%s; there are: %s",
				 filter->tokens[i].name,
				 filter->tokens[i].port >= 0 ? " with that port" : "", d->seen);
		}
	}
}

static void log_found(const struct discovery *d)
{
	if (d->port_count == 0) {
		LOG_INFO("no InfiniBand or RoCE port on this host");
		return;
	}
	log_filter(d);
	for (unsigned int i = 0; i < ib_rails_device_count(d->rails); i++) {
		log_rail(&d->rails->rails[i]);
	}
	if (ib_rails_device_count(d->rails) == 0 && d->passed_count > 0) {
		LOG_WARN("none of the ports %s can be used; NCCL_DEBUG=INFO shows why", d->seen);
	}
}

static void log_malformed(const struct braid_config *cfg, const char *wrong,
			  struct ibv_device **devices, int count)
{
	char names[DISCOVER_SEEN_MAX_BYTES] = "";
	size_t used = 0;

	for (int i = 0; i < count && used < sizeof(names); i++) {
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
					 i > 0 ? ", " : "", ib_verbs_device_name(devices[i]));
	}
	LOG_WARN("NCCL_IB_HCA=%s is malformed (%s), so no device is used; there are: %s",
		 cfg->ib_hca, wrong, names);
}

/* 0 also when nothing was found; the reason is logged. */
static int find_rails(const struct braid_config *cfg, struct ib_rails *rails)
{
	struct discovery d = {.cfg = cfg, .sysfs_root = PCI_SYSFS_ROOT, .rails = rails};
	struct ibv_device **devices;
	const char *wrong = NULL;
	int device_count;
	int rc = ib_verbs_get_devices(&devices, &device_count);

	if (rc != 0) {
		LOG_WARN("no InfiniBand or RoCE: cannot list the devices: %s", strerror(-rc));
		return rc == -ENOMEM ? rc : 0;
	}
	if (ib_hca_filter_parse(cfg->ib_hca, &d.filter, &wrong) != 0) {
		log_malformed(cfg, wrong, devices, device_count);
	} else {
		for (int i = 0; i < device_count; i++) {
			ib_discover_device(&d, devices[i]);
		}
		ib_discover_finish(&d);
		log_found(&d);
	}
	ib_verbs_free_devices(devices);
	return 0;
}

int ib_rails_open(const struct braid_config *cfg, struct ib_rails **out)
{
	struct ib_rails *rails = calloc(1, sizeof(*rails));
	int rc;

	if (rails == NULL) {
		return -ENOMEM;
	}
	rc = -pthread_mutex_init(&rails->lock, NULL);
	if (rc != 0) {
		goto free_rails;
	}
	if (cfg->ib_disable) {
		LOG_INFO("no rails: NCCL_IB_DISABLE is set");
	} else if (ib_verbs_load() == 0) { /* which says why not */
		rc = find_rails(cfg, rails);
	}
	if (rc != 0) {
		goto destroy_lock;
	}
	*out = rails;
	return 0;

destroy_lock:
	(void)pthread_mutex_destroy(&rails->lock);
free_rails:
	free(rails);
	return rc;
}

void ib_rails_close(struct ib_rails *rails)
{
	if (rails == NULL) {
		return;
	}
	for (unsigned int i = 0; i < rails->count; i++) {
		ib_device_put(rails->rails[i].device);
	}
	(void)pthread_mutex_destroy(&rails->lock);
	free(rails);
}

struct ib_device *ib_rail_device_get(const struct ib_rail *rail)
{
	struct ib_device *device;

	pthread_mutex_lock(&rail->rails->lock);
	device = ib_device_hold(rail->device);
	pthread_mutex_unlock(&rail->rails->lock);
	return device;
}

bool ib_rail_device_is(const struct ib_rail *rail, const struct ib_device *device)
{
	bool is_same;

	pthread_mutex_lock(&rail->rails->lock);
	is_same = rail->device == device;
	pthread_mutex_unlock(&rail->rails->lock);
	return is_same;
}

bool ib_rail_is_fatal(const struct ib_rail *rail)
{
	bool is_fatal;

	pthread_mutex_lock(&rail->rails->lock);
	is_fatal = atomic_load_explicit(&rail->device->is_fatal, memory_order_acquire);
	pthread_mutex_unlock(&rail->rails->lock);
	return is_fatal;
}

void ib_rail_describe(const struct ib_rail *rail, struct rail_desc *out)
{
	struct ib_rail_addr addr;

	ib_rail_addr_get(rail, &addr);
	memset(out, 0, sizeof(*out));
	memcpy(out->name, rail->name, sizeof(out->name));
	out->port = rail->port;
	out->link_layer = rail->link_layer;
	out->mtu = addr.mtu;
	out->lid = addr.lid;
	out->speed_mbps = rail->speed_mbps;
	out->guid = rail->guid;
	memcpy(out->gid, addr.gid.raw, sizeof(out->gid));
}

unsigned int ib_rail_distance(const struct ib_rail *a, const struct ib_rail *b)
{
	if (a->first == b->first || a->dev_path == NULL || b->dev_path == NULL) {
		return 0;
	}
	if ((a->guid != 0 && a->guid == b->guid) ||
	    ib_pci_path_same_bridge(a->dev_path, b->dev_path)) {
		return 0;
	}
	if (a->numa_node >= 0 && b->numa_node >= 0) {
		return a->numa_node == b->numa_node ? 1 : 2;
	}
	return ib_pci_path_same_root(a->dev_path, b->dev_path) ? 1 : 2;
}
