/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_VERBS_H
#define BRAID_IB_VERBS_H

/*
 * libibverbs, opened at run time. Nobody else calls a function of that library: everything here
 * returns 0 (or a count) or -errno, whatever of its three conventions the library uses for it
 * (NULL and errno; -1 and errno; a positive errno value).
 */

#include "include/log.h"

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The library's entry points: X(return type, name without ibv_, parameters). */
#define IB_VERBS_REQUIRED(X)                                                                       \
	X(struct ibv_device **, get_device_list, (int *count))                                     \
	X(void, free_device_list, (struct ibv_device * *list))                                     \
	X(const char *, get_device_name, (struct ibv_device * device))                             \
	X(__be64, get_device_guid, (struct ibv_device * device))                                   \
	X(struct ibv_context *, open_device, (struct ibv_device * device))                         \
	X(int, close_device, (struct ibv_context * ctx))                                           \
	X(int, get_async_event, (struct ibv_context * ctx, struct ibv_async_event * event))        \
	X(void, ack_async_event, (struct ibv_async_event * event))                                 \
	X(const char *, event_type_str, (enum ibv_event_type type))                                \
	X(int, query_device, (struct ibv_context * ctx, struct ibv_device_attr * attr))            \
	X(int, query_port, (struct ibv_context * ctx, uint8_t port, void *compat_attr))            \
	X(int, query_gid, (struct ibv_context * ctx, uint8_t port, int idx, union ibv_gid *gid))   \
	X(struct ibv_pd *, alloc_pd, (struct ibv_context * ctx))                                   \
	X(int, dealloc_pd, (struct ibv_pd * pd))                                                   \
	X(struct ibv_mr *, reg_mr, (struct ibv_pd * pd, void *addr, size_t len, int access))       \
	X(int, dereg_mr, (struct ibv_mr * mr))                                                     \
	X(struct ibv_cq *, create_cq,                                                              \
	  (struct ibv_context * ctx, int cqe, void *cq_ctx, struct ibv_comp_channel *channel,      \
	   int vector))                                                                            \
	X(int, destroy_cq, (struct ibv_cq * cq))                                                   \
	X(struct ibv_qp *, create_qp, (struct ibv_pd * pd, struct ibv_qp_init_attr * attr))        \
	X(int, modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask))               \
	X(int, destroy_qp, (struct ibv_qp * qp))

/** Newer entry points; NULL when the library does not have them. */
#define IB_VERBS_OPTIONAL(X)                                                                       \
	X(struct ibv_mr *, reg_mr_iova2,                                                           \
	  (struct ibv_pd * pd, void *addr, size_t len, uint64_t iova, unsigned int access))        \
	X(struct ibv_mr *, reg_dmabuf_mr,                                                          \
	  (struct ibv_pd * pd, uint64_t offset, size_t len, uint64_t iova, int fd, int access))    \
	X(int, query_port_speed, (struct ibv_context * ctx, uint32_t port, uint64_t * speed))

#define IB_VERBS_FIELD(ret, name, params) ret(*name) params;

/** Raw entry points, with the library's own conventions. */
struct ib_verbs_syms {
	IB_VERBS_REQUIRED(IB_VERBS_FIELD)
	IB_VERBS_OPTIONAL(IB_VERBS_FIELD)
	/* ibv_query_gid_ex() is an inline around this one */
	int (*query_gid_ex)(struct ibv_context *ctx, uint32_t port, uint32_t idx,
			    struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);
};

/**
 * Open the library once: the file that NCCL_IBVERBS_LIB names, libibverbs.so.1, libibverbs.so. Any
 * thread, any number of times; a failure is logged once and tried again by the next call. The
 * library stays open for the life of the process. 0, -ENOENT when there is none, -ENOSYS when one
 * lacks a required symbol. Must have succeeded before any other function here is called.
 */
int ib_verbs_load(void);

/** For tests: use these entry points in place of the library (copied); NULL: the library again. */
void ib_verbs_use(const struct ib_verbs_syms *syms);

