/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/call.h"
#include "test/fabric/gid.h"
#include "test/fabric/port.h"
#include "test/fabric/qp.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#undef ibv_query_port

/* What a device tells about itself. Callers may have been compiled with other structs than these
 * headers': fields are set one by one, never a whole struct. */

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	const struct fab_ctx *ctx = fab_ctx_of(context);
	uint64_t guid = fab_addr_guid(ctx->host, ctx->rail);

	if (fab_ctx_dead(ctx)) {
		return EIO;
	}
	memcpy(attr->fw_ver, "0.1.0", 6);
	attr->node_guid = htobe64(guid);
	attr->sys_image_guid = htobe64(guid);
	attr->max_mr_size = UINT64_MAX;
	attr->page_size_cap = 4096;
	attr->vendor_id = 0xfab;
	attr->vendor_part_id = 1;
	attr->hw_ver = 1;
	attr->max_qp = (int)FAB_MAX_QPS;
	attr->max_qp_wr = 16384;
	attr->device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID;
	attr->max_sge = (int)FAB_MAX_SGE;
	attr->max_sge_rd = (int)FAB_MAX_SGE;
	attr->max_cq = (int)FAB_MAX_CQS;
	attr->max_cqe = 1 << 20;
	attr->max_mr = (int)FAB_MAX_MRS;
	attr->max_pd = 1 << 16;
	attr->max_qp_rd_atom = 16;
	attr->max_ee_rd_atom = 0;
	attr->max_res_rd_atom = 16 * (int)FAB_MAX_QPS;
	attr->max_qp_init_rd_atom = 16;
	attr->max_ee_init_rd_atom = 0;
	attr->atomic_cap = IBV_ATOMIC_HCA;
	attr->max_ee = 0;
	attr->max_rdd = 0;
	attr->max_mw = 0;
	attr->max_raw_ipv6_qp = 0;
	attr->max_raw_ethy_qp = 0;
	attr->max_mcast_grp = 0;
	attr->max_mcast_qp_attach = 0;
	attr->max_total_mcast_qp_attach = 0;
	attr->max_ah = 0;
	attr->max_fmr = 0;
	attr->max_map_per_fmr = 0;
	attr->max_srq = (int)FAB_MAX_SRQS;
	attr->max_srq_wr = 16384;
	attr->max_srq_sge = (int)FAB_MAX_SGE;
	attr->max_pkeys = 1;
	attr->local_ca_ack_delay = 0;
	attr->phys_port_cnt = (uint8_t)ctx->dev->port_count;
	return 0;
}

/* Gb/s of a lane, as the specification's PortInfo counts them, for a port of four lanes. */
static uint8_t lane_speed(const struct fab_dev *dev)
{
	uint32_t gbps = dev->made_up != NULL ? dev->made_up->speed_gbps : 100;

	if (gbps >= 400) {
		return 128; /* NDR */
	}
	if (gbps >= 200) {
		return 64; /* HDR */
	}
	return gbps >= 100 ? 32 : 16; /* EDR, FDR */
}

/* Up to `flags`, which is where the struct of the plain symbol ends. */
int ibv_query_port(struct ibv_context *context, uint8_t port_num,
		   struct _compat_ibv_port_attr *compat)
{
	const struct fab_ctx *ctx = fab_ctx_of(context);
	struct ibv_port_attr *attr = (struct ibv_port_attr *)(void *)compat;
	struct fab_port *port = fab_ctx_port(ctx, port_num);
	bool down;

