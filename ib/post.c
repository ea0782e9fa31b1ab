/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/post.h"

#include <arpa/inet.h>

enum {
	RECV_BATCH = 32,
	POLL_BATCH = 16
};

/* *posted grows by what was taken. */
static int post_batch(struct ib_qp *qp, uint64_t wr_id, unsigned int count, unsigned int *posted)
{
	struct ibv_recv_wr wrs[RECV_BATCH];
	struct ibv_recv_wr *bad = NULL;
	int rc;

	for (unsigned int i = 0; i < count; i++) {
		wrs[i] = (struct ibv_recv_wr){.wr_id = wr_id,
					      .next = i + 1 < count ? &wrs[i + 1] : NULL};
	}
	rc = ib_verbs_post_recv(qp->qp, wrs, &bad);
	if (rc == 0) {
		*posted += count;
	} else if (bad >= wrs && bad < wrs + count) {
		*posted += (unsigned int)(bad - wrs);
	}
	return rc;
}

int ib_qp_post_recvs(struct ib_qp *qp, uint64_t wr_id, unsigned int count, unsigned int *posted)
{
	unsigned int done = 0;
	int rc = 0;

	while (rc == 0 && done < count) {
		unsigned int batch = count - done < RECV_BATCH ? count - done : RECV_BATCH;

		rc = post_batch(qp, wr_id, batch, &done);
	}
	*posted = done;
	return rc;
}

static void fill_wc(const struct ibv_wc *raw, struct ib_wc *out)
{
	*out = (struct ib_wc){.wr_id = raw->wr_id,
			      .cause = ib_wc_cause((int)raw->status),
			      .status = (int)raw->status};
	if (raw->status != IBV_WC_SUCCESS) {
		out->vendor_err = raw->vendor_err;
		return;
	}
	out->is_recv = ((unsigned int)raw->opcode & IBV_WC_RECV) != 0;
	if (out->is_recv) {
		out->len_bytes = raw->byte_len;
		if ((raw->wc_flags & IBV_WC_WITH_IMM) != 0) {
			out->imm = ntohl(raw->imm_data);
		}
	}
}

int ib_qp_poll(struct ib_qp *qp, struct ib_wc *wcs, unsigned int max)
{
	struct ibv_wc raw[POLL_BATCH];
	unsigned int done = 0;

	while (done < max) {
		unsigned int want = max - done < POLL_BATCH ? max - done : POLL_BATCH;
		int got = ib_verbs_poll_cq(qp->cq, (int)want, raw);

		if (got < 0) {
			/* what was taken before must not be lost; the error comes again */
			return done > 0 ? (int)done : got;
		}
		for (int i = 0; i < got; i++) {
			fill_wc(&raw[i], &wcs[done++]);
		}
		if ((unsigned int)got < want) {
			break;
		}
	}
	return (int)done;
}
