/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/nccl_api.h"
#include "test/nccl/matrix/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Stands in for NCCL where there is no GPU, so that nccl_matrix itself can be tested: the same
 * names, data through shared memory, every call done on return. STANDIN_FAULT makes it a bad NCCL:
 * wrong (one element), stale (a result left out), overrun (a byte too far), send (changes what is
 * sent), hang, error. STANDIN_MS makes an all-reduce last so long.
 */

#define EXPORT    __attribute__((visibility("default")))
#define SLOT_LEN  (1u << 20)
#define MAX_CALLS 32

struct board {
	_Atomic uint32_t arrived;
	_Atomic uint32_t gen;
	_Atomic int pids[VALUE_MAX_RANKS];
	int colors[VALUE_MAX_RANKS];
	unsigned char slots[VALUE_MAX_RANKS][SLOT_LEN];
};

struct standin_comm {
	struct nccl_unique_id id;
	int rank;
	int count;
	uint32_t split_count;
	struct board *board;
	int error;
};

struct call {
	bool is_send;
	const void *from;
	void *to;
	size_t len;
	int peer;
	struct standin_comm *comm;
};

static struct call calls[MAX_CALLS];
static unsigned call_count;
static int group_depth;

static bool is_bad(const char *how)
{
	const char *told = getenv("STANDIN_FAULT");

	return told != NULL && strcmp(told, how) == 0;
}

static enum value_type type_of(int type)
{
	return type == NCCL_FLOAT      ? VALUE_FLOAT
	       : type == NCCL_HALF     ? VALUE_HALF
	       : type == NCCL_BFLOAT16 ? VALUE_BFLOAT16
	       : type == NCCL_INT32    ? VALUE_INT32
				       : VALUE_INT64;
}

/* All ranks of the communicator, or a remote error when one of them is dead. */
static int meet(struct standin_comm *comm)
{
	struct board *board = comm->board;
	uint32_t gen = atomic_load(&board->gen);

	if (is_bad("hang") && comm->rank == 1) {
		pause();
	}
	if (atomic_fetch_add(&board->arrived, 1) + 1 == (uint32_t)comm->count) {
		atomic_store(&board->arrived, 0);
		atomic_store(&board->gen, gen + 1);
		return NCCL_SUCCESS;
	}
	while (atomic_load(&board->gen) == gen) {
		for (int r = 0; r < comm->count; r++) {
			int pid = atomic_load(&board->pids[r]);

			if (pid != 0 && kill(pid, 0) != 0 && errno == ESRCH) {
				comm->error = NCCL_REMOTE;
				return NCCL_REMOTE;
			}
		}
		shared_nap();
	}
	return NCCL_SUCCESS;
}

static int board_open(struct standin_comm *comm)
{
	const char *folder =
		getenv("FABRIC_DIR"); /* goes with the run, also when ranks are killed */
	char path[512];
	int fd = -1;

	if (folder != NULL &&
	    snprintf(path, sizeof(path), "%s%s", folder, comm->id.bytes) < (int)sizeof(path)) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	}
	if (fd < 0 || ftruncate(fd, (off_t)sizeof(struct board)) != 0) {
		return NCCL_SYSTEM;
	}
	comm->board = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (comm->board == MAP_FAILED) {
		return NCCL_SYSTEM;
	}
	atomic_store(&comm->board->pids[comm->rank], (int)getpid());
	int rc = meet(comm);

	if (comm->rank == 0) {
		unlink(path);
	}
	return rc;
}

EXPORT int ncclGetVersion(int *version)
{
	*version = 0;
	return NCCL_SUCCESS;
}

EXPORT int ncclGetUniqueId(struct nccl_unique_id *id)
{
	static unsigned number;

	snprintf(id->bytes, sizeof(id->bytes), "/standin-%d-%u", (int)getpid(), number++);
	return NCCL_SUCCESS;
}

/* NCCL_ALGO is what the test wants it to be here, "none" for nothing. */
static bool is_algo_right(void)
{
	const char *wanted = getenv("STANDIN_ALGO");
	const char *algo = getenv("NCCL_ALGO");

	return wanted == NULL || strcmp(wanted, algo != NULL ? algo : "none") == 0;
}

EXPORT int ncclCommInitRankConfig(void **handle, int count, struct nccl_unique_id id, int rank,
				  struct nccl_config *config)
{
	struct standin_comm *comm = calloc(1, sizeof(*comm));

