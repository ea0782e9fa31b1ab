/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/flush.h"

#include "ib/verbs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	FLUSH_WRS = 64 /* reads outstanding; NCCL keeps 8 requests per connection */
};

static int create_scratch(struct ib_flush *flush)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	int rc;

	flush->scratch = aligned_alloc(page_bytes, page_bytes);
	if (flush->scratch == NULL) {
		return -ENOMEM;
	}
	memset(flush->scratch, 0, page_bytes);
	rc = ib_mr_get(flush->cache, flush->scratch, page_bytes, true, &flush->scratch_mr);
	if (rc != 0) {
		free(flush->scratch);
	}
	return rc;
}

int ib_flush_create(struct ib_rail *rail, struct ib_mr_cache *cache, const struct braid_config *cfg,
		    struct ib_flush *out)
{
	const struct ib_qp_opts opts = {.send_wrs_max = FLUSH_WRS, .recv_wrs_max = 1};
	struct ib_flush flush = {.cache = cache};
	struct rail_desc self;
	struct qp_addr addr;
	int rc = create_scratch(&flush);

	if (rc != 0) {
		return rc;
	}
	if (!ib_mr_is_on(flush.scratch_mr, rail)) {
		rc = -EIO;
		goto free_scratch;
	}
	rc = ib_qp_create(rail, &opts, &flush.qp);
	if (rc != 0) {
		goto free_scratch;
	}
	ib_rail_describe(rail, &self);
	addr = (struct qp_addr){.qpn = flush.qp.qpn, .psn = flush.qp.psn};
	rc = ib_qp_connect(&flush.qp, &self, &addr, cfg, -1);
	if (rc != 0) {
		goto destroy_qp;
	}
	*out = flush;
	return 0;

destroy_qp:
	ib_qp_destroy(&flush.qp);
free_scratch:
	ib_mr_put(cache, flush.scratch_mr);
	free(flush.scratch);
	return rc;
}

void ib_flush_destroy(struct ib_flush *flush)
{
	if (flush == NULL || flush->cache == NULL) {
		return;
	}
	ib_qp_destroy(&flush->qp);
	ib_mr_put(flush->cache, flush->scratch_mr);
	free(flush->scratch);
	memset(flush, 0, sizeof(*flush));
}

int ib_flush_post(struct ib_flush *flush, uint64_t addr, uint32_t rkey, uint64_t wr_id)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)flush->scratch,
		.length = 1,
		.lkey = ib_mr_lkey(flush->scratch_mr, flush->qp.rail),
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = addr, .rkey = rkey},
	};
	struct ibv_send_wr *bad = NULL;

	return ib_verbs_post_send(flush->qp.qp, &wr, &bad);
}

int ib_flush_poll(struct ib_flush *flush, struct ib_wc *wcs, unsigned int max)
{
	return ib_qp_poll(&flush->qp, wcs, max);
}
