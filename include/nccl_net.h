/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_INCLUDE_NCCL_NET_H
#define BRAID_INCLUDE_NCCL_NET_H

/*
 * The binary interface between NCCL and an external net plugin, versions 6 to 12, in our own words.
 * NCCL looks up `ncclNetPlugin_vN`, newest first, and calls through the table found there. Layouts
 * hold for LP64; nccl_net_abi.h pins every size and offset.
 *
 * Which release reads which version: 2.19 reads 7 and 6; 2.20 to 2.23 read 8 down; 2.24 and 2.25
 * read 9 down; 2.26 and 2.27 read 10 down; 2.28 and 2.29 read 11 down; 2.30 reads 12 down.
 */

#include <stddef.h>
#include <stdint.h>

#define NCCL_NET_HANDLE_BYTES       128 /* the buffer listen fills and connect reads */
#define NCCL_NET_REQUESTS_COUNT     32  /* most requests NCCL has in flight per comm */
#define NCCL_NET_RECV_OPTIONAL      0x1 /* v9+ hint found in irecv's *request */
#define NCCL_NET_SIZE_MAX_BYTES     ((size_t)1 << 40)
#define NCCL_NET_TRAFFIC_CLASS_NONE (-1)
#define NCCL_NET_ID_NONE            (-1) /* railId, planeId not known */
#define NCCL_NET_DEVS_V9_COUNT      4
#define NCCL_NET_DEVS_V12_COUNT     8

enum nccl_result {
	NCCL_RESULT_SUCCESS = 0,
	NCCL_RESULT_UNHANDLED_CUDA = 1,
	NCCL_RESULT_SYSTEM = 2,
	NCCL_RESULT_INTERNAL = 3,
	NCCL_RESULT_INVALID_ARGUMENT = 4,
	NCCL_RESULT_INVALID_USAGE = 5,
	NCCL_RESULT_REMOTE = 6,
	NCCL_RESULT_IN_PROGRESS = 7,
	NCCL_RESULT_COUNT
};

/** Memory kinds: bits of ptr_support, and the `type` of reg_mr (one bit). */
enum nccl_ptr {
	NCCL_PTR_HOST = 1,
	NCCL_PTR_CUDA = 2,
	NCCL_PTR_DMABUF = 4
};

enum nccl_net_device_type {
	NCCL_NET_DEVICE_HOST = 0,
	NCCL_NET_DEVICE_UNPACK = 1
};
#define NCCL_NET_DEVICE_VERSION_NONE 0

/** NCCL's logger. `level` is an enum log_level, `flags` a set of enum log_flag (include/log.h). */
typedef void (*nccl_logger_fn)(int level, unsigned long flags, const char *file, int line,
			       const char *fmt, ...);

/** NCCL's profiler callback, handed to init from v10 on. May be NULL. */
typedef enum nccl_result (*nccl_profiler_fn)(void **event_handle, int type, void *parent,
					     int64_t plugin_id, void *data);

/** Device-side handle (v7+). A HOST device leaves the pointer to it NULL. */
struct nccl_net_device_handle {
	enum nccl_net_device_type type;
	int version;
	void *handle;
	size_t size;
	int needs_proxy_progress;
};

#include "include/nccl_net_props.h"

/* Calls that are the same in several versions. */

typedef enum nccl_result (*nccl_devices_fn)(int *count);
typedef enum nccl_result (*nccl_init_v6_fn)(nccl_logger_fn logger);
typedef enum nccl_result (*nccl_init_v10_fn)(nccl_logger_fn logger, nccl_profiler_fn profiler);
typedef enum nccl_result (*nccl_init_v11_fn)(void **ctx, uint64_t comm_id,
					     struct nccl_net_config *config, nccl_logger_fn logger,
					     nccl_profiler_fn profiler);
typedef enum nccl_result (*nccl_listen_v6_fn)(int dev, void *handle, void **listen_comm);
typedef enum nccl_result (*nccl_listen_v11_fn)(void *ctx, int dev, void *handle,
					       void **listen_comm);
typedef enum nccl_result (*nccl_connect_v6_fn)(int dev, void *handle, void **send_comm);
typedef enum nccl_result (*nccl_connect_v7_fn)(int dev, void *handle, void **send_comm,
					       struct nccl_net_device_handle **dev_handle);
typedef enum nccl_result (*nccl_connect_v10_fn)(int dev, struct nccl_net_config *config,
						void *handle, void **send_comm,
						struct nccl_net_device_handle **dev_handle);
