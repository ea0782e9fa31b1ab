/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/op.h"

#include "test/nccl/matrix/gpu.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define GUARD_LEN     4096 /* as comm.c makes room for */
#define GUARD_BYTE    0x5c
#define STALE_BYTE    0xa5 /* what a result's place holds before */
#define WHOLE_BLOCK   UINT64_MAX
#define SHOW_COUNT    40
#define ERROR_LOOK_NS 1000000

static const int type_codes[] = {
	[VALUE_FLOAT] = NCCL_FLOAT, [VALUE_HALF] = NCCL_HALF,   [VALUE_BFLOAT16] = NCCL_BFLOAT16,
	[VALUE_INT32] = NCCL_INT32, [VALUE_INT64] = NCCL_INT64,
};
static const int red_codes[] = {
	[VALUE_SUM] = NCCL_SUM,
	[VALUE_MAX] = NCCL_MAX,
	[VALUE_MIN] = NCCL_MIN,
	[VALUE_AVG] = NCCL_AVG,
};

static_assert(sizeof(type_codes) / sizeof(type_codes[0]) == VALUE_TYPE_COUNT, "a code per type");
static_assert(sizeof(red_codes) / sizeof(red_codes[0]) == VALUE_RED_COUNT, "a code per reduction");

/* Counts from the size in bytes; equal parts for each rank where the collective has parts. */
static void run_size(struct op_run *run)
{
	uint64_t ranks = (uint64_t)run->comm->rank_count;
	uint64_t whole = run->op.bytes / value_size(run->op.type);
	uint64_t part = whole / ranks;

	run->send_count = whole;
	run->recv_count = whole;
	if (run->op.coll == OP_ALL_GATHER) {
		run->send_count = part;
		run->recv_count = part * ranks;
	} else if (run->op.coll == OP_REDUCE_SCATTER) {
		run->send_count = part * ranks;
		run->recv_count = part;
	} else if (run->op.coll == OP_ALL_TO_ALL) {
		run->send_count = part * ranks;
		run->recv_count = part * ranks;
	}
}

/* In place, the smaller buffer is this rank's part of the larger one. */
static int run_buffers(struct op_run *run)
{
	struct comm *comm = run->comm;
	uint64_t size = value_size(run->op.type);
	bool is_in_place = run->op.place == OP_IN_PLACE;
	uint64_t recv_len = size * run->recv_count;
	uint64_t send_len = size * run->send_count;
	int rc = arena_grow(&comm->send, send_len > recv_len || !is_in_place ? send_len : recv_len);

	if (rc == 0 && !is_in_place) {
		rc = arena_grow(&comm->recv, recv_len);
	}
	if (rc != 0) {
		return rc;
	}
	run->send = comm->send.block + GUARD_LEN;
	run->recv = is_in_place ? run->send : comm->recv.block + GUARD_LEN;
	if (is_in_place && run->op.coll == OP_ALL_GATHER) {
		run->send = comm->send.block + GUARD_LEN +
			    size * run->send_count * (uint64_t)comm->rank;
	} else if (is_in_place && run->op.coll == OP_REDUCE_SCATTER) {
		run->recv = comm->send.block + GUARD_LEN +
			    size * run->recv_count * (uint64_t)comm->rank;
	}
	return 0;
}

/* How many bytes lie between the guards of an arena. */
static uint64_t data_len(const struct op_run *run, const struct arena *arena)
{
	uint64_t size = value_size(run->op.type);
	uint64_t larger = run->send_count > run->recv_count ? run->send_count : run->recv_count;

	if (run->op.place == OP_IN_PLACE) {
		return size * larger;
	}
	return size * (arena == &run->comm->send ? run->send_count : run->recv_count);
}

static int guards_set(struct op_run *run, struct arena *arena)
{
	void *stream = run->comm->stream;
	int rc = gpu_set(arena->block, GUARD_BYTE, GUARD_LEN, stream);

	if (rc == 0) {
		rc = gpu_set(arena->block + GUARD_LEN + data_len(run, arena), GUARD_BYTE, GUARD_LEN,
			     stream);
	}
	return rc;
}

