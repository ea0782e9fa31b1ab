/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_RIG_H
#define BRAID_TEST_FABRIC_RIG_H

#include "test/fabric/fabric_ctl.h"

#include <infiniband/verbs.h>

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/*
 * Two processes on two emulated hosts, joined by a socket, each with a device, a buffer and
 * connected QPs. A case is a pair of functions, one per process; what fails in either ends it with
 * status 1 and the line on stderr.
 */

#define RIG_BUF_BYTES (8u << 20)
#define RIG_MAX_QPS   64

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: pid %d: %s\n", __FILE__, __LINE__, (int)getpid(),  \
				#condition);                                                       \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

struct rig_qp_options {
	uint32_t send_wr;
	uint32_t recv_wr;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t min_rnr_timer;
	uint32_t sq_psn; /* what this end sends with; the peer expects `peer_psn` of its own */
	uint32_t rq_psn;
};

/** 64 WRs each way, timeout 8 (1 ms) and 3 retries, rnr_retry 7, PSN 7 both ways. */
extern const struct rig_qp_options rig_defaults;

/** One process. */
struct rig {
	uint32_t host;
	int sock;
	const char *dir;
	struct fabric_ctl *ctl;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;
	uint8_t *buf;
	struct ibv_qp *qps[RIG_MAX_QPS];
	/* the peer's */
	uint64_t peer_buf;
	uint32_t peer_rkey;
	uint32_t peer_pid;
};

struct rig_case {
	void (*host0)(struct rig *rig);
	void (*host1)(struct rig *rig);
	const char *env[8]; /* NAME, value, ... up to NULL, for both */
};

/** Runs a case in a fresh directory. Returns 0 when both ends came through. `kill_ok`: host 1 may
 * end by SIGKILL. */
int rig_run(const struct rig_case *c);

/** Opens fab<rail>, makes PD, CQ, MR over a zeroed buffer, and swaps addresses with the peer. */
void rig_open(struct rig *rig, uint32_t rail);
/** The same with no peer: its address is the own one. */
void rig_open_alone(struct rig *rig, uint32_t rail);
/** Makes QP `n` on both ends and connects them. The peer does the same at the same time. */
void rig_connect(struct rig *rig, uint32_t n, const struct rig_qp_options *options);
/** Makes QP `n` and connects it to itself. It uses the port both ways, and the own buffer. */
void rig_connect_self(struct rig *rig, uint32_t n);
struct ibv_qp *rig_qp_create(struct rig *rig, const struct rig_qp_options *options);
int rig_qp_init(struct ibv_qp *qp);
int rig_qp_rtr(struct ibv_qp *qp, uint32_t dest_qpn, uint16_t dlid,
	       const struct rig_qp_options *options);
int rig_qp_rts(struct ibv_qp *qp, const struct rig_qp_options *options);
int rig_qp_error(struct ibv_qp *qp);
void rig_close(struct rig *rig);

/** Both ends get here before either goes on. */
void rig_barrier(struct rig *rig);
void rig_send(struct rig *rig, const void *data, size_t len);
void rig_recv(struct rig *rig, void *data, size_t len);

/** A signalled operation on `len` bytes at `offset` of the own and the peer's buffer; wr_id = id.
 */
int rig_post(struct rig *rig, uint32_t n, enum ibv_wr_opcode opcode, uint64_t id, uint32_t offset,
	     uint32_t len);
int rig_post_wr(struct rig *rig, uint32_t n, struct ibv_send_wr *wr);
/** A receive with no buffer, or with `len` bytes at `offset`. */
int rig_post_recv(struct rig *rig, uint32_t n, uint64_t id, uint32_t offset, uint32_t len);
/** The next completion, waiting up to 5 s for it. */
struct ibv_wc rig_poll(struct rig *rig);
/** No completion turns up within `ms`. */
void rig_quiet(struct rig *rig, uint32_t ms);
/** Fills [offset, offset + len) of the own buffer with a pattern, or checks that it is there. */
void rig_fill(struct rig *rig, uint32_t seed, uint32_t offset, uint32_t len);
int rig_holds(struct rig *rig, uint32_t seed, uint32_t offset, uint32_t len);
/** Is the range all zero? */
int rig_blank(struct rig *rig, uint32_t offset, uint32_t len);
uint64_t rig_now_ns(void);
void rig_sleep_ms(uint32_t ms);
/** The next asynchronous event, waiting up to 5 s. */
enum ibv_event_type rig_event(struct rig *rig);
int rig_has_event(struct rig *rig);
void rig_no_event(struct rig *rig, uint32_t ms);

#endif
