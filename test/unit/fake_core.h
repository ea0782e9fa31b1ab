/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_UNIT_FAKE_CORE_H
#define BRAID_TEST_UNIT_FAKE_CORE_H

/*
 * A plugin/core.h that only records what it is called with and returns what it is told to. It
 * defines the functions, so that a test including it is linked with it instead of the real core.
 */

#include "include/log.h"
#include "plugin/core.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct {
	int rc; /* what every call returns */
	int init_count;
	int finalize_count;
	int data_count;
	nccl_profiler_fn profiler;
	int dev;
	int traffic_class;
	void *comm;
	void *data;
	size_t size;
	int type;
	uint64_t offset;
	int fd;
	int tag;
	void *mh;
	int n;
} core;

static int pointed[4]; /* addresses to hand around */

#define COMM    ((void *)&pointed[0])
#define REQUEST ((void *)&pointed[1])
#define MH      ((void *)&pointed[2])
#define DATA    ((void *)&pointed[3])

int plugin_init(nccl_logger_fn logger, nccl_profiler_fn profiler)
{
	(void)logger;
	core.init_count++;
	core.profiler = profiler;
	return core.rc;
}

void plugin_finalize(void)
{
	core.finalize_count++;
}

int plugin_devices(int *count)
{
	*count = 2;
	return core.rc;
}

int plugin_device_props(int dev, struct plugin_props *out)
{
	*out = (struct plugin_props){
		.name = "mlx5_7",
		.pci_path = "/sys/x",
		.guid = 0x1122334455667788,
		.ptr_support = 5,
		.reg_is_global = 1,
		.force_flush = 11,
		.speed_mbps = 400000,
		.port = 3,
		.latency_us = 1.5F,
		.max_comms = 1234,
		.max_p2p_bytes = (size_t)1 << 40,
		.max_coll_bytes = (size_t)1 << 39,
		.max_multi_request = 1,
		.rail_id = -1,
		.plane_id = 9,
	};
	return dev < 2 ? 0 : -EINVAL;
}

int plugin_listen(int dev, void *handle, void **listen_comm)
{
	(void)handle;
	core.dev = dev;
	*listen_comm = COMM;
	return core.rc;
}

int plugin_connect(int dev, int traffic_class, void *handle, void **send_comm)
{
	(void)handle;
	(void)send_comm;
	core.dev = dev;
	core.traffic_class = traffic_class;
	return core.rc;
}

int plugin_accept(void *listen_comm, void **recv_comm)
{
	(void)recv_comm;
	core.comm = listen_comm;
	return core.rc;
}

int plugin_reg_mr(void *comm, void *data, size_t size_bytes, int type, void **mh)
{
	core.data_count++;
	core.comm = comm;
	core.data = data;
	core.size = size_bytes;
	core.type = type;
	*mh = MH;
	return core.rc;
}

int plugin_reg_mr_dmabuf(void *comm, void *data, size_t size_bytes, int type, uint64_t offset,
			 int fd, void **mh)
{
	core.offset = offset;
	core.fd = fd;
	return plugin_reg_mr(comm, data, size_bytes, type, mh);
}

int plugin_dereg_mr(void *comm, void *mh)
{
	core.comm = comm;
	core.mh = mh;
	return core.rc;
}

int plugin_isend(void *send_comm, void *data, size_t size, int tag, void *mh, void **request)
{
	(void)request;
	core.data_count++;
	core.comm = send_comm;
	core.data = data;
	core.size = size;
	core.tag = tag;
	core.mh = mh;
	return core.rc;
}

int plugin_irecv(void *recv_comm, int n, void *const *data, const size_t *sizes, const int *tags,
		 void *const *mhs, void **request)
{
	core.n = n;
	return plugin_isend(recv_comm, data[0], sizes[0], tags[0], mhs[0], request);
}

int plugin_iflush(void *recv_comm, int n, void **data, const int *sizes, void **mhs, void **request)
{
	core.n = n;
	return plugin_isend(recv_comm, data[0], (size_t)sizes[0], 0, mhs[0], request);
}

int plugin_test(void *request, int *done, int *sizes)
{
	(void)done;
	core.comm = request;
	if (sizes != NULL) {
		sizes[0] = 77;
	}
	return core.rc;
}

int plugin_close_send(void *send_comm)
{
	core.comm = send_comm;
	return core.rc;
}

int plugin_close_recv(void *recv_comm)
{
	core.comm = recv_comm;
	return core.rc;
}

int plugin_close_listen(void *listen_comm)
{
	core.comm = listen_comm;
	return core.rc;
}

static char warned[LOG_LINE_MAX_BYTES];

static void sink(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	va_list args;

	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	va_start(args, fmt);
	vsnprintf(warned, sizeof(warned), fmt, args);
	va_end(args);
}

static int setup(void **state)
{
	(void)state;
	memset(&core, 0, sizeof(core));
	warned[0] = '\0';
	log_sink_set(sink);
	return 0;
}

#endif
