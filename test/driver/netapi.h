/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_NETAPI_H
#define BRAID_TEST_DRIVER_NETAPI_H

#include "include/nccl_net.h"

#include <stddef.h>
#include <stdint.h>

/** What the driver reads of a device's properties, whatever the version. */
struct netapi_props {
	const char *name;
	int ptr_support;
	int speed_mbps;
	int max_comms;
	int max_recvs;
	int device_type;
};

struct netapi;

/**
 * One net API version behind one set of calls. Sizes are size_t; an adapter for a version with int
 * sizes narrows them as NCCL's shim does (NCCL_RESULT_INTERNAL above INT_MAX). All messages carry
 * tag 0 and one entry: with max_recvs taken as 1, tags never matter.
 */
struct netapi_ops {
	enum nccl_result (*init)(struct netapi *api, nccl_logger_fn logger);
	enum nccl_result (*devices)(struct netapi *api, int *count);
	enum nccl_result (*properties)(struct netapi *api, int dev, struct netapi_props *props);
	enum nccl_result (*listen)(struct netapi *api, int dev, void *handle, void **comm);
	/** dev_handle: left NULL by a HOST device. Not touched before v7. */
	enum nccl_result (*connect)(struct netapi *api, int dev, void *handle, void **comm,
				    struct nccl_net_device_handle **dev_handle);
	enum nccl_result (*accept)(struct netapi *api, void *listen_comm, void **comm,
				   struct nccl_net_device_handle **dev_handle);
	enum nccl_result (*reg_mr)(struct netapi *api, void *comm, void *data, size_t len_bytes,
				   void **mh);
	enum nccl_result (*dereg_mr)(struct netapi *api, void *comm, void *mh);
	enum nccl_result (*isend)(struct netapi *api, void *comm, void *data, size_t len_bytes,
				  void *mh, void **request);
	enum nccl_result (*irecv)(struct netapi *api, void *comm, void *data, size_t len_bytes,
				  void *mh, void **request);
	enum nccl_result (*iflush)(struct netapi *api, void *comm, void *data, int len_bytes,
				   void *mh, void **request);
	/** sizes may be NULL (a flush). */
	enum nccl_result (*test)(struct netapi *api, void *request, int *done, int *sizes);
	enum nccl_result (*close_send)(struct netapi *api, void *comm);
	enum nccl_result (*close_recv)(struct netapi *api, void *comm);
	enum nccl_result (*close_listen)(struct netapi *api, void *comm);
	/** Does nothing before v11. */
	enum nccl_result (*finalize)(struct netapi *api);
};

/** A loaded plugin. */
struct netapi {
	int version;
	const char *name;
	void *lib;
	const void *table;
	void *ctx; /**< v11 on: what init returned */
	const struct netapi_ops *ops;
};

/**
 * dlopen the plugin at path as NCCL does (RTLD_NOW | RTLD_LOCAL) and find ncclNetPlugin_v<version>.
 * Returns 0, or -ENOENT / -ENOSYS with the reason printed. May block on the file system.
 */
int netapi_load(struct netapi *api, const char *path, int version);
/** dlclose; accepts a struct that was never loaded. */
void netapi_unload(struct netapi *api);

extern const struct netapi_ops netapi_ops_v6;
extern const struct netapi_ops netapi_ops_v7;
extern const struct netapi_ops netapi_ops_v8;
extern const struct netapi_ops netapi_ops_v9;
extern const struct netapi_ops netapi_ops_v10;
extern const struct netapi_ops netapi_ops_v11;
extern const struct netapi_ops netapi_ops_v12;

#endif
