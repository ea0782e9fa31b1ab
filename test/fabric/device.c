/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/call.h"
#include "test/fabric/gpu.h"
#include "test/fabric/ops.h"
#include "test/fabric/pipe.h"
#include "test/fabric/srq.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#undef ibv_get_device_list

static pthread_mutex_t devs_lock = PTHREAD_MUTEX_INITIALIZER; /* lib->devs */

static uint32_t dev_flags(const struct fab_lib *lib, const struct fab_dev *dev)
{
	uint32_t flags = 0;

	for (uint32_t i = 0; i < dev->port_count; i++) {
		flags |= atomic_load(&fab_root_port(lib->root, lib->host, dev->rail + i)->flags);
	}
	return flags;
}

/* One that was unplugged and is there again is another device. NULL: it is out. The old ones stay:
 * contexts refer to them. */
static struct fab_dev *dev_present(struct fab_lib *lib, uint32_t idx)
{
	struct fab_dev *dev = lib->devs[idx];
	uint32_t pulls = fab_root_pulls(lib->root, lib->host, dev->rail, dev->port_count);

	if ((dev_flags(lib, dev) & FAB_GONE) != 0) {
		return NULL;
	}
	if (dev->pull_count != pulls) {
		struct fab_dev *again = malloc(sizeof(*again));

		if (again == NULL) {
			return NULL;
		}
		*again = *dev;
		again->pull_count = pulls;
		again->earlier = dev;
		lib->devs[idx] = again;
	}
	return lib->devs[idx];
}

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct fab_lib *lib = fab_lib_get();
	struct ibv_device **list;
	int count = 0;

	if (num_devices != NULL) {
		*num_devices = 0;
	}
	if (lib == NULL) {
		return NULL;
	}
	list = calloc(lib->dev_count + 1, sizeof(struct ibv_device *));
	if (list == NULL) {
		return NULL;
	}
	pthread_mutex_lock(&devs_lock);
	for (uint32_t i = 0; i < lib->dev_count; i++) {
		struct fab_dev *dev = dev_present(lib, i);

		if (dev != NULL) {
			list[count++] = &dev->ibv;
		}
	}
	pthread_mutex_unlock(&devs_lock);
	if (num_devices != NULL) {
		*num_devices = count;
	}
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list); /* the devices themselves live as long as the library */
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int ibv_get_device_index(struct ibv_device *device)
{
	return (int)((struct fab_dev *)(void *)device)->idx;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	const struct fab_dev *dev = (const struct fab_dev *)(void *)device;

	return htobe64(fab_addr_guid(fab_lib_get()->host, dev->rail));
}

int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

static void pipe_close(struct fab_ctx *ctx)
{
	close(ctx->verbs.context.async_fd);
	close(ctx->event_fd);
}

static void ibv_context_fill(struct fab_ctx *ctx, struct ibv_device *device)
{
	struct ibv_context *ibv = &ctx->verbs.context;

	fab_ops_refuse(&ctx->verbs);
	ctx->verbs.sz = sizeof(ctx->verbs);
	ibv->abi_compat = __VERBS_ABI_IS_EXTENDED;
	ibv->device = device;
	ibv->cmd_fd = -1;
	ibv->num_comp_vectors = 8;
	ibv->ops.poll_cq = fab_cq_poll;
	ibv->ops.req_notify_cq = fab_cq_req_notify;
	ibv->ops.post_send = fab_qp_post_send;
	ibv->ops.post_recv = fab_qp_post_recv;
	ibv->ops.post_srq_recv = fab_srq_post_recv;
	pthread_mutex_init(&ibv->mutex, NULL);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct fab_lib *lib = fab_lib_get();
	struct fab_dev *dev = (struct fab_dev *)(void *)device;
	struct fab_ctx *ctx = calloc(1, sizeof(*ctx));
	struct fab_inst_ports ports;
	int rc = -ENOMEM;

	if (lib == NULL || ctx == NULL) {
		goto free_ctx;
	}
	ctx->lib = lib;
	ctx->dev = dev;
	ctx->host = lib->host;
	ctx->rail = dev->rail;
	ctx->port = fab_root_port(lib->root, lib->host, dev->rail);
	pthread_mutex_init(&ctx->lock, NULL);
	rc = fab_call_begin(ctx->port, FAB_CALL_OPEN_DEVICE);
	if (rc != 0) {
		goto free_ctx;
	}
	rc = -EIO;
	if ((atomic_load(&ctx->port->flags) & FAB_DEAD) != 0) {
		goto free_ctx;
	}
	rc = -ENODEV;
	if ((dev_flags(lib, dev) & FAB_GONE) != 0 ||
	    fab_root_pulls(lib->root, lib->host, dev->rail, dev->port_count) != dev->pull_count) {
		goto free_ctx;
	}
	rc = fab_pipe_open(&ctx->verbs.context.async_fd, &ctx->event_fd);
	if (rc != 0) {
		goto free_ctx;
	}
	ports = (struct fab_inst_ports){lib->host, dev->rail, dev->port_count};
	rc = fab_inst_create(lib->root, lib->dir, &ports, &ctx->inst);
	if (rc != 0) {
		fab_complain("%s: cannot open %s (%d)", lib->dir, device->name, -rc);
		goto close_pipe;
	}
	ibv_context_fill(ctx, device);
	rc = fab_engine_start(ctx);
	if (rc != 0) {
		goto close_inst;
	}
	return &ctx->verbs.context;

close_inst:
	fab_inst_close(lib->root, lib->dir, ctx->inst);
close_pipe:
	pipe_close(ctx);
free_ctx:
	free(ctx);
	errno = -rc;
	return NULL;
}

int ibv_close_device(struct ibv_context *context)
{
	struct fab_ctx *ctx = fab_ctx_of(context);

	/* Objects left alive go with the context, as they do when the kernel closes it: nobody may
	 * place any more, and their memory belongs to the application. */
	for (uint32_t i = 0; i < atomic_load(&ctx->qp_high); i++) {
		if (ctx->qps[i] != NULL) {
			fab_qp_drop(ctx->qps[i]);
		}
	}
	fab_engine_stop(ctx);
	fab_gpu_close(ctx);
	fab_inst_close(ctx->lib->root, ctx->lib->dir, ctx->inst);
	pipe_close(ctx);
	pthread_mutex_destroy(&ctx->verbs.context.mutex);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx);
	return 0;
}
