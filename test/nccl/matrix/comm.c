/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/gpu.h"
#include "test/nccl/matrix/op.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_LEN 4096

int rank_error(struct rank *rank, const char *what, int result)
{
	fprintf(stderr, "nccl_matrix: rank %d: plan line %u: %s: %s\n", rank->rank,
		rank->line->number, what, nccl_result_name(result));
	if (rank->mine->error == 0) {
		rank->mine->error = result;
		rank->mine->error_ns = shared_now_ns();
	}
	return -EIO;
}

int rank_sync(struct rank *rank)
{
	return shared_barrier(rank->shared, rank->step_limit_ms);
}

struct comm *comm_find(struct rank *rank, const char *name)
{
	for (unsigned i = 0; i < RANK_MAX_COMMS; i++) {
		if (rank->comms[i].name[0] != '\0' && strcmp(rank->comms[i].name, name) == 0) {
			return &rank->comms[i];
		}
	}
	fprintf(stderr, "nccl_matrix: plan line %u: no communicator '%s'\n", rank->line->number,
		name);
	return NULL;
}

static int comm_place(struct rank *rank, const char *name, struct comm **comm)
{
	for (unsigned i = 0; i < RANK_MAX_COMMS; i++) {
		if (rank->comms[i].name[0] == '\0' && strlen(name) < COMM_NAME_LEN) {
			memset(&rank->comms[i], 0, sizeof(rank->comms[i]));
			*comm = &rank->comms[i];
			return gpu_stream_create(&(*comm)->stream);
		}
	}
	fprintf(stderr, "nccl_matrix: too many communicators, or a name too long: '%s'\n", name);
	return -EINVAL;
}

/* NCCL's own threads may write it. */
static void *comm_handle(struct comm *comm)
{
	return *(void *volatile *)&comm->handle;
}

int comm_settle(struct rank *rank, struct comm *comm, int result, const char *what)
{
	uint64_t deadline_ns = shared_now_ns() + rank->step_limit_ms * 1000000;

	/* A communicator split off one that does not block may get its handle a while later. */
	while (result == NCCL_IN_PROGRESS ||
	       (result == NCCL_SUCCESS && comm_handle(comm) == NULL)) {
		if (shared_now_ns() > deadline_ns) {
			fprintf(stderr, "nccl_matrix: rank %d: %s is still in progress\n",
				rank->rank, what);
			return -ETIMEDOUT;
		}
		shared_nap();
		void *handle = comm_handle(comm);

		if (handle == NULL) {
			continue;
		}
		int rc = rank->api.comm_async_error(handle, &result);

		if (rc != NCCL_SUCCESS) {
			return rank_error(rank, "ncclCommGetAsyncError", rc);
		}
	}
	return result == NCCL_SUCCESS ? 0 : rank_error(rank, what, result);
}

static struct nccl_config config_of(const struct plan_line *line)
{
	struct nccl_config config = {
		.size = sizeof(config),
		.magic = NCCL_CONFIG_MAGIC,
		.version = NCCL_CONFIG_VERSION,
		.blocking = atoi(plan_text(line, "blocking", "1")),
		.cga_cluster_size = NCCL_CONFIG_UNSET,
		.min_ctas = NCCL_CONFIG_UNSET,
		.max_ctas = NCCL_CONFIG_UNSET,
		.net_name = NULL,
		.split_share = NCCL_CONFIG_UNSET,
	};

	return config;
}

/* NCCL reads these when a communicator is made. What the plan leaves open is as the caller had it.
 */
static struct choice {
	const char *variable;
	const char *key;
	char given[128];
	bool is_known; /* `given` holds what was there before the first communicator */
} choices[] = {{.variable = "NCCL_ALGO", .key = "algo"},
	       {.variable = "NCCL_PROTO", .key = "proto"}};

static void choose(struct choice *choice, const struct plan_line *line)
{
	if (!choice->is_known) {
		const char *given = getenv(choice->variable);

		snprintf(choice->given, sizeof(choice->given), "%s", given != NULL ? given : "");
		choice->is_known = true;
	}
	const char *value = plan_text(line, choice->key, choice->given);

	if (value[0] == '\0') {
		unsetenv(choice->variable);
	} else {
		setenv(choice->variable, value, 1);
	}
}