	if (comm == NULL || config->magic != NCCL_CONFIG_MAGIC || !is_algo_right()) {
		free(comm);
		return NCCL_INVALID_ARGUMENT;
	}
	comm->id = id;
	comm->rank = rank;
	comm->count = count;
	*handle = comm;
	return board_open(comm);
}

EXPORT int ncclCommSplit(void *handle, int color, int key, void **child_handle,
			 struct nccl_config *config)
{
	struct standin_comm *parent = handle;
	struct nccl_unique_id id;
	int rank = 0;
	int count = 0;

	parent->board->colors[parent->rank] = color;
	if (meet(parent) != NCCL_SUCCESS || key != parent->rank) {
		return NCCL_INTERNAL;
	}
	for (int r = 0; r < parent->count; r++) {
		bool is_mine = parent->board->colors[r] == color;

		count += is_mine ? 1 : 0;
		rank += is_mine && r < parent->rank ? 1 : 0;
	}
	snprintf(id.bytes, sizeof(id.bytes), "%.90s-%u-%d", parent->id.bytes, parent->split_count++,
		 color);
	return ncclCommInitRankConfig(child_handle, count, id, rank, config);
}

EXPORT int ncclCommFinalize(void *handle)
{
	(void)handle;
	return NCCL_SUCCESS;
}

EXPORT int ncclCommDestroy(void *handle)
{
	struct standin_comm *comm = handle;

	munmap(comm->board, sizeof(*comm->board));
	free(comm);
	return NCCL_SUCCESS;
}

EXPORT int ncclCommAbort(void *handle)
{
	return ncclCommDestroy(handle);
}

EXPORT int ncclCommGetAsyncError(void *handle, int *error)
{
	*error = ((struct standin_comm *)handle)->error;
	return NCCL_SUCCESS;
}

EXPORT int ncclCommRegister(void *handle, void *buf, size_t len, void **registration)
{
	*registration = handle;
	return buf != NULL && len > 0 ? NCCL_SUCCESS : NCCL_INVALID_ARGUMENT;
}

EXPORT int ncclCommDeregister(void *handle, void *registration)
{
	return registration == handle ? NCCL_SUCCESS : NCCL_INVALID_ARGUMENT;
}

/* Everybody's `len` bytes are on the board, from here until meet() again. */
static int show(struct standin_comm *comm, const void *from, size_t len)
{
	if (len > SLOT_LEN) {
		return NCCL_INVALID_ARGUMENT;
	}
	if (is_bad("error")) {
		return NCCL_SYSTEM;
	}
	memcpy(comm->board->slots[comm->rank], from, len);
	return meet(comm);
}

static void put(enum value_type type, void *buf, size_t idx, double value)
{
	if (type == VALUE_INT32 || type == VALUE_INT64) {
		value_put(type, buf, idx, (int64_t)value);
	} else if (type == VALUE_FLOAT) {
		((float *)buf)[idx] = (float)value;
	} else {
		uint32_t bits = value_float_bits((float)value);

		((uint16_t *)buf)[idx] =
			type == VALUE_HALF ? value_half_bits((float)value) : (uint16_t)(bits >> 16);
	}
}

static double reduce_one(const struct standin_comm *comm, enum value_type type, int red, size_t idx)
{
	double total = value_get_number(type, comm->board->slots[0], idx);

	for (int r = 1; r < comm->count; r++) {
		double next = value_get_number(type, comm->board->slots[r], idx);

		if (red == NCCL_MAX || red == NCCL_MIN) {
			total = (next > total) == (red == NCCL_MAX) ? next : total;
		} else {
			total += next;
		}
	}
	return red == NCCL_AVG ? total / comm->count : total;
}

static int reduce_slots(struct standin_comm *comm, void *recv, size_t first, size_t count, int type,
			int red)
{
	for (size_t i = 0; i < count; i++) {
		put(type_of(type), recv, i, reduce_one(comm, type_of(type), red, first + i));
	}
	if (count > 0 && is_bad("wrong")) {
		((unsigned char *)recv)[0] ^= 1;
	}
	if (is_bad("overrun")) {
		((unsigned char *)recv)[count * value_size(type_of(type))] = 0;
	}
	return meet(comm);
}

static void linger(void)
{
	const char *told = getenv("STANDIN_MS");
	uint64_t until_ns =
		shared_now_ns() + (told != NULL ? strtoull(told, NULL, 10) * 1000000 : 0);

	while (shared_now_ns() < until_ns) {
		shared_nap();
	}
}

