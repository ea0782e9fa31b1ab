/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The adapter for one net API version: included once by each netapi_vN.c, with NET_V defined. No
 * include guard, for this is the body of those files.
 */

#include "test/driver/netapi.h"

#include <limits.h>

#define NET_GLUE2(a, b) a##b
#define NET_GLUE(a, b)  NET_GLUE2(a, b)
#if NET_V == 10
#define NET_PROPS struct nccl_net_props_v9
#else
#define NET_PROPS struct NET_GLUE(nccl_net_props_v, NET_V)
#endif

typedef struct NET_GLUE(nccl_net_v, NET_V) net_table;

static const net_table *table_of(const struct netapi *api)
{
	return api->table;
}

static enum nccl_result net_init(struct netapi *api, nccl_logger_fn logger)
{
#if NET_V >= 11
	struct nccl_net_config config = {NCCL_NET_TRAFFIC_CLASS_NONE};

	return table_of(api)->init(&api->ctx, UINT64_C(0x6272616964), &config, logger, NULL);
#elif NET_V >= 10
	return table_of(api)->init(logger, NULL);
#else
	return table_of(api)->init(logger);
#endif
}

static enum nccl_result net_devices(struct netapi *api, int *count)
{
	return table_of(api)->devices(count);
}

static enum nccl_result net_properties(struct netapi *api, int dev, struct netapi_props *out)
{
	NET_PROPS props = {0};
	enum nccl_result result = table_of(api)->properties(dev, &props);

	if (result == NCCL_RESULT_SUCCESS) {
		*out = (struct netapi_props)
		{
			.name = props.name, .ptr_support = props.ptr_support,
			.speed_mbps = props.speed_mbps, .max_comms = props.max_comms,
			.max_recvs = props.max_recvs,
#if NET_V >= 7
			.device_type = (int)props.device_type,
#endif
		};
	}
	return result;
}

static enum nccl_result net_listen(struct netapi *api, int dev, void *handle, void **comm)
{
#if NET_V >= 11
	return table_of(api)->listen(api->ctx, dev, handle, comm);
#else
	return table_of(api)->listen(dev, handle, comm);
#endif
}

static enum nccl_result net_connect(struct netapi *api, int dev, void *handle, void **comm,
				    struct nccl_net_device_handle **dev_handle)
{
#if NET_V >= 11
	return table_of(api)->connect(api->ctx, dev, handle, comm, dev_handle);
#elif NET_V >= 10
	struct nccl_net_config config = {NCCL_NET_TRAFFIC_CLASS_NONE};

	return table_of(api)->connect(dev, &config, handle, comm, dev_handle);
#elif NET_V >= 7
	return table_of(api)->connect(dev, handle, comm, dev_handle);
#else
	(void)dev_handle;
	return table_of(api)->connect(dev, handle, comm);
#endif
}

static enum nccl_result net_accept(struct netapi *api, void *listen_comm, void **comm,
				   struct nccl_net_device_handle **dev_handle)
{
#if NET_V >= 7
	return table_of(api)->accept(listen_comm, comm, dev_handle);
#else
	(void)dev_handle;
	return table_of(api)->accept(listen_comm, comm);
#endif
}

static enum nccl_result net_reg_mr(struct netapi *api, void *comm, void *data, size_t len_bytes,
				   void **mh)
{
#if NET_V >= 8
	return table_of(api)->reg_mr(comm, data, len_bytes, NCCL_PTR_HOST, mh);
#else
	if (len_bytes > INT_MAX) {
		return NCCL_RESULT_INTERNAL;
	}
	return table_of(api)->reg_mr(comm, data, (int)len_bytes, NCCL_PTR_HOST, mh);
#endif
}

static enum nccl_result net_dereg_mr(struct netapi *api, void *comm, void *mh)
{
	return table_of(api)->dereg_mr(comm, mh);
}

static enum nccl_result net_isend(struct netapi *api, void *comm, void *data, size_t len_bytes,
				  void *mh, void **request)
{
#if NET_V >= 10
	return table_of(api)->isend(comm, data, len_bytes, 0, mh, NULL, request);
#elif NET_V >= 9
	return table_of(api)->isend(comm, data, len_bytes, 0, mh, request);
#else
	if (len_bytes > INT_MAX) {
		return NCCL_RESULT_INTERNAL;
	}
	return table_of(api)->isend(comm, data, (int)len_bytes, 0, mh, request);
#endif
}

static enum nccl_result net_irecv(struct netapi *api, void *comm, void *data, size_t len_bytes,
				  void *mh, void **request)
{
	int tag = 0;

#if NET_V >= 10
	return table_of(api)->irecv(comm, 1, &data, &len_bytes, &tag, &mh, NULL, request);
#elif NET_V >= 9
	return table_of(api)->irecv(comm, 1, &data, &len_bytes, &tag, &mh, request);
#else
	int size = (int)len_bytes;

	if (len_bytes > INT_MAX) {
		return NCCL_RESULT_INTERNAL;
	}
	return table_of(api)->irecv(comm, 1, &data, &size, &tag, &mh, request);
#endif
}

static enum nccl_result net_iflush(struct netapi *api, void *comm, void *data, int len_bytes,
				   void *mh, void **request)
{
	return table_of(api)->iflush(comm, 1, &data, &len_bytes, &mh, request);
}

static enum nccl_result net_test(struct netapi *api, void *request, int *done, int *sizes)
{
	return table_of(api)->test(request, done, sizes);
}

static enum nccl_result net_close_send(struct netapi *api, void *comm)
{
	return table_of(api)->close_send(comm);
}

static enum nccl_result net_close_recv(struct netapi *api, void *comm)
{
	return table_of(api)->close_recv(comm);
}

static enum nccl_result net_close_listen(struct netapi *api, void *comm)
{
	return table_of(api)->close_listen(comm);
}

static enum nccl_result net_finalize(struct netapi *api)
{
#if NET_V >= 11
	return table_of(api)->finalize(api->ctx);
#else
	(void)api;
	return NCCL_RESULT_SUCCESS;
#endif
}

const struct netapi_ops NET_GLUE(netapi_ops_v, NET_V) = {
	.init = net_init,
	.devices = net_devices,
	.properties = net_properties,
	.listen = net_listen,
	.connect = net_connect,
	.accept = net_accept,
	.reg_mr = net_reg_mr,
	.dereg_mr = net_dereg_mr,
	.isend = net_isend,
	.irecv = net_irecv,
	.iflush = net_iflush,
	.test = net_test,
	.close_send = net_close_send,
	.close_recv = net_close_recv,
	.close_listen = net_close_listen,
	.finalize = net_finalize,
};
