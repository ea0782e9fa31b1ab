/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How the QPs of a rail share a limited rate. Shares are counted in bytes: a busy machine makes the
 * rail slower than its rate, not unfair.
 */

#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RATE_MBPS  100u
#define RATE_TEXT  "100"
#define TURN_BYTES 10000u /* 100 us worth */
#define BULK       65536u
#define TAKE       60u /* messages of each QP that are waited for */
#define DEPTH      16u /* 1 MiB a QP: some 30 ms worth of three */
#define PROBES     101u
#define PACKET     4096u
#define STREAM_MS  200u

static uint32_t qp_count; /* of the case under way */

static void open_all(struct rig *rig)
{
	struct rig_qp_options deep = rig_defaults;

	deep.send_wr = TAKE * 2;
	rig_open(rig, 0);
	for (uint32_t n = 0; n < qp_count; n++) {
		rig_connect(rig, n, &deep);
	}
}

static void close_all(struct rig *rig)
{
	rig_barrier(rig);
	rig_close(rig);
}

static void peer(struct rig *rig)
{
	open_all(rig);
	close_all(rig);
}

static void run(void (*host0)(struct rig *rig), uint32_t count)
{
	struct rig_case c = {.host0 = host0, .host1 = peer, .env = {"FABRIC_RATE_MBPS", RATE_TEXT}};

	qp_count = count;
	assert_int_equal(rig_run(&c), 0);
}

static int post(struct rig *rig, uint32_t n)
{
	return rig_post(rig, n, IBV_WR_RDMA_WRITE, n, 0, BULK);
}

/* Writes on each QP until TAKE of each are done, on average. All are posted before; or, if `eager`,
 * another one whenever one is done, and on QP 0 all the time, also when its queue is full.
 * counts[n]: how many of QP n's were completed. */
static void share(struct rig *rig, bool eager, uint32_t *counts)
{
	for (uint32_t i = 0; i < (eager ? DEPTH : TAKE * 2) * qp_count; i++) {
		CHECK(post(rig, i % qp_count) == 0);
	}
	memset(counts, 0, qp_count * sizeof(*counts));
	for (uint32_t left = TAKE * qp_count; left > 0; left--) {
		struct ibv_wc wc;
		int got;

		while ((got = ibv_poll_cq(rig->cq, 1, &wc)) == 0) {
			if (eager) {
				int rc = post(rig, 0);

				CHECK(rc == 0 || rc == ENOMEM);
			} else {
				rig_sleep_ms(1);
			}
		}
		CHECK(got == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id < qp_count);
		counts[wc.wr_id]++;
		CHECK(!eager || post(rig, (uint32_t)wc.wr_id) == 0);
	}
}

/* Each had its share, to within a fifth. */
static void shares_check(const uint32_t *counts)
{
	for (uint32_t n = 0; n < qp_count; n++) {
		printf("QP %u of %u: %u of %u\n", n, qp_count, counts[n], TAKE * qp_count);
	}
	fflush(stdout);
	for (uint32_t n = 0; n < qp_count; n++) {
		CHECK(counts[n] * 5 >= TAKE * 4 && counts[n] * 5 <= TAKE * 6);
	}
}

/* Nobody posts while they share: the engine wakes by time alone. */
static void fair_send(struct rig *rig)
{
	uint32_t counts[RIG_MAX_QPS];

	open_all(rig);
	share(rig, false, counts);
	shares_check(counts);
	close_all(rig);
}

static void test_fair(void **state)
{
	(void)state;
	run(fair_send, 3);
	run(fair_send, 5);
}

/* Who posts without a pause wakes the engine in every gap, and gets no more for it. */
static void eager_send(struct rig *rig)
{
	uint32_t counts[RIG_MAX_QPS];

	open_all(rig);
	share(rig, true, counts);
	shares_check(counts);
	close_all(rig);
}

static void test_eager(void **state)
{
	(void)state;
	run(eager_send, 3);
}

static uint64_t sent_bytes(struct rig *rig)
{
	struct fabric_counters counters;

	CHECK(fabric_ctl_counters(rig->ctl, 0, 0, &counters) == 0);
	return counters.tx_bytes;
}

