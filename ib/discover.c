/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/discover.h"

#include "ib/intern.h"
#include "ib/pci.h"
#include "ib/port.h"
#include "ib/verbs.h"

#include <stdio.h>
#include <string.h>

/* A device while its ports are looked at. */
struct device_scan {
	struct ib_device *device;
	struct pci_place place;
};

static void left_out(const struct device_scan *dev, unsigned int port, const char *why)
{
	LOG_INFO("port %s:%u left out: %s", dev->device->name, port, why);
}

static void seen_add(struct discovery *d, const char *name, unsigned int port)
{
	size_t used = strlen(d->seen);

	(void)snprintf(d->seen + used, sizeof(d->seen) - used, "%s%s:%u", used > 0 ? ", " : "",
		       name, port);
	d->port_count++;
}

/* Another function of the same physical port that is a rail already, or NULL. */
static const struct ib_rail *twin(const struct discovery *d, const struct ib_rail *rail)
{
	for (unsigned int i = 0; i < d->rails->count; i++) {
		const struct ib_rail *other = &d->rails->rails[i];

		if (rail->pf_path != NULL && other->pf_path == rail->pf_path &&
		    other->port == rail->port) {
			return other;
		}
	}
	return NULL;
}

static void fill_place(const struct discovery *d, const struct device_scan *dev,
		       struct ib_rail *rail)
{
	char folded[PCI_PATH_MAX_BYTES];

	strcpy(folded, dev->place.path);
	ib_pci_path_fold(folded, d->cfg->ib_merge_vfs);
	rail->pci_path = ib_intern(folded);
	rail->dev_path = ib_intern(dev->place.path);
	rail->pf_path =
		dev->place.physfn[0] != '\0' ? ib_intern(dev->place.physfn) : rail->dev_path;
	rail->numa_node = dev->place.numa_node;
	rail->nccl_port = rail->port;
	for (unsigned int i = 0; i < d->rails->count; i++) {
		if (rail->pci_path != NULL && d->rails->rails[i].pci_path == rail->pci_path) {
			rail->nccl_port++;
		}
	}
}

/* What the port says of itself. NULL, or why it cannot be used. */
static const char *fill_port(const struct discovery *d, const struct device_scan *dev,
			     struct ib_rail *rail)
{
	struct gid_port port = {.ctx = dev->device->ctx,
				.device = dev->device->name,
				.sysfs_root = d->sysfs_root,
				.port = rail->port};
	struct port_state state;
	const char *why = ib_port_read(&port, d->cfg, NULL, &state);

	if (why == NULL) {
		if (state.inactive == NULL) {
			ib_gid_warn(&port, d->cfg, &state.picked);
		}
		atomic_init(&rail->port_up, state.inactive == NULL);
		atomic_init(&rail->is_read, state.inactive == NULL);
		atomic_init(&rail->out_why, state.inactive);
		rail->addr = state.addr;
		rail->link_layer = state.link_layer;
		atomic_init(&rail->speed_mbps, state.speed_mbps);
		rail->pkey_index = state.pkey_index;
	}
	return why;
}

static void fill_device(const struct discovery *d, const struct device_scan *dev,
			struct ib_rail *rail)
{
	const char *name = dev->device->name;

	(void)snprintf(rail->name, sizeof(rail->name), "%s", name);
	(void)snprintf(rail->label, sizeof(rail->label), "%s:%u", name, rail->port);
	rail->rails = d->rails;
	rail->guid = dev->device->attr.sys_image_guid;
	rail->max_qp = (uint32_t)dev->device->attr.max_qp;
	rail->relaxed_ordering = d->cfg->ib_relaxed_ordering != 0 && ib_verbs_has_iova2();
	rail->device = dev->device;
	atomic_init(&rail->ptr_support, 0);
}

static void discover_port(struct discovery *d, struct device_scan *dev, uint8_t port)
{
	const struct hca_token *token;
	const struct ib_rail *other;
	const char *why;
	struct ib_rail *rail;
	char text[128];

	seen_add(d, dev->device->name, port);
	if (!ib_hca_filter_match(&d->filter, dev->device->name, port, &token)) {
		left_out(dev, port, "not selected by NCCL_IB_HCA");
		return;
	}
	d->passed_count++;
	if (d->rails->count + d->hidden_count == RAILS_MAX) {
		left_out(dev, port, "more ports than Braid uses");
		return;
	}
	rail = &d->rails->rails[d->rails->count];
	memset(rail, 0, sizeof(*rail));
	rail->port = port;
	rail->rail_id = token != NULL ? token->rail_id : -1;
	rail->plane_id = token != NULL ? token->plane_id : -1;
	why = fill_port(d, dev, rail);
	if (why == NULL) {
		fill_device(d, dev, rail);
		fill_place(d, dev, rail);
		other = d->cfg->ib_merge_vfs ? twin(d, rail) : NULL;
		if (other != NULL) {
			(void)snprintf(text, sizeof(text), "same physical port as %s",
				       other->label);
			why = text;
		}
	}
	if (why == NULL && ib_device_alloc_pd(dev->device) != 0) {
		why = "cannot allocate a protection domain";
	}
	if (why != NULL) {
		left_out(dev, port, why);
		return;
	}
	ib_device_hold(dev->device);
	if (atomic_load_explicit(&rail->port_up, memory_order_relaxed)) {
		rail->idx = d->rails->count++;
		rail->first = rail->idx;
	} else {
		LOG_INFO("port %s:%u is no device for NCCL: %s; connections use it once it is up",
			 dev->device->name, port,
			 atomic_load_explicit(&rail->out_why, memory_order_relaxed));
		d->hidden[d->hidden_count++] = *rail;
	}
}

void ib_discover_device(struct discovery *d, struct ibv_device *device)
{
	struct device_scan dev = {.device = NULL};
	const char *what;
	int rc;

	if (device->transport_type > IBV_TRANSPORT_IB) {
		LOG_INFO("device %s left out: no InfiniBand transport (RC queue pairs)",
			 ib_verbs_device_name(device));
		return;
	}
	rc = ib_device_open(device, &dev.device, &what);
	if (rc != 0) {
		LOG_WARN("device %s left out: %s: %s", ib_verbs_device_name(device), what,
			 strerror(-rc));
		return;
	}
	ib_pci_place_read(d->sysfs_root, dev.device->name, &dev.place);
	for (unsigned int port = 1; port <= dev.device->attr.phys_port_cnt; port++) {
		discover_port(d, &dev, (uint8_t)port);
	}
	ib_device_put(dev.device); /* closes it, if it gave no rail */
}

/* Rails of one device change together when it is opened again: known by the first of them. */
static void group_devices(struct ib_rails *rails)
{
	for (unsigned int i = 0; i < rails->count; i++) {
		struct ib_rail *rail = &rails->rails[i];

		rail->first = 0;
		while (rails->rails[rail->first].device != rail->device) {
			rail->first++;
		}
	}
}

void ib_discover_finish(struct discovery *d)
{
	for (unsigned int i = 0; i < d->hidden_count; i++) {
		struct ib_rail *rail = &d->hidden[i];
		const struct ib_rail *other = d->cfg->ib_merge_vfs ? twin(d, rail) : NULL;

		if (other != NULL) {
			LOG_INFO("port %s left out: same physical port as %s", rail->label,
				 other->label);
			ib_device_put(rail->device);
			continue;
		}
		rail->idx = d->rails->count++;
		d->rails->rails[rail->idx] = *rail;
		d->rails->hidden_count++;
	}
	group_devices(d->rails);
}
