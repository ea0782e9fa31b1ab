/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What connections cost when there are hundreds: ends of them in one process, both of each, so that
 * every number here is that of 500 comms on one link each way.
 */

#include "core_rig.h"
#include "oob/net_priv.h"
#include "plugin/comm.h"

/* A sanitizer keeps books of its own about every byte. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

enum {
	PAIRS = 250,
	RAILS = 2, /* of the rig; each comm has a path on each */
	/* ARCHITECTURE.md, "What a connection costs" */
	COMM_STRUCT_KIB = 60,
	COMM_RINGS_KIB = 40 + 8 * RAILS,
	LINK_KIB = 18,
	/* The emulated HCA's queues of a path, in this process's heap and in the fabric's files. */
	FABRIC_PATH_KIB = 80,
	COMM_KIB_MAX = SANITIZED ? 4000 : COMM_STRUCT_KIB + COMM_RINGS_KIB + RAILS * FABRIC_PATH_KIB
};

_Static_assert(sizeof(struct comm) <= COMM_STRUCT_KIB * 1024, "the formula");
_Static_assert(sizeof(struct oob_link) + sizeof(struct oob_conn) <= LINK_KIB * 1024, "the formula");

static struct rig_pair pairs[PAIRS];

static unsigned long resident_kib(void)
{
	unsigned long total, resident = 0;
	FILE *file = fopen("/proc/self/statm", "r");

	assert_non_null(file);
	assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
	(void)fclose(file);
	return resident * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

/* What the HCAs hold for an end: a QP with its CQ for each path, one registration. */
static void check_objects(const struct comm *comm)
{
	assert_int_equal(comm->rail_count, RAILS);
	assert_int_equal(comm->path_count, RAILS);
	for (unsigned int p = 0; p < comm->path_count; p++) {
		assert_non_null(comm->paths[p].qp.qp);
	}
	assert_int_equal(comm->rings.mr->len_bytes, COMM_RINGS_KIB * 1024);
	assert_int_equal(comm->rings.mr->ref_count, 1);
}

/* One message each way of thinking: every connection carries its own. */
static void exchange(struct rig_pair *pair, uint8_t *from, uint8_t *to, uint8_t value)
{
	void *send_mh, *recv_mh, *send, *recv;
	int sent = 0, received = 0;

	assert_int_equal(plugin_reg_mr(pair->send, from, 4096, NCCL_PTR_HOST, &send_mh), 0);
	assert_int_equal(plugin_reg_mr(pair->recv, to, 4096, NCCL_PTR_HOST, &recv_mh), 0);
	memset(from, value, 4096);
	recv = rig_irecv(pair, to, 4096, recv_mh);
	send = rig_isend(pair, from, 4096, send_mh);
	rig_finish(send, recv, &sent, &received);
	assert_int_equal(received, 4096);
	assert_memory_equal(from, to, 4096);
	assert_int_equal(plugin_dereg_mr(pair->send, send_mh), 0);
	assert_int_equal(plugin_dereg_mr(pair->recv, recv_mh), 0);
}

static void test_many(void **state)
{
	uint8_t *from = aligned_alloc(4096, 4096), *to = aligned_alloc(4096, 4096);
	unsigned int fds, threads, open_ms, close_ms;
	unsigned long kib;
	uint64_t start_ns;

	(void)state;
	assert_non_null(from);
	assert_non_null(to);
	assert_int_equal(plugin_init(NULL, NULL), 0);
	rig_open(&pairs[0], 0);
	exchange(&pairs[0], from, to, 1);
	fds = rig_fds();
	threads = rig_threads();
	kib = resident_kib();
	start_ns = clock_mono_ns();
	for (unsigned int i = 1; i < PAIRS; i++) {
		rig_open(&pairs[i], (int)(i % 2));
	}
	open_ms = rig_ms_since(start_ns);
	for (unsigned int i = 0; i < PAIRS; i++) {
		exchange(&pairs[i], from, to, (uint8_t)i);
	}
	kib = (resident_kib() - kib) / (2 * (PAIRS - 1));
	for (unsigned int i = 0; i < PAIRS; i++) {
		check_objects(pairs[i].send);
		check_objects(pairs[i].recv);
	}
	assert_int_equal(rig_fds(), fds);
	assert_int_equal(rig_threads(), threads);
	start_ns = clock_mono_ns();
	for (unsigned int i = 0; i < PAIRS; i++) {
		rig_close(&pairs[i]);
	}
	close_ms = rig_ms_since(start_ns);
	print_message("%u comms: opened in %u ms, closed in %u ms; each %lu KiB resident (struct "
		      "comm %zu), %u descriptors and %u threads for all\n",
		      2 * PAIRS, open_ms, close_ms, kib, sizeof(struct comm), fds, threads);
	assert_in_range(kib, 0, COMM_KIB_MAX);
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
	free(from);
	free(to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_many)};

	return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
