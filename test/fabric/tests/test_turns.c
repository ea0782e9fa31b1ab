/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How the QPs of a rail share a limited rate. Shares are counted in bytes: a busy machine makes the
 * rail slower than its rate, not unfair.
 */

#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#define RATE_MBPS 100u /* a turn is 10,000 bytes */
#define RATE_TEXT "100"
#define BULK      65536u
#define TAKE      60u /* messages of each QP that are waited for */
#define DEPTH     16u /* 1 MiB a QP: some 30 ms worth of three */

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fair),
		cmocka_unit_test(test_eager),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
