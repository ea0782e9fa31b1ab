/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One version's table of the loopback plugin: included once by each loopback_vN.c, with NET_V
 * defined. No include guard, for this is the body of those files.
 */

#include "test/driver/loopback.h"

#include <errno.h>

#define NET_GLUE2(a, b) a##b
#define NET_GLUE(a, b)  NET_GLUE2(a, b)
#if NET_V == 10
#define NET_PROPS struct nccl_net_props_v9
#else
#define NET_PROPS struct NET_GLUE(nccl_net_props_v, NET_V)
#endif
#if NET_V >= 9
typedef size_t net_size;
#else
typedef int net_size;
#endif
#if NET_V >= 8
typedef size_t reg_size;
#else
typedef int reg_size;
#endif

static enum nccl_result result_of(int err)
{
	if (err == -ECONNRESET || err == -EPIPE) {
		return NCCL_RESULT_REMOTE;
	}
	return err ? NCCL_RESULT_SYSTEM : NCCL_RESULT_SUCCESS;
}

#if NET_V >= 11
static enum nccl_result net_init(void **ctx, uint64_t comm_id, struct nccl_net_config *config,
				 nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	(void)comm_id;
	(void)config;
	(void)profiler;
	*ctx = NULL;
#elif NET_V >= 10
static enum nccl_result net_init(nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	(void)profiler;
#else
static enum nccl_result net_init(nccl_logger_fn logger)
{
#endif
	logger(3, 1, __FILE__, __LINE__, "Loopback: net API version %d", NET_V);
	return NCCL_RESULT_SUCCESS;
}

static enum nccl_result net_devices(int *count)
{
	*count = 1;
	return NCCL_RESULT_SUCCESS;
}

static enum nccl_result net_properties(int dev, NET_PROPS *props)
{
	static char name[] = "lo0";

	(void)dev;
	*props = (NET_PROPS){
		.name = name,
		.ptr_support = NCCL_PTR_HOST,
		.speed_mbps = 10000,
		.max_comms = 65536,
		.max_recvs = 1,
	};
	return NCCL_RESULT_SUCCESS;
}

#if NET_V >= 11
static enum nccl_result net_listen(void *ctx, int dev, void *handle, void **comm)
{
	(void)ctx;
#else
static enum nccl_result net_listen(int dev, void *handle, void **comm)
{
#endif
	(void)dev;
	return result_of(loopback_listen(handle, (struct loopback_comm **)comm));
}

#if NET_V >= 11
static enum nccl_result net_connect(void *ctx, int dev, void *handle, void **comm,
				    struct nccl_net_device_handle **dev_handle)
{
	(void)ctx;
	(void)dev_handle;
#elif NET_V >= 10
static enum nccl_result net_connect(int dev, struct nccl_net_config *config, void *handle,
				    void **comm, struct nccl_net_device_handle **dev_handle)
{
	(void)config;
	(void)dev_handle;
#elif NET_V >= 7
static enum nccl_result net_connect(int dev, void *handle, void **comm,
				    struct nccl_net_device_handle **dev_handle)
{
	(void)dev_handle;
#else
static enum nccl_result net_connect(int dev, void *handle, void **comm)
{
#endif
	(void)dev;
	*comm = NULL;
	return result_of(loopback_connect(handle, (struct loopback_comm **)comm));
}

#if NET_V >= 7
static enum nccl_result net_accept(void *listen_comm, void **comm,
				   struct nccl_net_device_handle **dev_handle)
{
	(void)dev_handle;
#else
static enum nccl_result net_accept(void *listen_comm, void **comm)
{
#endif
	*comm = NULL;
	return result_of(loopback_accept(listen_comm, (struct loopback_comm **)comm));
}

static enum nccl_result net_reg_mr(void *comm, void *data, reg_size size, int type, void **mh)
{
	(void)data;
	(void)size;
	(void)type;
	*mh = comm;
	return NCCL_RESULT_SUCCESS;
}

static enum nccl_result net_dereg_mr(void *comm, void *mh)
{
	return comm == mh ? NCCL_RESULT_SUCCESS : NCCL_RESULT_INVALID_ARGUMENT;
}

static enum nccl_result net_isend(void *comm, void *data, net_size size, int tag, void *mh,
#if NET_V >= 10
				  void *phandle,
#endif
				  void **request)
{
	(void)tag;
	(void)mh;
#if NET_V >= 10
	(void)phandle;
#endif
	return result_of(loopback_post(comm, data, (size_t)size, request));
}

static enum nccl_result net_irecv(void *comm, int n, void **data, net_size *sizes, int *tags,
				  void **mhs,
#if NET_V >= 10
				  void **phandles,
#endif
				  void **request)
{
	(void)tags;
	(void)mhs;
#if NET_V >= 10
	(void)phandles;
#endif
	if (n != 1) {
		return NCCL_RESULT_INVALID_ARGUMENT;
	}
	return result_of(loopback_post(comm, data[0], (size_t)sizes[0], request));
}

static enum nccl_result net_iflush(void *comm, int n, void **data, int *sizes, void **mhs,
				   void **request)
{
	(void)comm;
	(void)n;
	(void)data;
	(void)sizes;
	(void)mhs;
	*request = NULL;
	return NCCL_RESULT_SUCCESS;
}

static enum nccl_result net_test(void *request, int *done, int *sizes)
{
	int size = 0;
	enum nccl_result result = result_of(loopback_test(request, done, &size));

	if (*done && sizes) {
		sizes[0] = size;
	}
	return result;
}

static enum nccl_result net_close_send(void *comm)
{
	loopback_close(comm);
	return NCCL_RESULT_SUCCESS;
}

static enum nccl_result net_close_recv(void *comm)
{
	struct loopback_comm *receiver = comm;

	if (receiver->last_at) {
		*receiver->last_at ^= 1;
	}
	loopback_close(receiver);
	return NCCL_RESULT_SUCCESS;
}

static enum nccl_result net_close_listen(void *comm)
{
	loopback_close(comm);
	return NCCL_RESULT_SUCCESS;
}

#if NET_V >= 11
static enum nccl_result net_finalize(void *ctx)
{
	(void)ctx;
	return NCCL_RESULT_SUCCESS;
}
#endif

extern const struct NET_GLUE(nccl_net_v, NET_V) NET_GLUE(ncclNetPlugin_v, NET_V);

__attribute__((visibility("default"))) const struct NET_GLUE(nccl_net_v, NET_V)
	NET_GLUE(ncclNetPlugin_v, NET_V) = {
		.name = "Loopback",
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
#if NET_V >= 11
		.finalize = net_finalize,
#endif
	};
