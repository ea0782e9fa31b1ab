/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_GUEST_COMPARE_PAIR_H
#define BRAID_TEST_GUEST_COMPARE_PAIR_H

#include <infiniband/verbs.h>

#include <stdint.h>

enum {
	PAIR_DEPTH = 64,        /**< work requests per queue */
	PAIR_BYTES = 128 * 1024 /**< of each end's buffer */
};

/** One end: a device with a queue pair, and memory that the other end may write. */
struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *buf;
	uint32_t psn;
	union ibv_gid gid;
	int gid_index;
	uint16_t lid;
	enum ibv_mtu mtu;
};

/** How the requester retries; the values of ibv_modify_qp(3). */
struct patience {
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
};

/** Open a device and make its queue pair in RESET. Returns 0 or -errno, undone by end_close. */
int end_open(struct end *end, const char *device);
void end_close(struct end *end);
/** Another queue pair in place of the old one, which is destroyed. Returns 0 or -errno. */
int end_renew(struct end *end);

int end_to_init(struct end *end);
int end_to_rtr(struct end *end, const struct end *peer);
int end_to_rts(struct end *end, const struct patience *patience);
int end_to(struct end *end, enum ibv_qp_state state);
/** New queue pairs at both ends, connected to each other. Returns 0 or -errno. */
int pair_connect(struct end *a, struct end *b, const struct patience *patience);

/** Post `count` receives without memory, numbered from `first`. Returns what verbs returned. */
int end_post_recv(struct end *end, uint64_t first, uint32_t count);
/** Post one write with immediate of `bytes` to the peer. Returns what verbs returned. */
int end_post_write(struct end *end, const struct end *peer, uint64_t wr_id, uint32_t bytes,
		   unsigned flags);
/**
 * Post, in one call, a plain unsignaled write of `bytes` and a signaled one of 40 bytes with
 * immediate, both numbered wr_id. Returns what verbs returned.
 */
int end_post_pair(struct end *end, const struct end *peer, uint64_t wr_id, uint32_t bytes);
/** Post a signaled read of 8 bytes from the peer. Returns what verbs returned. */
int end_post_read(struct end *end, const struct end *peer, uint64_t wr_id);
/** Poll for one completion for up to wait_ms. Returns 1, 0 for none, or negative. */
int end_poll(struct end *end, struct ibv_wc *wc, uint32_t wait_ms);

#endif
