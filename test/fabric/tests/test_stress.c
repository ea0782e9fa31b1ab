/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Both processes send on many QPs at once, from several threads, while faults come and go and
 * connections are broken and made anew. The seed is printed; FABRIC_TEST_SEED repeats it.
 *
 * Per connection and direction: 1. every posted request completes once, in order, successes before
 * errors; 2. immediates arrive in order without a gap; 3. acknowledged <= arrived <= posted; 4.
 * what arrived is intact.
 */

#include "test/fabric/tests/rig.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define QPS      16u
#define THREADS  2u
#define ROUNDS   6u
#define DEPTH    8u
#define SLOTS    (4 * DEPTH) /* the peer gets 2 * DEPTH ahead of what was polled, and a bit */
#define SLOT_LEN 8192u
#define ROUND_MS 60u

static uint32_t seed;

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*state >> 33);
}

/* One QP's books, each touched by its one thread. */
struct lane {
	struct rig *rig;
	uint32_t n;
	struct ibv_cq *cq;
	uint32_t posted;
	uint32_t ended; /* sends completed, in whatever way */
	uint32_t acked;
	uint32_t recv_posted;
	uint32_t recv_ended;
	uint32_t arrived;
	int broken;
};

struct worker {
	struct lane lanes[QPS / THREADS];
	pthread_t thread;
	uint64_t random;
};

static uint32_t slot_offset(uint32_t host, uint32_t n, uint32_t number)
{
	return ((host * QPS + n) * SLOTS + number % SLOTS) * SLOT_LEN;
}

static void lane_post(struct lane *lane, uint64_t *random)
{
	struct rig *rig = lane->rig;
	uint32_t offset = slot_offset(rig->host, lane->n, lane->posted);
	uint32_t len = next_random(random) % SLOT_LEN;
	struct ibv_sge sge = {.addr = (uint64_t)(uintptr_t)rig->buf + offset,
			      .length = len,
			      .lkey = rig->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = lane->posted,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = lane->posted,
		.wr.rdma = {.remote_addr = rig->peer_buf + offset, .rkey = rig->peer_rkey}};

	memset(rig->buf + offset, (int)(lane->posted * 7 + lane->n) & 0xff, len);
	CHECK(rig_post_wr(rig, lane->n, &wr) == 0);
	lane->posted++;
}

static void lane_recv_post(struct lane *lane)
{
	CHECK(rig_post_recv(lane->rig, lane->n, 1u << 31 | lane->recv_posted, 0, 0) == 0);
	lane->recv_posted++;
}

static void lane_arrival(struct lane *lane, const struct ibv_wc *wc)
{
	struct rig *rig = lane->rig;
	const uint8_t *data = rig->buf + slot_offset(1 - rig->host, lane->n, lane->arrived);
	uint8_t expect = (uint8_t)(lane->arrived * 7 + lane->n);

	CHECK(wc->imm_data == lane->arrived && wc->byte_len < SLOT_LEN);
	for (uint32_t i = 0; i < wc->byte_len; i += 97) {
		CHECK(data[i] == expect);
	}
	lane->arrived++;
}

static void lane_completion(struct lane *lane, const struct ibv_wc *wc)
{
	if ((wc->wr_id & 1u << 31) != 0) {
		CHECK(wc->wr_id == (1u << 31 | lane->recv_ended));
		lane->recv_ended++;
		if (wc->status != IBV_WC_SUCCESS) {
			CHECK(wc->status == IBV_WC_WR_FLUSH_ERR);
			lane->broken = 1;
			return;
		}
		CHECK(lane->arrived + 1 == lane->recv_ended);
		lane_arrival(lane, wc);
		return;
	}
	CHECK(wc->wr_id == lane->ended);
	lane->ended++;
	if (wc->status == IBV_WC_SUCCESS) {
		CHECK(lane->acked + 1 == lane->ended);
		lane->acked++;
	} else {
		CHECK(wc->status == IBV_WC_WR_FLUSH_ERR || wc->status == IBV_WC_RETRY_EXC_ERR);
		lane->broken = 1;
	}
}

static int lane_poll(struct lane *lane)
{
	struct ibv_wc wc[8];
	int got = ibv_poll_cq(lane->cq, 8, wc);

	CHECK(got >= 0);
	for (int i = 0; i < got; i++) {
		CHECK(wc[i].qp_num == lane->rig->qps[lane->n]->qp_num);
		lane_completion(lane, &wc[i]);
	}
	return got;
}

static void lane_drain(struct lane *lane)
{
	uint64_t end_ns = rig_now_ns() + 20000000000ull;

	CHECK(rig_qp_error(lane->rig->qps[lane->n]) == 0);
	while (lane->ended < lane->posted || lane->recv_ended < lane->recv_posted) {
		if (lane_poll(lane) == 0) {
			sched_yield();
		}
		CHECK(rig_now_ns() < end_ns);
	}
	CHECK(lane_poll(lane) == 0);
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	uint64_t end_ns = rig_now_ns() + ROUND_MS * 1000000ull;

	while (rig_now_ns() < end_ns) {
		int busy = 0;

		for (uint32_t i = 0; i < QPS / THREADS; i++) {
			struct lane *lane = &worker->lanes[i];

			busy += lane_poll(lane);
			if (lane->broken) {
				continue;
			}
			while (lane->recv_posted - lane->recv_ended < 2 * DEPTH) {
				lane_recv_post(lane);
			}
			while (lane->posted - lane->ended < DEPTH) {
				lane_post(lane, &worker->random);
			}
			if (next_random(&worker->random) % 20000 == 0) {
				lane->broken = 1; /* and the peer will find out */
				CHECK(rig_qp_error(lane->rig->qps[lane->n]) == 0);
			}
		}
		if (busy == 0) {
			sched_yield();
		}
	}
	for (uint32_t i = 0; i < QPS / THREADS; i++) {
		lane_drain(&worker->lanes[i]);
	}
	return NULL;
}

