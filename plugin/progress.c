/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm.h"

#include <errno.h>

enum {
	POLL_BATCH = 16,
	POLL_ROUNDS = 8, /* per path and call: NCCL's thread serves other connections too */
};

void comm_poll_path(struct comm *comm, unsigned int p, uint64_t now_ns)
{
	struct comm_path *path = &comm->paths[p];
	struct ib_wc wcs[POLL_BATCH];

	for (unsigned int round = 0; round < POLL_ROUNDS; round++) {
		int count = ib_qp_poll(&path->qp, wcs, POLL_BATCH);

		for (int i = 0; i < count; i++) {
			struct repair_wc wc = {.wr_id = wcs[i].wr_id,
					       .cause = wcs[i].cause,
					       .imm = wcs[i].imm,
					       .len_bytes = wcs[i].len_bytes};

			repair_end_completed(&comm->end, &wc, now_ns);
		}
		if (count < 0) {
			repair_end_fault(&comm->end, p, CAUSE_FATAL, now_ns);
		}
		if (count < POLL_BATCH) {
			return;
		}
	}
}

void comm_progress(struct comm *comm, uint64_t now_ns)
{
	if (comm->state != COMM_READY || comm->is_quiet) {
		return; /* quiet: the memory of its messages may be gone */
	}
	for (unsigned int p = 0; p < comm->path_count; p++) {
		const struct repair_path *path = &comm->end.paths[p];

		if (wrq_out(&path->sq) > 0 || path->recvs_out > 0) {
			comm_poll_path(comm, p, now_ns);
		}
	}
	if (comm->role == COMM_SENDER && !comm->end.failed) {
		repair_tx_poll_acks(&comm->tx);
	}
	repair_end_pump(&comm->end, now_ns);
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