/* Half a second of long messages on QP n, of which nothing is heard. */
static void post_bulk(struct rig *rig, uint32_t n)
{
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)rig->buf, .length = 1u << 20, .lkey = rig->mr->lkey};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {.remote_addr = rig->peer_buf, .rkey = rig->peer_rkey},
	};

	for (uint32_t i = 0; i < RATE_MBPS / 2; i++) {
		CHECK(rig_post_wr(rig, n, &wr) == 0);
	}
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* How long small messages take beside QPs that are never done, by what the rail moves in that time:
 * what is under way when one comes, not a turn of each. */
static void probe_send(struct rig *rig)
{
	uint64_t moved[PROBES];
	uint64_t ns[PROBES];

	open_all(rig);
	for (uint32_t n = 1; n < qp_count; n++) {
		post_bulk(rig, n);
	}
	for (uint32_t i = 0; i < PROBES; i++) {
		uint64_t before = sent_bytes(rig);
		uint64_t start_ns = rig_now_ns();

		CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, i, 0, 64) == 0);
		CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
		ns[i] = rig_now_ns() - start_ns;
		moved[i] = sent_bytes(rig) - before;
		rig_sleep_ms(1);
	}
	qsort(moved, PROBES, sizeof(moved[0]), by_size);
	qsort(ns, PROBES, sizeof(ns[0]), by_size);
	printf("64 bytes beside %u QPs: %u us, %u bytes (medians)\n", qp_count - 1,
	       (uint32_t)(ns[PROBES / 2] / 1000), (uint32_t)moved[PROBES / 2]);
	fflush(stdout);
	CHECK(moved[PROBES / 2] <= 3 * TURN_BYTES);
	close_all(rig);
}

static void test_probe(void **state)
{
	(void)state;
	run(probe_send, 6);
}

/* Streams of 4 KiB messages on all QPs but the first, for a while. Returns how many were done. */
static uint64_t stream(struct rig *rig, uint64_t end_ns)
{
	uint64_t done = 0;

	for (uint32_t i = 0; i < DEPTH * (qp_count - 1); i++) {
		uint32_t n = 1 + i % (qp_count - 1);

		CHECK(rig_post(rig, n, IBV_WR_RDMA_WRITE, n, 0, PACKET) == 0);
	}
	while (rig_now_ns() < end_ns) {
		struct ibv_wc wc;

		if (ibv_poll_cq(rig->cq, 1, &wc) == 0) {
			sched_yield();
			continue;
		}
		CHECK(wc.status == IBV_WC_SUCCESS);
		CHECK(rig_post(rig, (uint32_t)wc.wr_id, IBV_WR_RDMA_WRITE, wc.wr_id, 0, PACKET) ==
		      0);
		done++;
	}
	return done;
}

/* Such a stream goes between the turns of a QP with long messages and keeps it from none: one
 * packet of each stream for each turn. And all together keep to the rate. */
static void stream_send(struct rig *rig)
{
	uint64_t start_ns;
	uint64_t bulk;
	uint64_t rate;
	uint64_t sent;
	uint64_t small;

	open_all(rig);
	post_bulk(rig, 0);
	sent = sent_bytes(rig);
	start_ns = rig_now_ns();
	small = PACKET * stream(rig, start_ns + STREAM_MS * 1000000ull);
	sent = sent_bytes(rig) - sent;
	rate = sent * 1000 / (rig_now_ns() - start_ns); /* MB/s */
	bulk = sent - small;
	printf("%u streams: rate %u MB/s, long messages %u of %u KB\n", qp_count - 1,
	       (uint32_t)rate, (uint32_t)(bulk / 1000), (uint32_t)(sent / 1000));
	fflush(stdout);
	CHECK(rate <= RATE_MBPS * 103 / 100 && rate >= RATE_MBPS / 2);
	CHECK(bulk * (TURN_BYTES + (qp_count - 1) * PACKET) >= sent * TURN_BYTES * 85 / 100);
	close_all(rig);
}

static void test_stream(void **state)
{
	(void)state;
	run(stream_send, 2);
	run(stream_send, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fair),
		cmocka_unit_test(test_eager),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
