/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "include/log.h"
#include "plugin/ack_list.h"
#include "plugin/comm.h"
#include "plugin/core.h"
#include "plugin/flush.h"

#include <errno.h>
#include <string.h>

/*
 * isend, irecv and test: NCCL's progress thread. The comm's lock is free but during repairs and
 * four times a second. No system call, no allocation (P8), and no clock: the time of the last call
 * that had one does, as long as nothing fails (plugin/progress.c) and no piece is timed
 * (repair/pace.h).
 */

/* On which paths it is registered: as a rule on all of them. */
static uint32_t key_mask(const struct comm *comm, const struct memory *memory)
{
	uint32_t mask = 0;

	if (memory && ib_mr_is_on_all(memory->mr, comm->path_rails)) {
		return (1u << comm->path_count) - 1;
	}
	for (unsigned int p = 0; memory && p < comm->path_count; p++) {
		mask |= (uint32_t)ib_mr_is_on(memory->mr, comm->paths[p].rail) << p;
	}
	return mask;
}

int plugin_isend(void *send_comm, void *data, size_t size, int tag, void *mh, void **request)
{
	struct comm *comm = send_comm;
	struct memory *memory = mh;
	struct repair_send send = {
		.cookie = memory, .addr = (uint64_t)(uintptr_t)data, .size_bytes = size};
	struct request *req;
	int rc;

	(void)tag; /* one receive per request: matching is in order */
	if (size > 0 && !memory) {
		return -EINVAL;
	}
	lock_take(&comm->lock);
	rc = comm_error(comm);
	req = rc ? NULL : comm_take_request(comm, REQUEST_SEND, memory);
	if (!req) {
		goto unlock;
	}
	send.key_mask = key_mask(comm, memory);
	rc = repair_tx_send(&comm->tx, &send,
			    repair_tx_wants_time(&comm->tx, size) ? clock_mono_ns()
								  : comm->end.now_ns,
			    &req->seq);
	if (rc) {
		/* The entry would be there by itself; look for faults while NCCL asks again. What
		 * was sent is looked after by test. */
		comm_progress(comm, comm->end.now_ns);
		comm_give_request(req);
		rc = comm_error(comm);
		goto unlock;
	}
	comm_expect(req);
	*request = req;
unlock:
	comm_unlock(comm);
	ack_list_turn();
	return rc;
}

static void fill_recv(const struct comm *comm, struct memory *memory, void *data, size_t size,
		      struct repair_recv *out)
{
	out->cookie = memory;
	out->addr = (uint64_t)(uintptr_t)data;
	out->size_bytes = memory ? size : 0;
	out->key_mask = key_mask(comm, memory);
	memset(out->rkeys, 0, sizeof(out->rkeys));
	for (unsigned int p = 0; memory && p < comm->path_count; p++) {
		out->rkeys[p] = ib_mr_rkey(memory->mr, comm->paths[p].rail);
	}
}

int plugin_irecv(void *recv_comm, int n, void *const *data, const size_t *sizes, const int *tags,
		 void *const *mhs, void **request)
{
	struct comm *comm = recv_comm;
	struct memory *memory = mhs ? mhs[0] : NULL;
	struct repair_recv recv;
	struct request *req;
	int rc;

	(void)tags;
	if (n != 1 || (sizes[0] > 0 && !memory)) {
		return -EINVAL;
	}
	lock_take(&comm->lock);
	rc = comm_error(comm);
	req = rc ? NULL : comm_take_request(comm, REQUEST_RECV, memory);
	if (!req) {
		goto unlock;
	}
	fill_recv(comm, memory, data[0], sizes[0], &recv);
	rc = repair_rx_recv(&comm->rx, &recv, comm->end.now_ns, &req->seq);
	if (rc == -EAGAIN) {
		comm_progress(comm, comm->end.now_ns);
	}
	if (rc) {
		comm_give_request(req);
		rc = rc == -EAGAIN ? 0 : comm_error(comm);
		goto unlock;
	}
	comm_expect(req);
	*request = req;
unlock:
	comm_unlock(comm);
	ack_list_turn();
	return rc;
}

static bool take_send(struct comm *comm, const struct request *req, uint64_t *size_bytes)
{
	if (!repair_tx_done(&comm->tx, req->seq, size_bytes)) {
		return false;
	}
	repair_tx_release(&comm->tx, req->seq);
	return true;
}

static bool take_recv(struct comm *comm, const struct request *req, uint64_t *size_bytes)
{
	uint32_t path_mask;

	if (!repair_rx_done(&comm->rx, req->seq, size_bytes, &path_mask)) {
		return false;
	}
	repair_rx_release(&comm->rx, req->seq);
	return true;
}

/* Does the request wait for something that a peer which has closed will never do? */
static bool is_owed(const struct comm *comm, const struct request *req)
{
	switch (req->type) {
	case REQUEST_SEND:
		return req->seq >= comm->tx.acked_seq; /* else only for its WRs to come back */
	case REQUEST_RECV:
		return true;
	case REQUEST_FLUSH:
		break; /* a read of our own memory */
	}
	return false;
}

/*
 * What is complete is complete, whatever became of the comm since. Acknowledgements are looked at
 * before any queue: they lie in memory, and say all that a message waits for which was copied when
 * it was posted.
 */
static inline bool look_at_send(struct comm *comm, const struct request *req, uint64_t *size_bytes)
{
	if (!comm->end.failed) {
		repair_tx_poll_acks(&comm->tx);
	}
	if (take_send(comm, req, size_bytes)) {
		return true;
	}
	comm_progress(comm, comm->end.now_ns);
	return take_send(comm, req, size_bytes);
}

/* One poll finds what many requests wait for, so look before polling: the others cost nothing more.
 */
static inline bool look_at_recv(struct comm *comm, const struct request *req, uint64_t *size_bytes)
{
	if (take_recv(comm, req, size_bytes)) {
		return true;
	}
	comm_progress_recv(comm, req->seq, comm->end.now_ns);
	return take_recv(comm, req, size_bytes);
}

static inline bool look(struct comm *comm, struct request *req, uint64_t *size_bytes)
{
	if (comm->state != COMM_READY) {
		return false;
	}
	switch (req->type) {
	case REQUEST_SEND:
		return look_at_send(comm, req, size_bytes);
	case REQUEST_RECV:
		return look_at_recv(comm, req, size_bytes);
	case REQUEST_FLUSH:
		break;
	}
	comm_progress(comm, comm->end.now_ns);
	*size_bytes = 0;
	return flush_poll(comm, req, clock_mono_ns());
}

int plugin_test(void *request, int *done, int *sizes)
{
	struct request *req = request;
	struct comm *comm = req->comm;
	uint64_t size_bytes = 0;
	int rc = 0;

	lock_take(&comm->lock);
	if (look(comm, req, &size_bytes)) {
		comm_give_request(req);
		*done = 1;
	} else {
		rc = comm_error(comm);
		if (!rc && comm->end.peer_closed && is_owed(comm, req)) {
			repair_end_fail(&comm->end, CAUSE_PEER_CLOSED, PATHS_MAX, NULL);
			rc = comm_error(comm);
		}
		if (rc) {
			comm_unexpect(req); /* it is not asked for again, and may never be closed */
		}
	}
	comm_unlock(comm);
	ack_list_turn();
	if (*done && sizes) {
		sizes[0] = (int)size_bytes;
	}
	return rc;
}