EXPORT int ncclAllReduce(const void *send, void *recv, size_t count, int type, int red,
			 void *handle, void *stream)
{
	struct standin_comm *comm = handle;
	int rc = show(comm, send, count * value_size(type_of(type)));

	(void)stream;
	linger();
	if (rc != NCCL_SUCCESS || is_bad("stale")) {
		return rc != NCCL_SUCCESS ? rc : meet(comm);
	}
	if (is_bad("send") && count > 0) {
		((unsigned char *)(uintptr_t)send)[0] ^= 1;
	}
	return reduce_slots(comm, recv, 0, count, type, red);
}

EXPORT int ncclReduceScatter(const void *send, void *recv, size_t count, int type, int red,
			     void *handle, void *stream)
{
	struct standin_comm *comm = handle;
	size_t total = count * (size_t)comm->count;
	int rc = show(comm, send, total * value_size(type_of(type)));

	(void)stream;
	if (rc != NCCL_SUCCESS) {
		return rc;
	}
	return reduce_slots(comm, recv, count * (size_t)comm->rank, count, type, red);
}

EXPORT int ncclReduce(const void *send, void *recv, size_t count, int type, int red, int root,
		      void *handle, void *stream)
{
	struct standin_comm *comm = handle;
	int rc = show(comm, send, count * value_size(type_of(type)));

	(void)stream;
	if (rc != NCCL_SUCCESS) {
		return rc;
	}
	return comm->rank == root ? reduce_slots(comm, recv, 0, count, type, red) : meet(comm);
}

EXPORT int ncclAllGather(const void *send, void *recv, size_t count, int type, void *handle,
			 void *stream)
{
	struct standin_comm *comm = handle;
	size_t len = count * value_size(type_of(type));
	int rc = show(comm, send, len);

	(void)stream;
	for (int r = 0; rc == NCCL_SUCCESS && r < comm->count; r++) {
		memcpy((char *)recv + len * (size_t)r, comm->board->slots[r], len);
	}
	return rc == NCCL_SUCCESS ? meet(comm) : rc;
}

EXPORT int ncclBroadcast(const void *send, void *recv, size_t count, int type, int root,
			 void *handle, void *stream)
{
	struct standin_comm *comm = handle;
	size_t len = count * value_size(type_of(type));
	int rc = show(comm, send, len);

	(void)stream;
	if (rc == NCCL_SUCCESS) {
		memcpy(recv, comm->board->slots[root], len);
		rc = meet(comm);
	}
	return rc;
}

EXPORT int ncclGroupStart(void)
{
	group_depth++;
	return NCCL_SUCCESS;
}

static int call_add(struct call call)
{
	if (group_depth == 0 || call_count == MAX_CALLS || call.len > SLOT_LEN / VALUE_MAX_RANKS) {
		return NCCL_INVALID_USAGE;
	}
	calls[call_count++] = call;
	return NCCL_SUCCESS;
}

EXPORT int ncclSend(const void *send, size_t count, int type, int peer, void *handle, void *stream)
{
	(void)stream;
	return call_add((struct call){.is_send = true,
				      .from = send,
				      .peer = peer,
				      .comm = handle,
				      .len = count * value_size(type_of(type))});
}

EXPORT int ncclRecv(void *recv, size_t count, int type, int peer, void *handle, void *stream)
{
	(void)stream;
	return call_add((struct call){.to = recv,
				      .peer = peer,
				      .comm = handle,
				      .len = count * value_size(type_of(type))});
}

EXPORT int ncclGroupEnd(void)
{
	struct standin_comm *comm = call_count > 0 ? calls[0].comm : NULL;
	size_t part = SLOT_LEN / VALUE_MAX_RANKS;

	if (--group_depth > 0 || comm == NULL) {
		return NCCL_SUCCESS;
	}
	for (unsigned i = 0; i < call_count; i++) {
		if (calls[i].is_send) {
			memcpy(comm->board->slots[comm->rank] + part * (size_t)calls[i].peer,
			       calls[i].from, calls[i].len);
		}
	}
	int rc = meet(comm);

	for (unsigned i = 0; rc == NCCL_SUCCESS && i < call_count; i++) {
		if (!calls[i].is_send) {
			memcpy(calls[i].to,
			       comm->board->slots[calls[i].peer] + part * (size_t)comm->rank,
			       calls[i].len);
		}
	}
	call_count = 0;
	return rc == NCCL_SUCCESS ? meet(comm) : rc;
}
