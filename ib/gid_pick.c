/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/gid.h"
#include "ib/verbs.h"
#include "include/rail_desc.h"

#include <stdio.h>
#include <string.h>

enum {
	GID_TABLE_MAX = 256
};

/* RoCE version of an entry as the kernel's sysfs file tells it; 0 unknown. */
static int version_sysfs(const struct gid_port *port, int idx)
{
	char name[512];
	char type[32] = "";
	FILE *file;

	(void)snprintf(name, sizeof(name), "%s/class/infiniband/%s/ports/%u/gid_attrs/types/%d",
		       port->sysfs_root, port->device, port->port, idx);
	file = fopen(name, "re");
	if (file == NULL) {
		return 0;
	}
	/* reading an unused entry fails */
	if (fgets(type, sizeof(type), file) == NULL) {
		type[0] = '\0';
	}
	(void)fclose(file);
	if (strncmp(type, "RoCE v2", 7) == 0) {
		return 2;
	}
	return strncmp(type, "IB/RoCE v1", 10) == 0 ? 1 : 0;
}

static int entry_read(const struct gid_port *port, int idx, struct gid_entry *out)
{
	union ibv_gid gid;
	int type;
	int rc = ib_verbs_query_gid(port->ctx, port->port, idx, &gid, &type);

	if (rc != 0) {
		return rc;
	}
	if (!ib_gid_is_set(&gid)) {
		return -ENOENT;
	}
	*out = (struct gid_entry){.gid = gid, .idx = idx};
	if (port->link_layer != RAIL_LINK_ETHERNET) {
		return 0;
	}
	if (type == IBV_GID_TYPE_ROCE_V2) {
		out->roce_version = 2;
	} else if (type == IBV_GID_TYPE_ROCE_V1 || type == IBV_GID_TYPE_IB) {
		out->roce_version = 1;
	} else {
		out->roce_version = version_sysfs(port, idx);
	}
	return 0;
}

void ib_gid_warn(const struct gid_port *port, const struct braid_config *cfg,
		 const struct gid_entry *entry)
{
	char text[GID_TEXT_MAX_BYTES];

	if (port->link_layer != RAIL_LINK_ETHERNET || cfg->ib_gid_idx >= 0) {
		return;
	}
	(void)ib_gid_text(&entry->gid, text);
	if (ib_gid_is_link_local(&entry->gid)) {
		LOG_WARN("%s:%u: only link-local addresses in the GID table, using index %d (%s); "
			 "peers behind a router are out of reach: give the interface an address",
			 port->device, port->port, entry->idx, text);
	} else if (!ib_gid_in_range(&entry->gid, cfg->ib_addr_range)) {
		LOG_WARN("%s:%u: no GID in NCCL_IB_ADDR_RANGE=%s, using index %d (%s)",
			 port->device, port->port, cfg->ib_addr_range, entry->idx, text);
	} else if (entry->roce_version != 0 && entry->roce_version != cfg->ib_roce_version) {
		LOG_WARN("%s:%u: no usable GID of RoCE version %d, using index %d (%s, version %d)",
			 port->device, port->port, cfg->ib_roce_version, entry->idx, text,
			 entry->roce_version);
	}
}

static unsigned int table_read(const struct gid_port *port, struct gid_entry *table)
{
	unsigned int count = 0;

	for (int idx = 0; idx < port->table_len && idx < GID_TABLE_MAX; idx++) {
		if (entry_read(port, idx, &table[count]) == 0) {
			count++;
		}
	}
	return count;
}

static int pick_roce(const struct gid_port *port, const struct braid_config *cfg,
		     struct gid_entry *out)
{
	const struct gid_wish wish = {.family = cfg->ib_addr_family,
				      .roce_version = cfg->ib_roce_version,
				      .range = cfg->ib_addr_range};
	struct gid_entry table[GID_TABLE_MAX];
	int best = ib_gid_choose(table, table_read(port, table), &wish);

	if (best < 0) {
		return best;
	}
	*out = table[best];
	return 0;
}

int ib_gid_find(const struct gid_port *port, const struct braid_config *cfg,
		const union ibv_gid *gid, struct gid_entry *out)
{
	struct gid_entry table[GID_TABLE_MAX];
	unsigned int count = table_read(port, table);
	const struct gid_entry *found = NULL;

	for (unsigned int i = 0; i < count; i++) {
		if (memcmp(table[i].gid.raw, gid->raw, sizeof(gid->raw)) == 0 &&
		    (found == NULL || table[i].roce_version == cfg->ib_roce_version)) {
			found = &table[i];
		}
	}
	if (found == NULL) {
		return -ENOENT;
	}
	*out = *found;
	return 0;
}

int ib_gid_pick(const struct gid_port *port, const struct braid_config *cfg, struct gid_entry *out)
{
	struct gid_entry routed;

	if (port->link_layer == RAIL_LINK_ETHERNET) {
		return cfg->ib_gid_idx >= 0 ? entry_read(port, cfg->ib_gid_idx, out)
					    : pick_roce(port, cfg, out);
	}
	if (port->table_len > 1 && entry_read(port, 1, &routed) == 0 &&
	    ib_gid_flid(&routed.gid) != 0) {
		*out = routed;
		return 0;
	}
	return entry_read(port, 0, out);
}
