/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/gid.h"

#include "test/fabric/port.h"
#include "test/fabric/sysfs/gids.h"

/* The table of the made-up host counts as long as no rule has moved the port's GID. */
static bool is_listed(const struct fab_ctx *ctx, int moved_to)
{
	return moved_to == 0 && ctx->dev->made_up != NULL && ctx->dev->made_up->gid_count > 0;
}

int fab_gid_len(const struct fab_ctx *ctx, uint32_t port_num)
{
	int moved_to = fab_port_gid_index(fab_ctx_port(ctx, port_num));

	if (is_listed(ctx, moved_to)) {
		return (int)ctx->dev->made_up->gid_count;
	}
	return moved_to < 0 ? 1 : moved_to + 1;
}

bool fab_gid_read(const struct fab_ctx *ctx, uint32_t port_num, int index, union ibv_gid *gid,
		  uint32_t *type)
{
	int moved_to = fab_port_gid_index(fab_ctx_port(ctx, port_num));
	uint32_t rail = ctx->rail + port_num - 1;
	enum fab_gid_kind kind = FAB_GID_IP4_V2;

	if (is_listed(ctx, moved_to)) {
		kind = index >= 0 && index < fab_gid_len(ctx, port_num)
			       ? ctx->dev->made_up->gids[index]
			       : FAB_GID_EMPTY;
	} else if (index < 0 || index != moved_to) {
		kind = FAB_GID_EMPTY;
	}
	if (kind == FAB_GID_EMPTY) {
		return false;
	}
	if (gid != NULL && ctx->dev->roce) {
		fab_gid_make(kind, ctx->host, rail, gid->raw);
	} else if (gid != NULL) {
		fab_addr_gid(ctx->lib, ctx->host, rail, gid);
	}
	if (type != NULL) {
		*type = !ctx->dev->roce                   ? IBV_GID_TYPE_IB
			: fab_gid_kind_version(kind) == 2 ? IBV_GID_TYPE_ROCE_V2
							  : IBV_GID_TYPE_ROCE_V1;
	}
	return true;
}
