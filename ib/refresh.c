/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/pci.h"
#include "ib/port.h"
#include "ib/rail.h"
#include "include/log.h"

#include <errno.h>
#include <string.h>

void ib_rail_addr_get(const struct ib_rail *rail, struct ib_rail_addr *out)
{
	struct ib_rails *rails = rail->rails;

	pthread_mutex_lock(&rails->lock);
	*out = rail->addr;
	pthread_mutex_unlock(&rails->lock);
}

static bool addr_equal(const struct ib_rail_addr *a, const struct ib_rail_addr *b)
{
	return a->lid == b->lid && a->mtu == b->mtu && a->gid_index == b->gid_index &&
	       memcmp(a->gid.raw, b->gid.raw, sizeof(a->gid.raw)) == 0;
}

static void log_moved(const struct ib_rail *rail, const struct ib_rail_addr *before,
		      const struct ib_rail_addr *after)
{
	char old[GID_TEXT_MAX_BYTES], new[GID_TEXT_MAX_BYTES];

	LOG_INFO("rail %s: address is now GID %d %s LID %u MTU %u, was GID %d %s LID %u MTU %u",
		 rail->label, after->gid_index, ib_gid_text(&after->gid, new), after->lid,
		 128u << after->mtu, before->gid_index, ib_gid_text(&before->gid, old), before->lid,
		 128u << before->mtu);
}

/**
 * The kernel makes a link-local GID by itself. Where there was a proper address, only that one is
 * left while an administrator changes it: no peer's rail goes with it, and once taken it would be
 * kept, as it never goes away.
 */
static bool is_address_lost(const struct port_state *now, const union ibv_gid *before)
{
	return now->link_layer == RAIL_LINK_ETHERNET && !ib_gid_is_link_local(before) &&
	       ib_gid_is_link_local(&now->addr.gid);
}

static int refresh(struct ib_rail *rail, const struct ib_device *device,
		   const struct braid_config *cfg, bool *moved)
{
	struct gid_port port = {.ctx = device->ctx,
				.device = device->name,
				.sysfs_root = PCI_SYSFS_ROOT,
				.port = rail->port};
	struct ib_rail_addr before;
	const union ibv_gid *keep;
	struct port_state now;
	const char *why;

	ib_rail_addr_get(rail, &before);
	/* The address of a port that was down is not worth keeping: it may be a makeshift. */
	keep = atomic_load_explicit(&rail->is_read, memory_order_acquire) ? &before.gid : NULL;
	why = ib_port_read(&port, cfg, keep, &now);
	if (why == NULL && now.inactive != NULL) {
		why = now.inactive;
	}
	if (why == NULL && now.link_layer != rail->link_layer) {
		why = "the port's link layer has changed";
	}
	if (why == NULL && is_address_lost(&now, &before.gid)) {
		why = "its address is gone, only a link-local one is left";
	}
	/* relaxed: at worst the same is said twice */
	if (atomic_exchange_explicit(&rail->out_why, why, memory_order_relaxed) != why &&
	    why != NULL) {
		LOG_INFO("rail %s: still out: %s", rail->label, why);
	}
	if (why != NULL) {
		atomic_store_explicit(&rail->port_up, false, memory_order_release);
		return -ENETDOWN;
	}
	atomic_store_explicit(&rail->speed_mbps, now.speed_mbps, memory_order_relaxed);
	*moved = !addr_equal(&before, &now.addr);
	if (*moved) {
		pthread_mutex_lock(&rail->rails->lock);
		rail->addr = now.addr;
		pthread_mutex_unlock(&rail->rails->lock);
		log_moved(rail, &before, &now.addr);
		ib_gid_warn(&port, cfg, &now.picked);
	}
	/* release: pairs with those who ask whether the rail can be used; its address is there */
	atomic_store_explicit(&rail->is_read, true, memory_order_release);
	atomic_store_explicit(&rail->port_up, true, memory_order_release);
	return 0;
}

int ib_rail_refresh(struct ib_rail *rail, const struct braid_config *cfg, bool *moved)
{
	struct ib_device *device = ib_rail_device_get(rail);
	/* never ask a context again whose device has failed */
	int rc = ib_device_is_used(device) ? refresh(rail, device, cfg, moved) : -EIO;

	ib_device_put(device);
	return rc;
}
