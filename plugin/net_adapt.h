/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_NET_ADAPT_H
#define BRAID_PLUGIN_NET_ADAPT_H

/*
 * The functions in the ncclNetPlugin_vN tables. A suffix _vN is the first version whose signature
 * it has; without one the signature never changed. Each translates and calls plugin/core.h. Calling
 * rules are in core.h; NCCL owns all pointers but those returned through void **.
 */

#include "include/nccl_net.h"

/**
 * Receives grouped in one request, as reported and enforced. 1 keeps NCCL from sharing comms
 * between ranks, so that tags never matter and messages match in order.
 */
#define NET_RECVS_MAX_COUNT 1

/* Setting up and tearing down: net_setup.c */

enum nccl_result net_init_v6(nccl_logger_fn logger);
enum nccl_result net_init_v10(nccl_logger_fn logger, nccl_profiler_fn profiler);
/** Gives a context that remembers the traffic class; net_finalize takes it back. */
enum nccl_result net_init_v11(void **ctx, uint64_t comm_id, struct nccl_net_config *config,
			      nccl_logger_fn logger, nccl_profiler_fn profiler);
/** Harmless with NULL, with a pointer never given out, and once too often: 2.28 may do so. */
enum nccl_result net_finalize(void *ctx);
enum nccl_result net_devices(int *count);
enum nccl_result net_listen_v6(int dev, void *handle, void **listen_comm);
enum nccl_result net_listen_v11(void *ctx, int dev, void *handle, void **listen_comm);
enum nccl_result net_connect_v6(int dev, void *handle, void **send_comm);
enum nccl_result net_connect_v7(int dev, void *handle, void **send_comm,
				struct nccl_net_device_handle **dev_handle);
enum nccl_result net_connect_v10(int dev, struct nccl_net_config *config, void *handle,
				 void **send_comm, struct nccl_net_device_handle **dev_handle);
enum nccl_result net_connect_v11(void *ctx, int dev, void *handle, void **send_comm,
				 struct nccl_net_device_handle **dev_handle);
enum nccl_result net_accept_v6(void *listen_comm, void **recv_comm);
enum nccl_result net_accept_v7(void *listen_comm, void **recv_comm,
			       struct nccl_net_device_handle **dev_handle);
/* Closing reports success whatever happens: an error would leak every later connection. */
enum nccl_result net_close_send(void *send_comm);
enum nccl_result net_close_recv(void *recv_comm);
enum nccl_result net_close_listen(void *listen_comm);

/* Properties: net_props.c */

enum nccl_result net_props_v6(int dev, struct nccl_net_props_v6 *props);
enum nccl_result net_props_v7(int dev, struct nccl_net_props_v7 *props);
enum nccl_result net_props_v8(int dev, struct nccl_net_props_v8 *props);
enum nccl_result net_props_v9(int dev, struct nccl_net_props_v9 *props);
enum nccl_result net_props_v11(int dev, struct nccl_net_props_v11 *props);
enum nccl_result net_props_v12(int dev, struct nccl_net_props_v12 *props);

/* Memory and data: net_data.c. Sizes below zero or above NCCL's largest are refused. */

enum nccl_result net_reg_mr_v6(void *comm, void *data, int size, int type, void **mh);
enum nccl_result net_reg_mr_v8(void *comm, void *data, size_t size, int type, void **mh);
enum nccl_result net_reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset,
				   int fd, void **mh);
enum nccl_result net_dereg_mr(void *comm, void *mh);
enum nccl_result net_isend_v6(void *send_comm, void *data, int size, int tag, void *mh,
			      void **request);
enum nccl_result net_isend_v9(void *send_comm, void *data, size_t size, int tag, void *mh,
			      void **request);
enum nccl_result net_isend_v10(void *send_comm, void *data, size_t size, int tag, void *mh,
			       void *phandle, void **request);
enum nccl_result net_irecv_v6(void *recv_comm, int n, void **data, int *sizes, int *tags,
			      void **mhs, void **request);
enum nccl_result net_irecv_v9(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
			      void **mhs, void **request);
enum nccl_result net_irecv_v10(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
			       void **mhs, void **phandles, void **request);
enum nccl_result net_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhs,
			    void **request);
enum nccl_result net_test(void *request, int *done, int *sizes);

#endif