/* Makes the QPs with a CQ each, so that each lane polls its own. */
static void connect_lanes(struct rig *rig, struct worker *workers)
{
	struct ibv_cq *shared = rig->cq;

	for (uint32_t n = 0; n < QPS; n++) {
		struct worker *worker = &workers[n % THREADS];
		struct lane *lane = &worker->lanes[n / THREADS];

		memset(lane, 0, sizeof(*lane));
		lane->rig = rig;
		lane->n = n;
		lane->cq = ibv_create_cq(rig->context, 4 * DEPTH, NULL, NULL, 0);
		CHECK(lane->cq != NULL);
		rig->cq = lane->cq;
		rig_connect(rig, n, &rig_defaults);
	}
	rig->cq = shared;
}

/* Tells the peer what this end posted, had acknowledged and got, and compares. */
static void compare_books(struct rig *rig, struct worker *workers)
{
	for (uint32_t n = 0; n < QPS; n++) {
		const struct lane *lane = &workers[n % THREADS].lanes[n / THREADS];
		uint32_t mine[3] = {lane->posted, lane->acked, lane->arrived};
		uint32_t peers[3];

		rig_send(rig, mine, sizeof(mine));
		rig_recv(rig, peers, sizeof(peers));
		CHECK(mine[1] <= peers[2] && peers[2] <= mine[0]);
		CHECK(peers[1] <= mine[2] && mine[2] <= peers[0]);
	}
}

static void faults_play(struct rig *rig, uint64_t *random)
{
	static const char *const kinds[] = {"cut", "ack_loss", "port_down", "heal"};
	uint64_t end_ns = rig_now_ns() + ROUND_MS * 1000000ull;

	while (rig_now_ns() < end_ns) {
		char rule[80];
		uint32_t host = next_random(random) % 2;

		snprintf(rule, sizeof(rule), "%s host=%u rail=0 bytes=%u",
			 kinds[next_random(random) % 4], host, 1 + next_random(random) % 500000);
		CHECK(fabric_ctl_fault(rig->ctl, rule, NULL, NULL, 0) == 0);
		rig_sleep_ms(next_random(random) % 4);
		CHECK(fabric_ctl_fault(rig->ctl, "heal host=0 rail=0", NULL, NULL, 0) == 0);
		CHECK(fabric_ctl_fault(rig->ctl, "heal host=1 rail=0", NULL, NULL, 0) == 0);
	}
}

static void destroy_lanes(struct rig *rig, struct worker *workers)
{
	for (uint32_t n = 0; n < QPS; n++) {
		CHECK(ibv_destroy_qp(rig->qps[n]) == 0);
		rig->qps[n] = NULL;
		CHECK(ibv_destroy_cq(workers[n % THREADS].lanes[n / THREADS].cq) == 0);
	}
}

static void stress_one(struct rig *rig)
{
	struct worker workers[THREADS];
	uint64_t random = seed * 2654435761ull + rig->host;

	rig_open(rig, 0);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		connect_lanes(rig, workers);
		for (uint32_t t = 0; t < THREADS; t++) {
			workers[t].random = (uint64_t)next_random(&random) << 8 | t;
			CHECK(pthread_create(&workers[t].thread, NULL, worker_main, &workers[t]) ==
			      0);
		}
		if (rig->host == 0 && round % 2 == 1) {
			faults_play(rig, &random);
		}
		for (uint32_t t = 0; t < THREADS; t++) {
			CHECK(pthread_join(workers[t].thread, NULL) == 0);
		}
		compare_books(rig, workers);
		if (rig->host == 0) { /* nothing waits for the next round's bytes */
			CHECK(fabric_ctl_fault(rig->ctl, "heal host=0 rail=0", NULL, NULL, 0) == 0);
			CHECK(fabric_ctl_fault(rig->ctl, "heal host=1 rail=0", NULL, NULL, 0) == 0);
		}
		rig_barrier(rig);
		destroy_lanes(rig, workers);
	}
	while (rig_has_event(rig)) { /* ports go up and down; no queue may overrun */
		CHECK(rig_event(rig) != IBV_EVENT_CQ_ERR);
	}
	rig_close(rig);
}

static void test_stress(void **state)
{
	static const struct rig_case c = {.host0 = stress_one, .host1 = stress_one};
	const char *text = getenv("FABRIC_TEST_SEED");

	(void)state;
	seed = text != NULL ? (uint32_t)strtoul(text, NULL, 10) : (uint32_t)rig_now_ns();
	printf("FABRIC_TEST_SEED=%u\n", seed);
	assert_int_equal(rig_run(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_stress)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