	if (port == NULL) {
		return EINVAL;
	}
	if (fab_call_begin(port, FAB_CALL_QUERY_PORT) != 0) {
		return ENOMEM;
	}
	if (fab_ctx_dead(ctx)) {
		return EIO;
	}
	down = (atomic_load(&port->flags) & FAB_DOWN) != 0 ||
	       fab_inst_pulled(ctx->lib->root, ctx->inst);
	attr->state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	attr->max_mtu = IBV_MTU_4096;
	attr->active_mtu = IBV_MTU_4096;
	attr->gid_tbl_len = fab_gid_len(ctx, port_num);
	attr->port_cap_flags = 0;
	attr->max_msg_sz = 1u << 31;
	attr->bad_pkey_cntr = 0;
	attr->qkey_viol_cntr = 0;
	attr->pkey_tbl_len = 1;
	attr->lid = ctx->dev->roce ? 0 : fab_addr_lid(ctx->host, ctx->rail + port_num - 1);
	attr->sm_lid = ctx->dev->roce ? 0 : 1;
	attr->lmc = 0;
	attr->max_vl_num = 1;
	attr->sm_sl = 0;
	attr->subnet_timeout = 18;
	attr->init_type_reply = 0;
	attr->active_width = 2; /* 4X */
	attr->active_speed = lane_speed(ctx->dev);
	attr->phys_state = down ? 3 : 5;
	attr->link_layer = ctx->dev->roce ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
	attr->flags = 0;
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
	const struct fab_ctx *ctx = fab_ctx_of(context);

	bool known = fab_ctx_port(ctx, port_num) != NULL && index >= 0 &&
		     index < fab_gid_len(ctx, port_num);

	if (!known || fab_ctx_dead(ctx)) {
		errno = !known ? EINVAL : EIO;
		return -1;
	}
	if (!fab_gid_read(ctx, port_num, index, gid, NULL)) {
		memset(gid, 0, sizeof(*gid));
	}
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	const struct fab_ctx *ctx = fab_ctx_of(context);

	if (fab_ctx_port(ctx, port_num) == NULL || flags != 0 || entry_size < sizeof(*entry)) {
		return EINVAL;
	}
	if (!fab_gid_read(ctx, port_num, (int)gid_index, &entry->gid, &entry->gid_type)) {
		return ENODATA;
	}
	entry->gid_index = gid_index;
	entry->port_num = port_num;
	entry->ndev_ifindex = 0;
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
			     size_t max_entries, uint32_t flags, size_t entry_size)
{
	const struct fab_ctx *ctx = fab_ctx_of(context);
	size_t count = 0;

	for (uint32_t port = 1; port <= ctx->dev->port_count; port++) {
		for (int i = 0; i < fab_gid_len(ctx, port); i++) {
			if (!fab_gid_read(ctx, port, i, NULL, NULL)) {
				continue;
			}
			if (count == max_entries ||
			    _ibv_query_gid_ex(context, port, (uint32_t)i, &entries[count], flags,
					      entry_size) != 0) {
				return -EINVAL;
			}
			count++;
		}
	}
	return (ssize_t)count;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
	if (fab_ctx_port(fab_ctx_of(context), port_num) == NULL || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(0xffff);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	return fab_ctx_port(fab_ctx_of(context), port_num) != NULL &&
			       (be16toh(pkey) & 0x7fff) == 0x7fff
		       ? 0
		       : -1;
}

/* Private to rdma-core, asked by ibv_devinfo. Its numbers are those of the kernel's sysfs file:
 * InfiniBand shares 0 with RoCE v1. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
		       unsigned int *type)
{
	const struct fab_ctx *ctx = fab_ctx_of(context);
	uint32_t gid_type;

	if (fab_ctx_port(ctx, port_num) == NULL ||
	    !fab_gid_read(ctx, port_num, (int)index, NULL, &gid_type)) {
		errno = EINVAL;
		return -1;
	}
	*type = gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
	return 0;
}

int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[PATH_MAX];
	ssize_t got = -1;
	int fd;

	/* Nothing there, unless a made-up host is shown (sysfs/preload.c). */
	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		got = read(fd, buf, size);
		close(fd);
	}
	if (got > 0 && buf[got - 1] == '\n') {
		buf[--got] = '\0';
	}
	return (int)got;
}
