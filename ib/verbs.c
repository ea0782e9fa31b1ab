/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/verbs.h"

#include "ib/verbs_load.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Guarded by load_lock until `loaded` is set, constant afterwards (tests change it while alone). */
static struct ib_verbs_syms syms;
static _Atomic bool loaded;
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

int ib_verbs_load(void)
{
	int rc = 0;

	/* acquire: pairs with the release below, so that the table is seen whole */
	if (atomic_load_explicit(&loaded, memory_order_acquire)) {
		return 0;
	}
	pthread_mutex_lock(&load_lock);
	if (!atomic_load_explicit(&loaded, memory_order_relaxed)) {
		const char *const names[] = {getenv("NCCL_IBVERBS_LIB"), "libibverbs.so.1",
					     "libibverbs.so"};

		rc = ib_verbs_library_open(names, sizeof(names) / sizeof(names[0]), &syms);
		if (rc == 0) {
			atomic_store_explicit(&loaded, true, memory_order_release);
		}
	}
	pthread_mutex_unlock(&load_lock);
	return rc;
}

void ib_verbs_use(const struct ib_verbs_syms *fake)
{
	pthread_mutex_lock(&load_lock);
	memset(&syms, 0, sizeof(syms));
	if (fake != NULL) {
		syms = *fake;
	}
	atomic_store_explicit(&loaded, fake != NULL, memory_order_release);
	pthread_mutex_unlock(&load_lock);
}

bool ib_verbs_has_iova2(void)
{
	return syms.reg_mr_iova2 != NULL;
}

bool ib_verbs_has_dmabuf(void)
{
	return syms.reg_dmabuf_mr != NULL;
}

/* Of a function that returns NULL and sets errno; some providers forget errno. */
static int null_err(void)
{
	return errno != 0 ? -errno : -ENOMEM;
}

int ib_verbs_get_devices(struct ibv_device ***out, int *count)
{
	struct ibv_device **list;
	int found = 0;

	errno = 0;
	list = syms.get_device_list(&found);
	if (list == NULL) {
		/* no kernel support: there is nothing, which is no failure */
		if (errno == ENOSYS || errno == ENOENT || errno == EPERM) {
			*out = NULL;
			*count = 0;
			return 0;
		}
		return null_err();
	}
	*out = list;
	*count = found;
	return 0;
}

void ib_verbs_free_devices(struct ibv_device **list)
{
	if (list != NULL) {
		syms.free_device_list(list);
	}
}

const char *ib_verbs_device_name(struct ibv_device *device)
{
	const char *name = syms.get_device_name(device);

	return name != NULL ? name : "";
}

uint64_t ib_verbs_device_guid(struct ibv_device *device)
{
	return syms.get_device_guid(device);
}

int ib_verbs_open_device(struct ibv_device *device, struct ibv_context **out)
{
	struct ibv_context *ctx;

	errno = 0;
	ctx = syms.open_device(device);
	if (ctx == NULL) {
		return null_err();
	}
	*out = ctx;
	return 0;
}

int ib_verbs_close_device(struct ibv_context *ctx)
{
	errno = 0;
	return ib_verbs_err(syms.close_device(ctx));
}

int ib_verbs_get_event(struct ibv_context *ctx, struct ibv_async_event *out)
{
	errno = 0;
	return ib_verbs_err(syms.get_async_event(ctx, out));
}

void ib_verbs_ack_event(struct ibv_async_event *event)
{
	syms.ack_async_event(event);
}

const char *ib_verbs_event_name(enum ibv_event_type type)
{
	const char *name = syms.event_type_str(type);

	return name != NULL ? name : "unknown event";
}

int ib_verbs_query_device(struct ibv_context *ctx, struct ibv_device_attr *out)
{
	memset(out, 0, sizeof(*out));
	errno = 0;
	return ib_verbs_err(syms.query_device(ctx, out));
}

/*
 * Newer libraries have one more member, for speeds that 8 bits cannot name. They clear and fill as
 * many bytes as the caller says; older ones clear what they do not know.
 */
struct port_attr_ex {
	struct ibv_port_attr attr;
	uint32_t active_speed_ex;
};

static_assert(offsetof(struct port_attr_ex, active_speed_ex) == sizeof(struct ibv_port_attr),
	      "the member follows the structure of rdma-core 44");

static int query_port_ex(struct ibv_context *ctx, uint8_t port, struct port_attr_ex *out)
{
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, query_port);

	memset(out, 0, sizeof(*out));
	errno = 0;
	if (vctx != NULL) {
		return ib_verbs_err(vctx->query_port(ctx, port, &out->attr, sizeof(*out)));
	}
	return ib_verbs_err(syms.query_port(ctx, port, &out->attr));
}

/* Lane rate in Mb/s of one bit of active_speed; InfiniBand's names SDR, DDR, QDR, FDR10, ... */
static uint32_t lane_mbps(uint32_t speed)
{
	static const uint32_t mbps[] = {2500,  5000,  10000,  10000, 14000,
					25000, 50000, 100000, 200000};

	for (unsigned int i = 0; i < sizeof(mbps) / sizeof(mbps[0]); i++) {
		if ((speed & 1u << i) != 0) {
			return mbps[i];
		}
	}
	return 0;
}

