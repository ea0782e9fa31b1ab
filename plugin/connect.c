/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "include/log.h"
#include "include/nccl_net.h"
#include "plugin/comm.h"
#include "plugin/core.h"
#include "plugin/listen.h"
#include "plugin/runtime.h"
#include "plugin/setup.h"

#include <errno.h>
#include <string.h>

static int check_handle(const struct handle *handle)
{
	if (handle->magic != HANDLE_MAGIC) {
		LOG_WARN("the other end does not listen with Braid: is the plugin missing there? "
			 "All ranks need the same NCCL_NET_PLUGIN");
		return -EPROTO;
	}
	if (handle->version != PROTO_VERSION) {
		LOG_WARN("the other end speaks protocol %u of Braid, this end %u: install the same "
			 "release everywhere",
			 handle->version, PROTO_VERSION);
		return -EPROTONOSUPPORT;
	}
	return 0;
}

static int begin(int dev, int traffic_class, const struct handle *handle, struct comm **out)
{
	struct runtime *rt = runtime_instance();
	struct comm *comm;
	int rc;

	if (!rt->rails || dev < 0 || (unsigned int)dev >= rt->rails->count) {
		return -EINVAL;
	}
	rc = runtime_get();
	if (rc) {
		return rc;
	}
	comm = comm_create(COMM_SENDER, dev);
	if (!comm) {
		rc = -ENOMEM;
		goto put_runtime;
	}
	comm->traffic_class = traffic_class;
	rc = comm_list_rails(comm);
	if (rc) {
		LOG_WARN("cannot connect: no rail is up");
		goto put_comm;
	}
	rc = oob_link_get(rt->net, &handle->addr, &comm->link);
	if (rc) {
		goto put_comm;
	}
	setup_begin_open(comm, handle->token);
	*out = comm;
	return 0;

put_comm:
	comm_hide(comm);
	comm_put(comm);
put_runtime:
	runtime_put();
	return rc;
}

/* State of a connection under way; fails it when it takes too long. */
static enum comm_state look(struct comm *comm, int *err)
{
	uint64_t bound_ns = (unsigned int)runtime_instance()->cfg.connect_timeout_ms * NS_PER_MS;
	enum comm_state state;

	pthread_mutex_lock(&comm->lock);
	if (comm->state == COMM_OPENING && clock_mono_ns() - comm->opened_ns > bound_ns) {
		comm_fail_setup(comm, -ETIMEDOUT, "no answer in BRAID_CONNECT_TIMEOUT_MS");
	}
	state = comm->state;
	*err = comm->err;
	pthread_mutex_unlock(&comm->lock);
	return state;
}

int plugin_connect(int dev, int traffic_class, void *opaque, void **send_comm)
{
	struct handle handle;
	struct comm *comm = NULL;
	int rc;

	memcpy(&handle, opaque, sizeof(handle));
	/* Before anything else in it is believed: connecting is a pointer. */
	rc = check_handle(&handle);
	if (rc) {
		return rc;
	}
	if (!handle.connecting) {
		rc = begin(dev, traffic_class, &handle, &comm);
		if (rc) {
			return rc;
		}
		handle.connecting = (uint64_t)(uintptr_t)comm;
		memcpy(opaque, &handle, sizeof(handle));
	}
	comm = (struct comm *)(uintptr_t)handle.connecting; /* NCCL's reference */
	switch (look(comm, &rc)) {
	case COMM_READY:
		*send_comm = comm;
		rc = 0;
		break;
	case COMM_FAILED:
		/* NCCL does not close what it never got. */
		plugin_close_send(comm);
		break;
	case COMM_OPENING:
	case COMM_CLOSED:
		return 0;
	}
	handle.connecting = 0;
	memcpy(opaque, &handle, sizeof(handle));
	return rc;
}
