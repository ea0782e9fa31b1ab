/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_CORE_H
#define BRAID_PLUGIN_CORE_H

/*
 * The one core under all ncclNetPlugin_vN tables. The tables (net_*.c) translate arguments and
 * results and hold no state but v11's contexts; everything else is behind these functions. They
 * return 0 or -errno; result.h says which errno NCCL sees as what. An error from isend, irecv, test
 * or iflush ends the communicator for good, so nothing survivable and no full queue may be one.
 *
 * NCCL's threads, named below:
 *   init      the user's thread, under a mutex of the process
 *   service   one per rank: listen, connect, accept, registration, closing. Serves all connections
 *             of the rank, so nothing on it may block
 *   progress  one per rank: isend, irecv, test, iflush. Must not block either
 * One comm's data calls come from one thread, but registration runs beside them, and several ranks
 * of one process come in at once.
 */

#include "include/nccl_net.h"

#include <stddef.h>
#include <stdint.h>

/** What a device is, every version's fields together. Strings live for ever. */
struct plugin_props {
	const char *name;     /* verbs name, unique: the key in NCCL's topology */
	const char *pci_path; /* sysfs path, or NULL */
	uint64_t guid;        /* devices of equal guid and port share bandwidth */
	int ptr_support;      /* bits of enum nccl_ptr */
	int reg_is_global;    /* 0 or 1; from v8 on */
	int force_flush;      /* 0 or 1; from v9 on */
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	size_t max_p2p_bytes;  /* from v9 on; up to NCCL_NET_SIZE_MAX_BYTES */
	size_t max_coll_bytes; /* from v9 on */
	int max_multi_request; /* from v11 on; 1 */
	int16_t rail_id;       /* v12; NCCL_NET_ID_NONE when not known */
	int16_t plane_id;      /* v12; NCCL_NET_ID_NONE when not known */
};

/**
 * Start, or count one more user. May be called any number of times, also after all were finalized;
 * up to v10 nobody ever finalizes, and NCCL 2.22 and 2.23 go on without a new init after they
 * unloaded the plugin. Threads start at first use, not here.
 *
 * Trouble with the environment (no verbs library, no HCA, a refused variable, disabled) is no
 * error: log it, succeed, and let plugin_devices say 0. An error here may crash NCCL 2.28.
 * @param logger   NCCL's, valid for ever; NULL keeps the one there is
 * @param profiler NCCL's callback (v10 on), or NULL
 * @return 0, or -ENOMEM and the like. Thread: init. May block on device files.
 */
int plugin_init(nccl_logger_fn logger, nccl_profiler_fn profiler);

/** One user less; the last one stops what runs when no comm is left. Calls without init are
 * ignored. */
void plugin_finalize(void);

/** Number of devices; 0 makes NCCL go on to its own transports. Thread: init. */
int plugin_devices(int *count);

/** Fill *out for device `dev`. -EINVAL when there is no such device. Thread: init. */
int plugin_device_props(int dev, struct plugin_props *out);

/**
 * Listen for one connection. `handle` is NCCL_NET_HANDLE_BYTES long, zeroed or not; what is written
 * there reaches plugin_connect of the peer. Thread: service, or init (loopback tests).
 */
int plugin_listen(int dev, void *handle, void **listen_comm);

/**
 * Take one more step in connecting to `handle`; *send_comm = NULL with success means not yet, and
 * NCCL calls again with the same handle memory, so that a cookie may be kept in it. NCCL sets no
 * limit of time: keep BRAID_CONNECT_TIMEOUT_MS here. A half-made connection is never closed.
 * @param traffic_class 0 to 255, or NCCL_NET_TRAFFIC_CLASS_NONE
 */
int plugin_connect(int dev, int traffic_class, void *handle, void **send_comm);

/** As plugin_connect, for the listening side. plugin_close_listen may follow at once. */
int plugin_accept(void *listen_comm, void **recv_comm);

/**
 * Register memory on every rail the comm may ever use. An error is fatal for NCCL's own buffers.
 * @param comm a send or recv comm
 * @param type NCCL_PTR_HOST or NCCL_PTR_CUDA
 * Thread: service, beside running data calls of the same comm.
 */
int plugin_reg_mr(void *comm, void *data, size_t size_bytes, int type, void **mh);

/** As plugin_reg_mr, from a DMA-BUF. NCCL closes `fd` right after. */
int plugin_reg_mr_dmabuf(void *comm, void *data, size_t size_bytes, int type, uint64_t offset,
			 int fd, void **mh);

/** May come with requests outstanding (abort). Must not fail: an error leaks later connections. */
int plugin_dereg_mr(void *comm, void *mh);

/**
 * Start sending. *request = NULL with success means not now, call again; the tables have set it to
 * NULL already. Any number of calls may be NULL, in order; the k-th accepted one matches the peer's
 * k-th accepted irecv. Size 0 is sent too. A size above the matched receive is clamped to it.
 */
int plugin_isend(void *send_comm, void *data, size_t size, int tag, void *mh, void **request);

/** Start receiving; n is 1 (maxRecvs). *request = NULL with success means not now. */
int plugin_irecv(void *recv_comm, int n, void *const *data, const size_t *sizes, const int *tags,
		 void *const *mhs, void **request);

/**
 * Make received GPU data visible, through every rail that carried a piece. *request = NULL with
 * success means that there is nothing to wait for.
 */
int plugin_iflush(void *recv_comm, int n, void **data, const int *sizes, void **mhs,
		  void **request);

/**
 * Is it done? The tables have set *done to 0. When it is, the size goes to sizes[0] if `sizes` is
 * not NULL, and the request is never looked at again. A send is done only when the receiver's book
 * covers it, a receive only when nothing can write into its buffer any more.
 */
int plugin_test(void *request, int *done, int *sizes);

/** Close in any state, with requests outstanding or a dead peer too, in bounded time. */
int plugin_close_send(void *send_comm);
int plugin_close_recv(void *recv_comm);
int plugin_close_listen(void *listen_comm);

#endif