static int register_buffers(struct rank *rank, struct op_run *run)
{
	struct comm *comm = run->comm;
	int rc = rank->api.comm_register(comm->handle, comm->send.block,
					 comm->send.len_bytes + 2 * (size_t)GUARD_LEN,
					 &run->send_registration);

	if (rc == NCCL_SUCCESS && run->op.place == OP_OUT_OF_PLACE) {
		rc = rank->api.comm_register(comm->handle, comm->recv.block,
					     comm->recv.len_bytes + 2 * (size_t)GUARD_LEN,
					     &run->recv_registration);
	}
	return rc == NCCL_SUCCESS ? 0 : rank_error(rank, "ncclCommRegister", rc);
}

static int unregister_buffers(struct rank *rank, struct op_run *run)
{
	int rc = rank->api.comm_deregister(run->comm->handle, run->send_registration);

	if (rc == NCCL_SUCCESS && run->op.place == OP_OUT_OF_PLACE) {
		rc = rank->api.comm_deregister(run->comm->handle, run->recv_registration);
	}
	return rc == NCCL_SUCCESS ? 0 : rank_error(rank, "ncclCommDeregister", rc);
}

int op_prepare(struct rank *rank, struct comm *comm, const struct op *op, struct op_run *run)
{
	memset(run, 0, sizeof(*run));
	run->op = *op;
	run->comm = comm;
	run->spec.type = op->type;
	run->spec.salt = rank->salt * 4 + comm->color;
	run->spec.is_unsigned = op->red == VALUE_AVG;
	run->root = (int)((op->root >= 0 ? op->root : (int64_t)rank->salt) % comm->rank_count);
	run_size(run);
	int rc = run_buffers(run);
	struct value_want from = {.source = (uint32_t)comm->rank, .block = WHOLE_BLOCK};

	if (rc == 0) {
		rc = guards_set(run, &comm->send);
	}
	if (rc == 0 && op->place == OP_OUT_OF_PLACE) {
		rc = guards_set(run, &comm->recv);
	}
	if (rc == 0) {
		void *place = op->place == OP_IN_PLACE ? comm->send.block + GUARD_LEN : run->recv;
		struct arena *arena = op->place == OP_IN_PLACE ? &comm->send : &comm->recv;

		rc = gpu_set(place, STALE_BYTE, data_len(run, arena), comm->stream);
	}
	if (rc == 0) {
		rc = gpu_fill(run->send, run->send_count, &run->spec, &from, comm->stream);
	}
	if (rc == 0) {
		rc = gpu_stream_wait(comm->stream);
	}
	return rc == 0 && op->is_registered ? register_buffers(rank, run) : rc;
}

static int launch_pairs(struct rank *rank, struct op_run *run)
{
	const struct nccl_api *api = &rank->api;
	int type = type_codes[run->op.type];
	uint64_t size = value_size(run->op.type);
	int count = run->comm->rank_count;
	uint64_t part = run->send_count / (uint64_t)count;
	int rc = api->group_start();

	if (run->op.coll == OP_RING) {
		int after = (run->comm->rank + 1) % count;
		int before = (run->comm->rank + count - 1) % count;

		rc |= api->send(run->send, run->send_count, type, after, run->comm->handle,
				run->comm->stream);
		rc |= api->recv(run->recv, run->recv_count, type, before, run->comm->handle,
				run->comm->stream);
		return rc | api->group_end();
	}
	for (int peer = 0; peer < count; peer++) {
		uint64_t at = size * part * (uint64_t)peer;

		rc |= api->send((const char *)run->send + at, part, type, peer, run->comm->handle,
				run->comm->stream);
		rc |= api->recv((char *)run->recv + at, part, type, peer, run->comm->handle,
				run->comm->stream);
	}
	return rc | api->group_end();
}