typedef enum nccl_result (*nccl_connect_v11_fn)(void *ctx, int dev, void *handle, void **send_comm,
						struct nccl_net_device_handle **dev_handle);
typedef enum nccl_result (*nccl_accept_v6_fn)(void *listen_comm, void **recv_comm);
typedef enum nccl_result (*nccl_accept_v7_fn)(void *listen_comm, void **recv_comm,
					      struct nccl_net_device_handle **dev_handle);
typedef enum nccl_result (*nccl_reg_mr_v6_fn)(void *comm, void *data, int size, int type,
					      void **mh);
typedef enum nccl_result (*nccl_reg_mr_v8_fn)(void *comm, void *data, size_t size, int type,
					      void **mh);
typedef enum nccl_result (*nccl_reg_mr_dmabuf_fn)(void *comm, void *data, size_t size, int type,
						  uint64_t offset, int fd, void **mh);
typedef enum nccl_result (*nccl_dereg_mr_fn)(void *comm, void *mh);
typedef enum nccl_result (*nccl_isend_v6_fn)(void *send_comm, void *data, int size, int tag,
					     void *mh, void **request);
typedef enum nccl_result (*nccl_isend_v9_fn)(void *send_comm, void *data, size_t size, int tag,
					     void *mh, void **request);
typedef enum nccl_result (*nccl_isend_v10_fn)(void *send_comm, void *data, size_t size, int tag,
					      void *mh, void *phandle, void **request);
typedef enum nccl_result (*nccl_irecv_v6_fn)(void *recv_comm, int n, void **data, int *sizes,
					     int *tags, void **mhs, void **request);
typedef enum nccl_result (*nccl_irecv_v9_fn)(void *recv_comm, int n, void **data, size_t *sizes,
					     int *tags, void **mhs, void **request);
typedef enum nccl_result (*nccl_irecv_v10_fn)(void *recv_comm, int n, void **data, size_t *sizes,
					      int *tags, void **mhs, void **phandles,
					      void **request);
typedef enum nccl_result (*nccl_iflush_fn)(void *recv_comm, int n, void **data, int *sizes,
					   void **mhs, void **request);
typedef enum nccl_result (*nccl_test_fn)(void *request, int *done, int *sizes);
typedef enum nccl_result (*nccl_close_fn)(void *comm);
typedef enum nccl_result (*nccl_device_mr_fn)(void *comm, void *mh, void **device_mh);
typedef enum nccl_result (*nccl_consumed_fn)(void *recv_comm, int n, void *request);
typedef enum nccl_result (*nccl_make_vdev_v9_fn)(int *dev, struct nccl_net_vprops_v9 *props);
typedef enum nccl_result (*nccl_make_vdev_v12_fn)(int *dev, struct nccl_net_vprops_v12 *props);
typedef enum nccl_result (*nccl_finalize_fn)(void *ctx);
typedef enum nccl_result (*nccl_set_attr_fn)(void *ctx, struct nccl_net_attr *attr);

/*
 * The tables. NCCL accepts NULL for reg_mr_dmabuf (no DMA-BUF then), device_mr, irecv_consumed,
 * make_vdev and set_attr; finalize must not be NULL.
 */

struct nccl_net_v6 {
	const char *name;
	nccl_init_v6_fn init;
	nccl_devices_fn devices;
	enum nccl_result (*properties)(int dev, struct nccl_net_props_v6 *props);
	nccl_listen_v6_fn listen;
	nccl_connect_v6_fn connect;
	nccl_accept_v6_fn accept;
	nccl_reg_mr_v6_fn reg_mr;
	nccl_reg_mr_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_mr_fn dereg_mr;
	nccl_isend_v6_fn isend;
	nccl_irecv_v6_fn irecv;
	nccl_iflush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send;
	nccl_close_fn close_recv;
	nccl_close_fn close_listen;
};

struct nccl_net_v7 {
	const char *name;
	nccl_init_v6_fn init;
	nccl_devices_fn devices;
	enum nccl_result (*properties)(int dev, struct nccl_net_props_v7 *props);
	nccl_listen_v6_fn listen;
	nccl_connect_v7_fn connect;
	nccl_accept_v7_fn accept;
	nccl_reg_mr_v6_fn reg_mr;
	nccl_reg_mr_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_mr_fn dereg_mr;
	nccl_isend_v6_fn isend;
	nccl_irecv_v6_fn irecv;
	nccl_iflush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send;
	nccl_close_fn close_recv;
	nccl_close_fn close_listen;
	nccl_device_mr_fn device_mr;
	nccl_consumed_fn irecv_consumed;
};

