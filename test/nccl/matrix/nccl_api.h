/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_NCCL_API_H
#define BRAID_TEST_NCCL_API_H

/*
 * The part of NCCL's public API that is used here, declared from its documentation (nccl.h of 2.19
 * and later), so that building needs no NCCL. The library is opened at run time.
 */

#include <stddef.h>
#include <stdint.h>

enum nccl_result {
	NCCL_SUCCESS = 0,
	NCCL_UNHANDLED_CUDA = 1,
	NCCL_SYSTEM = 2,
	NCCL_INTERNAL = 3,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	NCCL_REMOTE = 6,
	NCCL_IN_PROGRESS = 7
};

enum nccl_type {
	NCCL_INT32 = 2,
	NCCL_INT64 = 4,
	NCCL_HALF = 6,
	NCCL_FLOAT = 7,
	NCCL_BFLOAT16 = 9
};

enum nccl_red {
	NCCL_SUM = 0,
	NCCL_MAX = 2,
	NCCL_MIN = 3,
	NCCL_AVG = 4
};

struct nccl_unique_id {
	char bytes[128];
};

/* ncclConfig_t as of 2.19; newer releases go by `size` and take their defaults for the rest. */
struct nccl_config {
	size_t size;
	unsigned int magic;
	unsigned int version;
	int blocking;
	int cga_cluster_size;
	int min_ctas;
	int max_ctas;
	const char *net_name;
	int split_share;
};

#define NCCL_CONFIG_MAGIC   0xcafebeefU
#define NCCL_CONFIG_VERSION 21903U
#define NCCL_CONFIG_UNSET   ((int)0x80000000)

/* clang-format off */
/* X(field, symbol, arguments), each returns an enum nccl_result; comm and stream are opaque. */
#define NCCL_API_LIST(X)                                                                               \
	X(get_version, "ncclGetVersion", (int *))                                                      \
	X(get_unique_id, "ncclGetUniqueId", (struct nccl_unique_id *))                                 \
	X(comm_init, "ncclCommInitRankConfig",                                                         \
	  (void **, int, struct nccl_unique_id, int, struct nccl_config *))                            \
	X(comm_finalize, "ncclCommFinalize", (void *))                                                 \
	X(comm_destroy, "ncclCommDestroy", (void *))                                                   \
	X(comm_abort, "ncclCommAbort", (void *))                                                       \
	X(comm_split, "ncclCommSplit", (void *, int, int, void **, struct nccl_config *))              \
	X(comm_async_error, "ncclCommGetAsyncError", (void *, int *))                                  \
	X(comm_register, "ncclCommRegister", (void *, void *, size_t, void **))                        \
	X(comm_deregister, "ncclCommDeregister", (void *, void *))                                     \
	X(group_start, "ncclGroupStart", (void))                                                       \
	X(group_end, "ncclGroupEnd", (void))                                                           \
	X(all_reduce, "ncclAllReduce", (const void *, void *, size_t, int, int, void *, void *))       \
	X(all_gather, "ncclAllGather", (const void *, void *, size_t, int, void *, void *))            \
	X(reduce_scatter, "ncclReduceScatter",                                                         \
	  (const void *, void *, size_t, int, int, void *, void *))                                    \
	X(broadcast, "ncclBroadcast", (const void *, void *, size_t, int, int, void *, void *))        \
	X(reduce, "ncclReduce", (const void *, void *, size_t, int, int, int, void *, void *))         \
	X(send, "ncclSend", (const void *, size_t, int, int, void *, void *))                          \
	X(recv, "ncclRecv", (void *, size_t, int, int, void *, void *))
/* clang-format on */

/** NCCL's functions; argument order as NCCL's. */
struct nccl_api {
#define NCCL_API_FIELD(field, symbol, arguments) int(*field) arguments;
	NCCL_API_LIST(NCCL_API_FIELD)
#undef NCCL_API_FIELD
};

/** Opens NCCL at `path`, or libnccl.so.2 for NULL; it stays open. -ENOENT, said on stderr. */
int nccl_api_open(const char *path, struct nccl_api *api);
/** For people; "?" for a number NCCL does not give. */
const char *nccl_result_name(int result);

#endif