static int launch(struct rank *rank, struct op_run *run)
{
	const struct nccl_api *api = &rank->api;
	int type = type_codes[run->op.type];
	int red = red_codes[run->op.red];
	void *handle = run->comm->handle;
	void *stream = run->comm->stream;

	switch (run->op.coll) {
	case OP_ALL_REDUCE:
		return api->all_reduce(run->send, run->recv, run->send_count, type, red, handle,
				       stream);
	case OP_ALL_GATHER:
		return api->all_gather(run->send, run->recv, run->send_count, type, handle, stream);
	case OP_REDUCE_SCATTER:
		return api->reduce_scatter(run->send, run->recv, run->recv_count, type, red, handle,
					   stream);
	case OP_BROADCAST:
		return api->broadcast(run->send, run->recv, run->send_count, type, run->root,
				      handle, stream);
	case OP_REDUCE:
		return api->reduce(run->send, run->recv, run->send_count, type, red, run->root,
				   handle, stream);
	case OP_ALL_TO_ALL:
	case OP_RING:
	case OP_COLL_COUNT:
		break;
	}
	return launch_pairs(rank, run);
}

int op_launch(struct rank *rank, struct op_run *run)
{
	/* In a group results of several calls are or-ed: in progress (7) or success (0) are whole,
	 * and whatever else comes out is an error with a name that may be a mix. */
	return comm_settle(rank, run->comm, launch(rank, run), op_coll_name(run->op.coll));
}

int op_wait(struct rank *rank, struct op_run *run)
{
	uint64_t now_ns = shared_now_ns();
	uint64_t deadline_ns = now_ns + rank->step_limit_ms * 1000000;
	uint64_t look_ns = now_ns + ERROR_LOOK_NS;
	int rc;

	while ((rc = gpu_stream_poll(run->comm->stream)) == -EAGAIN) {
		now_ns = shared_now_ns();
		if (now_ns > look_ns) {
			int error = 0;
			int result = rank->api.comm_async_error(run->comm->handle, &error);

			look_ns = now_ns + ERROR_LOOK_NS;
			if (result != NCCL_SUCCESS || error != NCCL_SUCCESS) {
				return rank_error(rank, "communicator",
						  error != 0 ? error : result);
			}
		}
		if (now_ns > deadline_ns) {
			fprintf(stderr, "nccl_matrix: rank %d: plan line %u: %s hangs\n",
				rank->rank, rank->line->number, op_coll_name(run->op.coll));
			return -ETIMEDOUT;
		}
		shared_nap();
	}
	return rc;
}

static struct value_want want_of(const struct op_run *run)
{
	uint64_t ranks = (uint64_t)run->comm->rank_count;
	uint64_t mine = (uint64_t)run->comm->rank;
	struct value_want want = {.red = run->op.red, .block = WHOLE_BLOCK};

	switch (run->op.coll) {
	case OP_ALL_REDUCE:
	case OP_REDUCE:
		want.ranks = (uint32_t)ranks;
		break;
	case OP_REDUCE_SCATTER:
		want.ranks = (uint32_t)ranks;
		want.base = mine * run->recv_count;
		break;
	case OP_ALL_GATHER:
		want.block = run->send_count;
		break;
	case OP_BROADCAST:
		want.source = (uint32_t)run->root;
		break;
	case OP_ALL_TO_ALL:
		want.block = run->send_count / ranks;
		want.base = mine * want.block;
		break;
	case OP_RING:
	case OP_COLL_COUNT:
		want.source = (uint32_t)((mine + ranks - 1) % ranks);
		break;
	}
	if (want.block == 0) {
		want.block = WHOLE_BLOCK; /* no elements, nothing to look at */
	}
	return want;
}

static int check_guards(struct op_run *run, struct arena *arena, uint64_t *wrong)
{
	void *stream = run->comm->stream;
	struct gpu_wrong before;
	struct gpu_wrong behind;
	int rc = gpu_check_set(arena->block, GUARD_BYTE, GUARD_LEN, stream, &before);

	if (rc == 0) {
		rc = gpu_check_set(arena->block + GUARD_LEN + data_len(run, arena), GUARD_BYTE,
				   GUARD_LEN, stream, &behind);
	}
	if (rc == 0) {
		*wrong += before.count + behind.count;
	}
	return rc;
}

