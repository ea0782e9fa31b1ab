/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/post.h"
#include "include/clock.h"
#include "plugin/comm.h"

#include <arpa/inet.h>
#include <errno.h>

enum {
	POLL_BATCH = 16,
	POLL_ROUNDS = 8, /* per path and call: NCCL's thread serves other connections too */
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

void comm_poll_path(struct comm *comm, unsigned int p, uint64_t now_ns)
{
	struct comm_path *path = &comm->paths[p];
	struct ibv_wc wcs[POLL_BATCH];

	if (__builtin_expect(comm->end.paths[p].state != PATH_UP, 0)) {
		now_ns = clock_mono_ns(); /* a fence or a probe may end here */
	}
	for (unsigned int round = 0; round < POLL_ROUNDS; round++) {
		int count = ib_verbs_poll_cq(path->qp.cq, POLL_BATCH, wcs);

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
		if (count < POLL_BATCH) {
			return;
		}
	}
}

/* The paths in turn, up to the one that brought message seq (0: all of them). */
static void poll_paths(struct comm *comm, uint64_t seq, uint64_t now_ns)
{
	for (unsigned int p = 0; p < comm->path_count; p++) {
		const struct repair_path *path = &comm->end.paths[p];

		if (wrq_out(&path->sq) > 0 || path->recvs_out > 0) {
			comm_poll_path(comm, p, now_ns);
			if (seq && p + 1 < comm->path_count &&
			    book_is_complete(&comm->rx.book, seq)) {
				return;
			}
		}
	}
}

void comm_progress(struct comm *comm, uint64_t now_ns)
{
	if (comm->state != COMM_READY || comm->is_quiet) {
		return; /* quiet: the memory of its messages may be gone */
	}
	poll_paths(comm, 0, now_ns);
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
	poll_paths(comm, seq, now_ns);
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