struct nccl_net_v8 {
	const char *name;
	nccl_init_v6_fn init;
	nccl_devices_fn devices;
	enum nccl_result (*properties)(int dev, struct nccl_net_props_v8 *props);
	nccl_listen_v6_fn listen;
	nccl_connect_v7_fn connect;
	nccl_accept_v7_fn accept;
	nccl_reg_mr_v8_fn reg_mr;
	nccl_reg_mr_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_mr_fn dereg_mr;
	nccl_isend_v6_fn isend;
	nccl_irecv_v6_fn irecv;
	nccl_iflush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send;
	nccl_close_fn close_recv;
	nccl_close_fn close_listen;
	nccl_device_mr_fn device_mr;
	nccl_consumed_fn irecv_consumed;
};

struct nccl_net_v9 {
	const char *name;
	nccl_init_v6_fn init;
	nccl_devices_fn devices;
	enum nccl_result (*properties)(int dev, struct nccl_net_props_v9 *props);
	nccl_listen_v6_fn listen;
	nccl_connect_v7_fn connect;
	nccl_accept_v7_fn accept;
	nccl_reg_mr_v8_fn reg_mr;
	nccl_reg_mr_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_mr_fn dereg_mr;
	nccl_isend_v9_fn isend;
	nccl_irecv_v9_fn irecv;
	nccl_iflush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send;
	nccl_close_fn close_recv;
	nccl_close_fn close_listen;
	nccl_device_mr_fn device_mr;
	nccl_consumed_fn irecv_consumed;
	nccl_make_vdev_v9_fn make_vdev;
};

struct nccl_net_v10 {
	const char *name;
	nccl_init_v10_fn init;
	nccl_devices_fn devices;
	enum nccl_result (*properties)(int dev, struct nccl_net_props_v9 *props);
	nccl_listen_v6_fn listen;
	nccl_connect_v10_fn connect;
	nccl_accept_v7_fn accept;
	nccl_reg_mr_v8_fn reg_mr;
	nccl_reg_mr_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_mr_fn dereg_mr;
	nccl_isend_v10_fn isend;
	nccl_irecv_v10_fn irecv;
	nccl_iflush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send;
	nccl_close_fn close_recv;
	nccl_close_fn close_listen;
	nccl_device_mr_fn device_mr;
	nccl_consumed_fn irecv_consumed;
	nccl_make_vdev_v9_fn make_vdev;
};

struct nccl_net_v11 {
	const char *name;
	nccl_init_v11_fn init;
	nccl_devices_fn devices;
	enum nccl_result (*properties)(int dev, struct nccl_net_props_v11 *props);
	nccl_listen_v11_fn listen;
	nccl_connect_v11_fn connect;
	nccl_accept_v7_fn accept;
	nccl_reg_mr_v8_fn reg_mr;
	nccl_reg_mr_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_mr_fn dereg_mr;
	nccl_isend_v10_fn isend;
	nccl_irecv_v10_fn irecv;
	nccl_iflush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send;
	nccl_close_fn close_recv;
	nccl_close_fn close_listen;
	nccl_device_mr_fn device_mr;
	nccl_consumed_fn irecv_consumed;
	nccl_make_vdev_v9_fn make_vdev;
	nccl_finalize_fn finalize;
	nccl_set_attr_fn set_attr;
};

struct nccl_net_v12 {
	const char *name;
	nccl_init_v11_fn init;
	nccl_devices_fn devices;
	enum nccl_result (*properties)(int dev, struct nccl_net_props_v12 *props);
	nccl_listen_v11_fn listen;
	nccl_connect_v11_fn connect;
	nccl_accept_v7_fn accept;
	nccl_reg_mr_v8_fn reg_mr;
	nccl_reg_mr_dmabuf_fn reg_mr_dmabuf;
	nccl_dereg_mr_fn dereg_mr;
	nccl_isend_v10_fn isend;
	nccl_irecv_v10_fn irecv;
	nccl_iflush_fn iflush;
	nccl_test_fn test;
	nccl_close_fn close_send;
	nccl_close_fn close_recv;
	nccl_close_fn close_listen;
	nccl_device_mr_fn device_mr;
	nccl_consumed_fn irecv_consumed;
	nccl_make_vdev_v12_fn make_vdev;
	nccl_finalize_fn finalize;
	nccl_set_attr_fn set_attr;
};

#include "include/nccl_net_abi.h" /* the asserts, so that nobody can use the types unchecked */

#endif