int comm_create(struct rank *rank, const struct plan_line *line)
{
	struct nccl_config config = config_of(line);
	struct comm *comm;
	int rc = comm_place(rank, line->name, &comm);

	for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
		choose(&choices[i], line);
	}
	if (rc == 0 && rank->rank == 0) {
		int result = rank->api.get_unique_id(&rank->shared->ids[0]);

		rc = result == NCCL_SUCCESS ? 0 : rank_error(rank, "ncclGetUniqueId", result);
	}
	if (rc == 0) {
		rc = rank_sync(rank);
	}
	if (rc != 0) {
		return rc;
	}
	comm->rank = rank->rank;
	comm->rank_count = rank->shared->rank_count;
	rc = comm_settle(rank, comm,
			 rank->api.comm_init(&comm->handle, comm->rank_count, rank->shared->ids[0],
					     comm->rank, &config),
			 "ncclCommInitRankConfig");
	if (rc != 0) {
		return rc;
	}
	strcpy(comm->name, line->name); /* comm_place looked at its length */
	return rank_sync(rank);
}

int comm_split(struct rank *rank, const struct plan_line *line)
{
	struct nccl_config config = config_of(line);
	struct comm *parent = comm_find(rank, plan_text(line, "from", ""));
	const char *by = plan_text(line, "by", "same");
	struct comm *comm;

	if (parent == NULL || comm_place(rank, line->name, &comm) != 0) {
		return -EINVAL;
	}
	int half = parent->rank_count / 2;

	comm->color = 0;
	comm->rank = parent->rank;
	comm->rank_count = parent->rank_count;
	if (strcmp(by, "half") == 0) {
		bool is_upper = parent->rank >= half;

		comm->color = is_upper ? 1 : 0;
		comm->rank = parent->rank - (is_upper ? half : 0);
		comm->rank_count = is_upper ? parent->rank_count - half : half;
	} else if (strcmp(by, "parity") == 0) {
		comm->color = (uint32_t)parent->rank % 2;
		comm->rank = parent->rank / 2;
		comm->rank_count = (parent->rank_count + (comm->color == 0 ? 1 : 0)) / 2;
	} else if (strcmp(by, "same") != 0) {
		fprintf(stderr, "nccl_matrix: plan line %u: by=%s is none of half, parity, same\n",
			line->number, by);
		return -EINVAL;
	}
	int result = rank->api.comm_split(parent->handle, (int)comm->color, parent->rank,
					  &comm->handle, &config);
	int rc = comm_settle(rank, parent, result, "ncclCommSplit");

	if (rc == 0) {
		rc = comm_settle(rank, comm, NCCL_IN_PROGRESS, "the split communicator");
	}
	if (rc != 0) {
		return rc;
	}
	strcpy(comm->name, line->name);
	return rank_sync(rank);
}

static void comm_clear(struct comm *comm)
{
	gpu_free(comm->send.block);
	gpu_free(comm->recv.block);
	gpu_stream_destroy(comm->stream);
	memset(comm, 0, sizeof(*comm));
}

int comm_destroy(struct rank *rank, const char *name)
{
	struct comm *comm = comm_find(rank, name);

	if (comm == NULL) {
		return -EINVAL;
	}
	int rc = comm_settle(rank, comm, rank->api.comm_finalize(comm->handle), "ncclCommFinalize");

	if (rc == 0) {
		int result = rank->api.comm_destroy(comm->handle);

		rc = result == NCCL_SUCCESS ? 0 : rank_error(rank, "ncclCommDestroy", result);
	}
	if (rc != 0) {
		return rc;
	}
	comm_clear(comm);
	return rank_sync(rank);
}

int comm_abort(struct rank *rank, struct comm *comm)
{
	uint64_t begin_ns = shared_now_ns();
	int result = rank->api.comm_abort(comm->handle);

	rank->mine->abort_ns = shared_now_ns() - begin_ns;
	comm_clear(comm);
	return result == NCCL_SUCCESS ? 0 : rank_error(rank, "ncclCommAbort", result);
}

int arena_grow(struct arena *arena, size_t len_bytes)
{
	void *block;

	if (arena->block != NULL && arena->len_bytes >= len_bytes) {
		return 0;
	}
	gpu_free(arena->block);
	arena->block = NULL;
	arena->len_bytes = 0;
	int rc = gpu_alloc(len_bytes + 2 * (size_t)GUARD_LEN, &block);

	if (rc == 0) {
		arena->block = block;
		arena->len_bytes = len_bytes;
	}
	return rc;
}
