/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An HCA that takes verbs calls and does not come back while connections are closed (P11): each
 * call ends in time, and many of them do not add up. The threads stay until it does come back.
 */

#include "core_rig.h"
#include "plugin/runtime.h"

enum {
	PAIRS = 20,
	BYTES = 1 << 20,
	ONE_MS = 2000,  /* for the first that finds out */
	MANY_MS = 3000, /* for the others together, on a busy machine */
};

static struct rig_pair pairs[PAIRS];

static uint64_t load_bytes(void)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < RAILS_MAX; i++) {
		sum += atomic_load(&runtime_instance()->shares[i].load_bytes);
	}
	return sum;
}

/* A message that nobody waits for; its registrations are never given back. */
static void send_one(struct rig_pair *pair, uint8_t *buf)
{
	static void *send_mh, *recv_mh;

	assert_int_equal(plugin_reg_mr(pair->send, buf, BYTES, NCCL_PTR_HOST, &send_mh), 0);
	assert_int_equal(plugin_reg_mr(pair->recv, buf, BYTES, NCCL_PTR_HOST, &recv_mh), 0);
	assert_non_null(rig_irecv(pair, buf, BYTES, recv_mh));
	assert_non_null(rig_isend(pair, buf, BYTES, send_mh));
}

static void test_destroy_blocks(void **state)
{
	uint8_t *buf = aligned_alloc(4096, BYTES);
	uint64_t start_ns;

	(void)state;
	assert_non_null(buf);
	memset(buf, 1, BYTES);
	assert_int_equal(plugin_init(NULL, NULL), 0);
	for (unsigned int i = 0; i < PAIRS; i++) {
		rig_open(&pairs[i], 0);
	}
	rig_fault("block host=0 rail=1 call=destroy_qp delay_ms=20000");
	send_one(&pairs[0], buf);
	start_ns = clock_mono_ns();
	plugin_close_send(pairs[0].send);
	assert_in_range(rig_ms_since(start_ns), ONE_MS - 1, ONE_MS + MANY_MS);
	assert_true(load_bytes() == 0); /* it is not over, but no other one waits behind it */
	start_ns = clock_mono_ns();
	plugin_close_recv(pairs[0].recv);
	for (unsigned int i = 1; i < PAIRS; i++) {
		rig_close(&pairs[i]);
	}
	assert_in_range(rig_ms_since(start_ns), 0, 39 * 50 + MANY_MS);
	plugin_finalize();
	assert_true(rig_threads() > 0);
	rig_fault("heal host=0 rail=1");
	start_ns = clock_mono_ns();
	while (rig_threads() > 0) {
		rig_pause();
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
	free(buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_destroy_blocks)};

	return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