/* What was sent must be as it was; a reduce leaves the other ranks' results alone. */
static int check_untouched(struct op_run *run, uint64_t *wrong)
{
	struct value_want from = {.source = (uint32_t)run->comm->rank, .block = WHOLE_BLOCK};
	struct gpu_wrong found;
	int rc =
		gpu_check(run->send, run->send_count, &run->spec, &from, run->comm->stream, &found);

	if (rc == 0) {
		*wrong += found.count;
	}
	if (rc == 0 && run->op.coll == OP_REDUCE && run->comm->rank != run->root) {
		rc = gpu_check_set(run->recv, STALE_BYTE, data_len(run, &run->comm->recv),
				   run->comm->stream, &found);
		*wrong += rc == 0 ? found.count : 0;
	}
	return rc;
}

static int corrupt(struct rank *rank, struct op_run *run)
{
	if (rank->corrupt_line != (int64_t)rank->line->number || run->comm->rank != run->root ||
	    run->recv_count == 0) {
		return 0;
	}
	uint64_t size = value_size(run->op.type);

	return gpu_set((char *)run->recv + size * (run->recv_count / 2), 0x11, size,
		       run->comm->stream);
}

/* For people: what the first wrong elements are, and what they should be. */
static void show_wrong(struct rank *rank, struct op_run *run, const struct value_want *want,
		       const struct gpu_wrong *wrong)
{
	uint64_t size = value_size(run->op.type);
	uint64_t left = run->recv_count - wrong->first;
	uint64_t count = left < SHOW_COUNT ? left : SHOW_COUNT;
	unsigned char got[SHOW_COUNT * sizeof(int64_t)];

	fprintf(stderr,
		"nccl_matrix: rank %d: plan line %u: %s of %llu bytes: %llu wrong, from %llu to "
		"%llu, %.1f ms after it began:",
		rank->rank, rank->line->number, op_coll_name(run->op.coll),
		(unsigned long long)run->op.bytes, wrong->count, wrong->first, wrong->last,
		(double)(shared_now_ns() - rank->mine->begin_ns) / 1e6);
	if (gpu_read((char *)run->recv + size * wrong->first, got, size * count,
		     run->comm->stream) != 0) {
		return;
	}
	for (uint64_t i = 0; i < count; i++) {
		fprintf(stderr, " %g/%g", value_get_number(run->op.type, got, i),
			(double)value_wanted(&run->spec, want, wrong->first + i));
	}
	fprintf(stderr, " (got/wanted)\n");
}

static int check_result(struct rank *rank, struct op_run *run, uint64_t *wrong)
{
	struct value_want want = want_of(run);
	struct gpu_wrong found;
	int rc =
		gpu_check(run->recv, run->recv_count, &run->spec, &want, run->comm->stream, &found);

	if (rc != 0) {
		return rc;
	}
	rank->mine->elements += run->recv_count;
	*wrong += found.count;
	if (found.count > 0) {
		show_wrong(rank, run, &want, &found);
	}
	return 0;
}

int op_check(struct rank *rank, struct op_run *run)
{
	bool has_result = run->op.coll != OP_REDUCE || run->comm->rank == run->root;
	uint64_t wrong = 0;
	uint64_t found = 0;
	int rc = corrupt(rank, run);

	if (rc == 0 && has_result) {
		rc = check_result(rank, run, &wrong);
	}
	if (rc == 0) {
		rc = check_guards(run, &run->comm->send, &found);
	}
	if (rc == 0 && run->op.place == OP_OUT_OF_PLACE) {
		rc = check_guards(run, &run->comm->recv, &found);
		rc = rc == 0 ? check_untouched(run, &found) : rc;
	}
	rank->mine->wrong += wrong + found;
	return rc == 0 && run->op.is_registered ? unregister_buffers(rank, run) : rc;
}

int op_round(struct rank *rank, struct comm *comm, const struct op *op)
{
	struct op_run run;
	int rc = op_prepare(rank, comm, op, &run);

	rank->salt++;
	if (rc == 0) {
		rc = rank_sync(rank);
	}
	if (rc != 0) {
		return rc;
	}
	rank->mine->begin_ns = shared_now_ns();
	rc = op_launch(rank, &run);
	if (rc == 0) {
		rc = op_wait(rank, &run);
	}
	rank->mine->end_ns = shared_now_ns();
	return rc == 0 ? op_check(rank, &run) : rc;
}
