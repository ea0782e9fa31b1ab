/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/discover.h"

#include "ib/intern.h"
#include "ib/pci.h"
#include "ib/port.h"
#include "ib/verbs.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* A device while its ports are looked at. */
struct device_scan {
	const char *name;
	struct ibv_context *ctx;
	struct ibv_pd *pd; /* NULL until the first port is used */
	struct ibv_device_attr attr;
	struct pci_place place;
};

static void left_out(const struct device_scan *dev, unsigned int port, const char *why)
{
	LOG_INFO("port %s:%u left out: %s", dev->name, port, why);
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
	struct gid_port port = {.ctx = dev->ctx,
				.device = dev->name,
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
	(void)snprintf(rail->name, sizeof(rail->name), "%s", dev->name);
	(void)snprintf(rail->label, sizeof(rail->label), "%s:%u", dev->name, rail->port);
	rail->rails = d->rails;
	rail->guid = dev->attr.sys_image_guid;
	rail->max_qp = (uint32_t)dev->attr.max_qp;
	rail->max_qp_wr = (uint32_t)dev->attr.max_qp_wr;
	rail->max_cqe = (uint32_t)dev->attr.max_cqe;
	rail->relaxed_ordering = d->cfg->ib_relaxed_ordering != 0 && ib_verbs_has_iova2();
	rail->ctx = dev->ctx;
	atomic_init(&rail->device_fatal, false);
	atomic_init(&rail->ptr_support, 0);
}

/* The domain that all rails of the device share. */
static const char *open_pd(struct device_scan *dev, struct ib_rail *rail)
{
	if (dev->pd == NULL && ib_verbs_alloc_pd(dev->ctx, &dev->pd) != 0) {
		dev->pd = NULL;
		return "cannot allocate a protection domain";
	}
	rail->pd = dev->pd;
	return NULL;
}

static void discover_port(struct discovery *d, struct device_scan *dev, uint8_t port)
{
	const struct hca_token *token;
	const struct ib_rail *other;
	const char *why;
	struct ib_rail *rail;
	char text[128];

	seen_add(d, dev->name, port);
	if (!ib_hca_filter_match(&d->filter, dev->name, port, &token)) {
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
	if (why == NULL) {
		why = open_pd(dev, rail);
	}
	if (why != NULL) {
		left_out(dev, port, why);
		return;
	}
	if (atomic_load_explicit(&rail->port_up, memory_order_relaxed)) {
		rail->idx = d->rails->count++;
	} else {
		LOG_INFO("port %s:%u is no device for NCCL: %s; connections use it once it is up",
			 dev->name, port,
			 atomic_load_explicit(&rail->out_why, memory_order_relaxed));
		d->hidden[d->hidden_count++] = *rail;
	}
}

/* Events are taken by a loop that must not block in the library. */
static int events_nonblocking(const struct ibv_context *ctx)
{
	int flags = fcntl(ctx->async_fd, F_GETFL);

	if (flags < 0 || fcntl(ctx->async_fd, F_SETFL, flags | O_NONBLOCK) < 0) {
		return -errno;
	}
	return 0;
}

static void close_device(struct device_scan *dev)
{
	if (dev->pd != NULL) {
		(void)ib_verbs_dealloc_pd(dev->pd);
	}
	(void)ib_verbs_close_device(dev->ctx);
}

void ib_discover_device(struct discovery *d, struct ibv_device *device)
{
	struct device_scan dev = {.name = ib_verbs_device_name(device)};
	unsigned int before = d->rails->count + d->hidden_count;
	int rc;

	if (device->transport_type > IBV_TRANSPORT_IB) {
		LOG_INFO("device %s left out: no InfiniBand transport (RC queue pairs)", dev.name);
		return;
	}
	rc = ib_verbs_open_device(device, &dev.ctx);
	if (rc != 0) {
		LOG_WARN("device %s left out: cannot open it: %s", dev.name, strerror(-rc));
		return;
	}
	rc = ib_verbs_query_device(dev.ctx, &dev.attr);
	if (rc == 0) {
		rc = events_nonblocking(dev.ctx);
	}
	if (rc != 0) {
		LOG_WARN("device %s left out: it does not answer: %s", dev.name, strerror(-rc));
		close_device(&dev);
		return;
	}
	ib_pci_place_read(d->sysfs_root, dev.name, &dev.place);
	for (unsigned int port = 1; port <= dev.attr.phys_port_cnt; port++) {
		discover_port(d, &dev, (uint8_t)port);
	}
	if (d->rails->count + d->hidden_count == before) {
		close_device(&dev);
	}
}

/* Ports of a device that gave no other rail: closed with the last of them that is left out. */
static void close_unused(const struct discovery *d, const struct ib_rail *rail, unsigned int next)
{
	struct device_scan dev = {.ctx = rail->ctx, .pd = rail->pd};

	for (unsigned int i = 0; i < d->rails->count; i++) {
		if (d->rails->rails[i].ctx == rail->ctx) {
			return;
		}
	}
	for (unsigned int i = next; i < d->hidden_count; i++) {
		if (d->hidden[i].ctx == rail->ctx) {
			return;
		}
	}
	close_device(&dev);
}

void ib_discover_finish(struct discovery *d)
{
	for (unsigned int i = 0; i < d->hidden_count; i++) {
		struct ib_rail *rail = &d->hidden[i];
		const struct ib_rail *other = d->cfg->ib_merge_vfs ? twin(d, rail) : NULL;

		if (other != NULL) {
			LOG_INFO("port %s left out: same physical port as %s", rail->label,
				 other->label);
			close_unused(d, rail, i + 1);
			continue;
		}
		rail->idx = d->rails->count++;
		d->rails->rails[rail->idx] = *rail;
		d->rails->hidden_count++;
	}
}