/** Is an optional entry point there? */
bool ib_verbs_has_iova2(void);
bool ib_verbs_has_dmabuf(void);

/** List of devices; free with ib_verbs_free_devices(). 0 devices is no error. */
int ib_verbs_get_devices(struct ibv_device ***out, int *count);
void ib_verbs_free_devices(struct ibv_device **list);
const char *ib_verbs_device_name(struct ibv_device *device);
/** Node GUID in network order, 0 when it has none. */
uint64_t ib_verbs_device_guid(struct ibv_device *device);
int ib_verbs_open_device(struct ibv_device *device, struct ibv_context **out);
int ib_verbs_close_device(struct ibv_context *ctx);

/** Take one event; -EAGAIN when there is none on a non-blocking async_fd. */
int ib_verbs_get_event(struct ibv_context *ctx, struct ibv_async_event *out);
void ib_verbs_ack_event(struct ibv_async_event *event);
const char *ib_verbs_event_name(enum ibv_event_type type);

int ib_verbs_query_device(struct ibv_context *ctx, struct ibv_device_attr *out);
/** Port attributes, and its speed in Mb/s (rate times width); 0 when the device reports none. */
int ib_verbs_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *out,
			uint32_t *speed_mbps);
/** GID and its type (enum ibv_gid_type), -1 when the library cannot tell the type. */
int ib_verbs_query_gid(struct ibv_context *ctx, uint8_t port, int idx, union ibv_gid *gid,
		       int *type);

int ib_verbs_alloc_pd(struct ibv_context *ctx, struct ibv_pd **out);
int ib_verbs_dealloc_pd(struct ibv_pd *pd);
int ib_verbs_create_cq(struct ibv_context *ctx, int cqe_count, struct ibv_cq **out);
int ib_verbs_destroy_cq(struct ibv_cq *cq);
int ib_verbs_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct ibv_qp **out);
int ib_verbs_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int ib_verbs_destroy_qp(struct ibv_qp *qp);

/**
 * Register memory; keys are used with the virtual address. Access flags of
 * IBV_ACCESS_OPTIONAL_RANGE are dropped when the library is too old for them.
 */
int ib_verbs_reg_mr(struct ibv_pd *pd, void *addr, size_t len_bytes, unsigned int access,
		    struct ibv_mr **out);
struct ib_dmabuf {
	uint64_t offset_bytes; /* in the buffer behind fd */
	uint64_t iova;
	size_t len_bytes;
	int fd;
};
int ib_verbs_reg_dmabuf(struct ibv_pd *pd, const struct ib_dmabuf *buf, unsigned int access,
			struct ibv_mr **out);
int ib_verbs_dereg_mr(struct ibv_mr *mr);

/** Turn what a verb returned (0, -1 and errno, errno value, or already -errno) into 0 or -errno. */
static inline int ib_verbs_err(int rc)
{
	if (rc == 0) {
		return 0;
	}
	if (rc > 0) {
		return -rc;
	}
	if (rc == -1) {
		return errno != 0 ? -errno : -EIO;
	}
	return rc;
}

/*
 * Data path: these go through the device's operations, not through the library's symbols. ibverbs
 * post functions return an errno value, poll a count or something negative; neither promises
 * anything about errno, and looking at it costs a call.
 */

static inline int ib_verbs_data_err(int rc)
{
	if (rc > 0) {
		return -rc;
	}
	return rc == -1 ? -EIO : rc;
}

static inline int ib_verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
				     struct ibv_send_wr **bad)
{
	return ib_verbs_data_err(qp->context->ops.post_send(qp, wr, bad));
}

static inline int ib_verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
				     struct ibv_recv_wr **bad)
{
	return ib_verbs_data_err(qp->context->ops.post_recv(qp, wr, bad));
}

static inline int ib_verbs_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wcs)
{
	int count = cq->context->ops.poll_cq(cq, max, wcs);

	return count >= 0 ? count : ib_verbs_data_err(count);
}

#endif