static uint32_t lanes(uint8_t width)
{
	static const uint32_t counts[] = {1, 4, 8, 12, 2};

	for (unsigned int i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		if ((width & 1u << i) != 0) {
			return counts[i];
		}
	}
	return 0;
}

int ib_verbs_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *out,
			uint32_t *speed_mbps)
{
	struct port_attr_ex attr;
	uint64_t speed_100mbps = 0;
	uint32_t speed;
	int rc = query_port_ex(ctx, port, &attr);

	if (rc != 0) {
		return rc;
	}
	speed = attr.active_speed_ex != 0 ? attr.active_speed_ex : attr.attr.active_speed;
	*out = attr.attr;
	*speed_mbps = lane_mbps(speed) * lanes(attr.attr.active_width);
	/* knows of rates that are no product, those of a bond for example; few devices have it */
	if (syms.query_port_speed != NULL &&
	    syms.query_port_speed(ctx, port, &speed_100mbps) == 0 && speed_100mbps > 0 &&
	    speed_100mbps < UINT32_MAX / 100) {
		*speed_mbps = (uint32_t)speed_100mbps * 100;
	}
	return 0;
}

int ib_verbs_query_gid(struct ibv_context *ctx, uint8_t port, int idx, union ibv_gid *gid,
		       int *type)
{
	struct ibv_gid_entry entry;
	union ibv_gid raw;
	int rc;

	memset(&entry, 0, sizeof(entry));
	errno = 0;
	rc = syms.query_gid_ex == NULL ? -EOPNOTSUPP
				       : ib_verbs_err(syms.query_gid_ex(ctx, port, (uint32_t)idx,
									&entry, 0, sizeof(entry)));
	if (rc == 0) {
		*gid = entry.gid;
		*type = (int)entry.gid_type;
		return 0;
	}
	if (rc == -ENODATA) {
		return rc; /* unused entry */
	}
	/* also where the extended call fails: old kernels and some providers lack it */
	memset(&raw, 0, sizeof(raw));
	errno = 0;
	rc = ib_verbs_err(syms.query_gid(ctx, port, idx, &raw));
	if (rc == 0) {
		*gid = raw;
		*type = -1;
	}
	return rc;
}

int ib_verbs_alloc_pd(struct ibv_context *ctx, struct ibv_pd **out)
{
	struct ibv_pd *pd;

	errno = 0;
	pd = syms.alloc_pd(ctx);
	if (pd == NULL) {
		return null_err();
	}
	*out = pd;
	return 0;
}

int ib_verbs_dealloc_pd(struct ibv_pd *pd)
{
	errno = 0;
	return ib_verbs_err(syms.dealloc_pd(pd));
}

int ib_verbs_create_cq(struct ibv_context *ctx, int cqe_count, struct ibv_cq **out)
{
	struct ibv_cq *cq;

	errno = 0;
	cq = syms.create_cq(ctx, cqe_count, NULL, NULL, 0);
	if (cq == NULL) {
		return null_err();
	}
	*out = cq;
	return 0;
}

int ib_verbs_destroy_cq(struct ibv_cq *cq)
{
	errno = 0;
	return ib_verbs_err(syms.destroy_cq(cq));
}

int ib_verbs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct ibv_qp **out)
{
	struct ibv_qp *qp;

	errno = 0;
	qp = syms.create_qp(pd, attr);
	if (qp == NULL) {
		return null_err();
	}
	*out = qp;
	return 0;
}

int ib_verbs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	errno = 0;
	return ib_verbs_err(syms.modify_qp(qp, attr, mask));
}

int ib_verbs_destroy_qp(struct ibv_qp *qp)
{
	errno = 0;
	return ib_verbs_err(syms.destroy_qp(qp));
}

int ib_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, unsigned int access,
		    struct ibv_mr **out)
{
	unsigned int optional = access & IBV_ACCESS_OPTIONAL_RANGE;
	struct ibv_mr *mr;

	errno = 0;
	if (optional != 0 && syms.reg_mr_iova2 != NULL) {
		mr = syms.reg_mr_iova2(pd, addr, len_bytes, (uintptr_t)addr, access);
	} else {
		mr = syms.reg_mr(pd, addr, len_bytes, (int)(access & ~optional));
	}
	if (mr == NULL) {
		return null_err();
	}
	*out = mr;
	return 0;
}

int ib_verbs_reg_dmabuf(struct ibv_pd *pd, const struct ib_dmabuf *buf, unsigned int access,
			struct ibv_mr **out)
{
	struct ibv_mr *mr;

	if (syms.reg_dmabuf_mr == NULL) {
		return -EOPNOTSUPP;
	}
	errno = 0;
	mr = syms.reg_dmabuf_mr(pd, buf->offset_bytes, buf->len_bytes, buf->iova, buf->fd,
				(int)access);
	if (mr == NULL) {
		return null_err();
	}
	*out = mr;
	return 0;
}

int ib_verbs_dereg_mr(struct ibv_mr *mr)
{
	errno = 0;
	return ib_verbs_err(syms.dereg_mr(mr));
}
