/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/connect.h"

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

	if (!rt->rails || dev < 0 || (unsigned int)dev >= ib_rails_device_count(rt->rails)) {
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
	comm->was_asked_for = true;
	comm_show(comm);
	setup_begin_open(comm, handle->token);
	*out = comm_hold(comm);
	return 0;

put_comm:
	comm_close(comm); /* and the use of the runtime */
	return rc;
put_runtime:
	runtime_put();
	return rc;
}

/* State of a connection under way; fails it when it takes too long. */
static enum comm_state look(struct comm *comm, int *err)
{
	uint64_t bound_ns = (unsigned int)runtime_instance()->cfg.connect_timeout_ms * NS_PER_MS;
	enum comm_state state;

	lock_take(&comm->lock);
	comm->was_asked_for = true;
	if (comm->state == COMM_OPENING && clock_mono_ns() - comm->opened_ns > bound_ns) {
		comm_fail_setup(comm, -ETIMEDOUT, "no answer in BRAID_CONNECT_TIMEOUT_MS");
	}
	/* One that was taken for forgotten is being closed. */
	state = comm->is_handed ? COMM_CLOSED : comm->state;
	comm->is_handed = comm->is_handed || state == COMM_READY || state == COMM_FAILED;
	*err = comm->err;
	comm_unlock(comm);
	return state;
}

/* NCCL's comm while it is under way, with another reference; made at the first call. 0 or -errno.
 */
static int find_or_begin(int dev, int traffic_class, struct handle *handle, struct comm **out)
{
	int rc = 0;

	if (handle->connecting) {
		*out = comm_find(handle->connecting);
		if (!*out) {
			LOG_WARN("cannot connect: NCCL did not ask for so long that the connection "
				 "was taken for forgotten");
			rc = -ETIMEDOUT;
		}
		return rc;
	}
	rc = begin(dev, traffic_class, handle, out);
	if (!rc) {
		handle->connecting = (*out)->id;
	}
	return rc;
}

int plugin_connect(int dev, int traffic_class, void *opaque, void **send_comm)
{
	struct handle handle;
	struct comm *comm = NULL;
	enum comm_state state;
	int rc;

	memcpy(&handle, opaque, sizeof(handle));
	rc = check_handle(&handle);
	if (rc) {
		return rc;
	}
	rc = find_or_begin(dev, traffic_class, &handle, &comm);
	if (rc) {
		return rc;
	}
	state = look(comm, &rc);
	if (state == COMM_READY) {
		*send_comm = comm; /* with NCCL's own reference */
		rc = 0;
	}
	if (state != COMM_OPENING) {
		handle.connecting = 0;
	}
	memcpy(opaque, &handle, sizeof(handle));
	comm_put(comm);
	if (state == COMM_FAILED) {
		comm_close(comm); /* NCCL does not close what it never got */
	}
	return state == COMM_CLOSED ? -ETIMEDOUT : rc;
}

/*
 * NCCL that aborts while it connects does not close the connection, nor ask for it again. True once
 * for a comm that is taken for forgotten: then the caller has to close it.
 */
static bool take_forgotten(struct comm *comm)
{
	bool forgotten;

	lock_take(&comm->lock);
	forgotten = comm->role == COMM_SENDER && !comm->is_handed;
	comm->is_handed = comm->is_handed || forgotten;
	comm_unlock(comm);
	return forgotten;
}

static void *close_thread(void *comm)
{
	comm_close(comm);
	return NULL;
}

void connect_tick(struct comm *comm, uint32_t step_ms)
{
	uint32_t bound_ms = 2 * (uint32_t)runtime_instance()->cfg.connect_timeout_ms;
	pthread_attr_t attr;
	pthread_t thread;
	bool forgotten;

	lock_take(&comm->lock);
	comm->unasked_ms = comm->was_asked_for ? 0 : comm->unasked_ms + step_ms;
	comm->was_asked_for = false;
	forgotten = comm->role == COMM_SENDER && !comm->is_handed && comm->unasked_ms > bound_ms;
	comm_unlock(comm);
	if (!forgotten || !take_forgotten(comm)) {
		return;
	}
	LOG_WARN("NCCL has not asked for a connection to %s for %u ms: taken for forgotten, closed",
		 comm_peer_name(comm), bound_ms);
	/* Closing may end this very thread's loop. */
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, close_thread, comm)) {
		LOG_WARN("cannot start a thread to close it; its threads stay");
	}
	pthread_attr_destroy(&attr);
}

static void find_forgotten(struct comm *comm, void *arg)
{
	struct comm **out = arg;

	if (!*out && take_forgotten(comm)) {
		*out = comm; /* with the reference that NCCL never took */
	}
}

void connect_close_all(void)
{
	struct comm *comm;

	do {
		comm = NULL;
		comm_for_each(find_forgotten, &comm);
		if (comm) {
			comm_close(comm);
		}
	} while (comm);
}
