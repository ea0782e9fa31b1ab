/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/post.h"
#include "include/clock.h"
#include "plugin/comm.h"

#include <arpa/inet.h>
#include <errno.h>

enum {
	POLL_BATCH = 16,
	POLL_ROUNDS = 8,    /* per path and call: NCCL's thread serves other connections too */
	QUIET_POLLS = 1024, /* that found nothing, one after the other */
	QUIET_EVERY = 4,    /* calls in which such a path is looked at once */
};

/* Without a copy in between: a receive's fields mean nothing for a send, where nobody reads them.
 */
static inline void take(struct comm *comm, const struct ibv_wc *raw, uint64_t now_ns)
{
	struct repair_wc wc = {.wr_id = raw->wr_id, .cause = CAUSE_NONE};

	if (__builtin_expect(raw->status != IBV_WC_SUCCESS, 0)) {
		wc.cause = ib_wc_cause((int)raw->status);
		now_ns = clock_mono_ns();
	} else {
		wc.imm = (raw->wc_flags & IBV_WC_WITH_IMM) != 0 ? ntohl(raw->imm_data) : 0;
		wc.len_bytes = raw->byte_len;
	}
	repair_end_completed(&comm->end, &wc, now_ns);
}

/* What a first look at the CQ has brought, and what is behind it. */
static __attribute__((noinline)) void enter(struct comm *comm, unsigned int p, struct ibv_wc *wcs,
					    int count, uint64_t now_ns)
{
	struct comm_path *path = &comm->paths[p];

	path->quiet_polls = 0;
	for (unsigned int round = 1;; round++) {
		if (__builtin_expect(count > 0 && comm->end.timed_count, 0)) {
			now_ns = clock_mono_ns();
		}
		for (int i = 0; i < count; i++) {
			take(comm, &wcs[i], now_ns);
			now_ns = comm->end.now_ns;
		}
		if (count < 0) {
			repair_end_fault(&comm->end, p, CAUSE_FATAL, clock_mono_ns());
		}
		if (count < POLL_BATCH || round == POLL_ROUNDS) {
			return;
		}
		count = ib_verbs_poll_cq(path->qp.cq, POLL_BATCH, wcs);
	}
}

/* Most times there is nothing. */
static inline void poll_path(struct comm *comm, unsigned int p, struct ibv_wc *wcs, uint64_t now_ns)
{
	struct comm_path *path = &comm->paths[p];
	int count;

	if (__builtin_expect(comm->end.paths[p].state != PATH_UP, 0)) {
		now_ns = clock_mono_ns(); /* a fence or a probe may end here */
	}
	count = ib_verbs_poll_cq(path->qp.cq, POLL_BATCH, wcs);
	if (count != 0) {
		enter(comm, p, wcs, count, now_ns);
	} else if (path->quiet_polls < QUIET_POLLS) {
		path->quiet_polls++;
	}
}

void comm_poll_path(struct comm *comm, unsigned int p, uint64_t now_ns)
{
	struct ibv_wc wcs[POLL_BATCH];

	poll_path(comm, p, wcs, now_ns);
}

static inline bool is_owed_any(const struct repair_path *path)
{
	return wrq_out(&path->sq) > 0 || path->recvs_out > 0;
}

static void poll_paths(struct comm *comm, uint64_t now_ns)
{
	struct ibv_wc wcs[POLL_BATCH];

	for (unsigned int p = 0; p < comm->path_count; p++) {
		if (is_owed_any(&comm->end.paths[p])) {
			poll_path(comm, p, wcs, now_ns);
		}
	}
}

/* Nothing has come for a while, and no fence or probe is under way. */
static inline bool is_quiet(const struct comm *comm, unsigned int p)
{
	return comm->paths[p].quiet_polls == QUIET_POLLS && comm->end.paths[p].state == PATH_UP;
}

/*
 * With many rails most queues are empty, and small messages come over the first one only: so the
 * others are looked at in turn while they bring nothing, and none behind the one that brings
 * message seq. What is left out waits for the next calls, or for the tick.
 */
static void poll_paths_for(struct comm *comm, uint64_t seq, uint64_t now_ns)
{
	unsigned int turn = comm->poll_turn++ % QUIET_EVERY;
	struct ibv_wc wcs[POLL_BATCH];

	for (unsigned int p = 0; p < comm->path_count; p++) {
		if (p > 0 && p % QUIET_EVERY != turn && is_quiet(comm, p)) {
			continue;
		}
		if (is_owed_any(&comm->end.paths[p])) {
			poll_path(comm, p, wcs, now_ns);
		}
		if (book_is_complete(&comm->rx.book, seq)) {
			return;
		}
	}
}

void comm_progress(struct comm *comm, uint64_t now_ns)
{
	if (comm->state != COMM_READY || comm->is_quiet) {
		return; /* quiet: the memory of its messages may be gone */
	}
	poll_paths(comm, now_ns);
	if (comm->role == COMM_SENDER && !comm->end.failed) {
		repair_tx_poll_acks(&comm->tx);
	}
	repair_end_pump(&comm->end, now_ns);
}

void comm_progress_recv(struct comm *comm, uint64_t seq, uint64_t now_ns)
{
	if (comm->is_quiet) {
		return;
	}
	poll_paths_for(comm, seq, now_ns);
	if (!repair_rx_is_calm(&comm->rx)) {
		repair_end_pump(&comm->end, now_ns);
	}
}

int comm_error(const struct comm *comm)
{
	static const int errs[CAUSE_COUNT] = {
		[CAUSE_PEER_GONE] = -ECONNRESET,
		[CAUSE_PEER_CLOSED] = -ESHUTDOWN,
		[CAUSE_NO_PATH] = -ENETDOWN,
		[CAUSE_PROTOCOL] = -EPROTO,
	};

	if (comm->state != COMM_READY || comm->is_quiet) {
		return -ENOTCONN;
	}
	if (!comm->end.failed) {
		return 0;
	}
	return errs[comm->end.failed] ? errs[comm->end.failed] : -EREMOTEIO;
}
