/* SPDX-License-Identifier: Apache-2.0 */

/* How fast one engine is: GB/s of large writes, messages a second of small ones, the time of a
 * ping-pong. Prints one line each; not a test. */

#include "test/fabric/tests/rig.h"

#include <stdlib.h>
#include <string.h>

#define BYTES    (8ull << 30)
#define MESSAGES 200000u
#define ROUNDS   20000u

static void connect_all(struct rig *rig, uint32_t qp_count)
{
	struct rig_qp_options deep = rig_defaults;

	deep.send_wr = 256;
	deep.recv_wr = 1024;
	deep.timeout = 14;
	rig_open(rig, 0);
	for (uint32_t i = 0; i < qp_count; i++) {
		rig_connect(rig, i, &deep);
	}
}

/* `count` operations over `qp_count` QPs, up to 128 out at a time. */
static double pump(struct rig *rig, uint32_t qp_count, enum ibv_wr_opcode opcode, uint32_t count,
		   uint32_t len)
{
	uint64_t start_ns = rig_now_ns();
	uint32_t posted = 0;
	uint32_t done = 0;
	struct ibv_wc wc[32];

	while (done < count) {
		int got;

		while (posted < count && posted - done < 128) {
			CHECK(rig_post(rig, posted % qp_count, opcode, posted, 0, len) == 0);
			posted++;
		}
		got = ibv_poll_cq(rig->cq, 32, wc);
		CHECK(got >= 0);
		for (int i = 0; i < got; i++) {
			CHECK(wc[i].status == IBV_WC_SUCCESS);
		}
		done += (uint32_t)got;
		if (got == 0) {
			sched_yield();
		}
	}
	return (double)(rig_now_ns() - start_ns) / 1e9;
}

static void take(struct rig *rig, uint32_t count)
{
	struct ibv_wc wc[32];
	uint32_t posted = 0;
	uint32_t done = 0;

	while (done < count) {
		int got;

		while (posted < count && posted - done < 1000) {
			CHECK(rig_post_recv(rig, 0, posted++, 0, 0) == 0);
		}
		got = ibv_poll_cq(rig->cq, 32, wc);
		CHECK(got >= 0);
		done += (uint32_t)got;
		if (got == 0) {
			sched_yield();
		}
	}
}

static void host0(struct rig *rig)
{
	const uint32_t len = 1u << 20;
	double s;

	connect_all(rig, 8);
	rig_fill(rig, 1, 0, len);
	s = pump(rig, 1, IBV_WR_RDMA_WRITE, BYTES / len, len);
	printf("write 1 MiB, 1 QP: %.2f GB/s\n", (double)BYTES / s / 1e9);
	s = pump(rig, 8, IBV_WR_RDMA_WRITE, BYTES / len, len);
	printf("write 1 MiB, 8 QPs: %.2f GB/s\n", (double)BYTES / s / 1e9);
	s = pump(rig, 1, IBV_WR_RDMA_READ, BYTES / len, len);
	printf("read 1 MiB, 1 QP: %.2f GB/s\n", (double)BYTES / s / 1e9);
	s = pump(rig, 1, IBV_WR_RDMA_WRITE, MESSAGES, 64);
	printf("write 64 B: %.0f thousand messages/s\n", MESSAGES / s / 1e3);
	rig_barrier(rig);
	s = pump(rig, 1, IBV_WR_RDMA_WRITE_WITH_IMM, MESSAGES, 64);
	printf("write with immediate 64 B: %.0f thousand messages/s\n", MESSAGES / s / 1e3);
	rig_barrier(rig);
	s = (double)rig_now_ns();
	for (uint32_t i = 0; i < ROUNDS; i++) {
		CHECK(rig_post_recv(rig, 0, i, 0, 0) == 0);
		CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, i, 0, 8) == 0);
		(void)rig_poll(rig);
		(void)rig_poll(rig);
	}
	s = ((double)rig_now_ns() - s) / 1e9;
	printf("ping-pong 8 B: %.1f us a round\n", s * 1e6 / ROUNDS);
	rig_barrier(rig);
	rig_close(rig);
}

static void host1(struct rig *rig)
{
	connect_all(rig, 8);
	rig_barrier(rig);
	take(rig, MESSAGES);
	rig_barrier(rig);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		struct ibv_wc wc;

		CHECK(rig_post_recv(rig, 0, i, 0, 0) == 0);
		do {
			wc = rig_poll(rig);
		} while ((wc.opcode & IBV_WC_RECV) == 0);
		CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, i, 0, 8) == 0);
	}
	rig_barrier(rig);
	rig_close(rig);
}

int main(void)
{
	static const struct rig_case c = {.host0 = host0, .host1 = host1};

	setvbuf(stdout, NULL, _IOLBF, 0);
	return rig_run(&c);
}
