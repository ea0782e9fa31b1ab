/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/core.h"
#include "plugin/net_adapt.h"
#include "plugin/result.h"

#include <stdatomic.h>

/*
 * v11 contexts. One stands for each traffic class there can be, none first, so that nothing is
 * allocated, nothing can dangle, and any pointer NCCL hands to finalize can be judged.
 */
#define CTX_COUNT 257U

struct net_ctx {
	_Atomic unsigned user_count; /* inits not yet finalized */
};

static struct net_ctx ctxs[CTX_COUNT];

/* The context NCCL means, or NULL when it is none of ours. */
static struct net_ctx *ctx_find(void *ctx)
{
	uintptr_t first = (uintptr_t)&ctxs[0];
	uintptr_t at = (uintptr_t)ctx;

	if (at < first || at > (uintptr_t)&ctxs[CTX_COUNT - 1] ||
	    (at - first) % sizeof(ctxs[0]) != 0) {
		return NULL;
	}
	return ctx;
}

/* NCCL says "undefined" in more than one way (-1, INT_MIN). */
static int traffic_class_read(const struct nccl_net_config *config)
{
	if (config == NULL || config->traffic_class < 0 || config->traffic_class > 255) {
		return NCCL_NET_TRAFFIC_CLASS_NONE;
	}
	return config->traffic_class;
}

enum nccl_result net_init_v6(nccl_logger_fn logger)
{
	return result_from_errno(plugin_init(logger, NULL));
}

enum nccl_result net_init_v10(nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	return result_from_errno(plugin_init(logger, profiler));
}

enum nccl_result net_init_v11(void **ctx, uint64_t comm_id, struct nccl_net_config *config,
			      nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	(void)comm_id;
	*ctx = NULL;
	int rc = plugin_init(logger, profiler);

	if (rc != 0) {
		return result_from_errno(rc);
	}
	struct net_ctx *chosen = &ctxs[traffic_class_read(config) + 1];

	atomic_fetch_add_explicit(&chosen->user_count, 1, memory_order_relaxed);
	*ctx = chosen;
	return NCCL_RESULT_SUCCESS;
}

enum nccl_result net_finalize(void *ctx)
{
	struct net_ctx *found = ctx_find(ctx);

	if (found == NULL) {
		return NCCL_RESULT_SUCCESS;
	}
	unsigned users = atomic_load_explicit(&found->user_count, memory_order_relaxed);

	while (users > 0) {
		if (atomic_compare_exchange_weak_explicit(&found->user_count, &users, users - 1,
							  memory_order_relaxed,
							  memory_order_relaxed)) {
			plugin_finalize();
			break;
		}
	}
	return NCCL_RESULT_SUCCESS;
}

enum nccl_result net_devices(int *count)
{
	return result_from_errno(plugin_devices(count));
}

enum nccl_result net_listen_v6(int dev, void *handle, void **listen_comm)
{
	return result_from_errno(plugin_listen(dev, handle, listen_comm));
}

enum nccl_result net_listen_v11(void *ctx, int dev, void *handle, void **listen_comm)
{
	(void)ctx;
	return net_listen_v6(dev, handle, listen_comm);
}

static enum nccl_result connect_start(int dev, int traffic_class, void *handle, void **send_comm)
{
	*send_comm = NULL;
	return result_from_errno(plugin_connect(dev, traffic_class, handle, send_comm));
}

enum nccl_result net_connect_v6(int dev, void *handle, void **send_comm)
{
	return connect_start(dev, NCCL_NET_TRAFFIC_CLASS_NONE, handle, send_comm);
}

/* A host device has no device handle: *dev_handle stays as NCCL set it. */
enum nccl_result net_connect_v7(int dev, void *handle, void **send_comm,
				struct nccl_net_device_handle **dev_handle)
{
	(void)dev_handle;
	return connect_start(dev, NCCL_NET_TRAFFIC_CLASS_NONE, handle, send_comm);
}

enum nccl_result net_connect_v10(int dev, struct nccl_net_config *config, void *handle,
				 void **send_comm, struct nccl_net_device_handle **dev_handle)
{
	(void)dev_handle;
	return connect_start(dev, traffic_class_read(config), handle, send_comm);
}

enum nccl_result net_connect_v11(void *ctx, int dev, void *handle, void **send_comm,
				 struct nccl_net_device_handle **dev_handle)
{
	struct net_ctx *found = ctx_find(ctx);
	int traffic_class = NCCL_NET_TRAFFIC_CLASS_NONE;

	(void)dev_handle;
	if (found != NULL) {
		traffic_class = (int)(found - ctxs) - 1;
	}
	return connect_start(dev, traffic_class, handle, send_comm);
}

enum nccl_result net_accept_v6(void *listen_comm, void **recv_comm)
{
	*recv_comm = NULL;
	return result_from_errno(plugin_accept(listen_comm, recv_comm));
}

enum nccl_result net_accept_v7(void *listen_comm, void **recv_comm,
			       struct nccl_net_device_handle **dev_handle)
{
	(void)dev_handle;
	return net_accept_v6(listen_comm, recv_comm);
}

enum nccl_result net_close_send(void *send_comm)
{
	(void)plugin_close_send(send_comm);
	return NCCL_RESULT_SUCCESS;
}

enum nccl_result net_close_recv(void *recv_comm)
{
	(void)plugin_close_recv(recv_comm);
	return NCCL_RESULT_SUCCESS;
}

enum nccl_result net_close_listen(void *listen_comm)
{
	(void)plugin_close_listen(listen_comm);
	return NCCL_RESULT_SUCCESS;
}
