/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The verbs layer between two processes, over the software fabric of this build. With
 * BRAID_TEST_VERBS=system over the machine's own library and devices: then BRAID_TEST_HCA_A and
 * BRAID_TEST_HCA_B say (as NCCL_IB_HCA) which devices each of the two has.
 */

#include "ib/flush.h"
#include "ib/mr.h"
#include "ib/post.h"
#include "ib_tree.h"
#include "include/clock.h"

#include <libgen.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
	RAILS = 2,
	AREA_BYTES = 65536,
	RECVS = 48,
	WAIT_MS = 20000
};

/* What one process has. */
struct end {
	struct braid_config cfg;
	struct ib_rails *rails;
	struct ib_mr_cache *cache;
	struct ib_mr *mr;
	uint8_t *area;
	struct ib_qp qps[RAILS];
	int sock;
};

struct hello {
	struct rail_desc rails[RAILS];
	struct qp_addr qps[RAILS];
	uint64_t area;
	uint32_t rkeys[RAILS];
};

static struct end me;
static struct hello peer; /* what the other one said */

/* Each test's two ends are children of the program; a failure ends its process. */
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static void say(const void *data, size_t len)
{
	CHECK(send(me.sock, data, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static void hear(void *data, size_t len)
{
	CHECK(recv(me.sock, data, len, MSG_WAITALL) == (ssize_t)len);
}

/* Both have come this far. */
static void meet(void)
{
	char byte = 0;

	say(&byte, 1);
	hear(&byte, 1);
}

static void open_end(void)
{
	struct hello mine = {.area = 0};

	CHECK(ib_rails_open(&me.cfg, &me.rails) == 0);
	CHECK(me.rails->count == RAILS);
	CHECK(ib_mr_cache_create(me.rails, &me.cache) == 0);
	me.area = aligned_alloc(4096, AREA_BYTES);
	CHECK(me.area != NULL);
	memset(me.area, 0, AREA_BYTES);
	CHECK(ib_mr_get(me.cache, me.area, AREA_BYTES, true, &me.mr) == 0);
	CHECK(me.mr->rail_mask == 3);
	mine.area = (uintptr_t)me.area;
	for (unsigned int i = 0; i < RAILS; i++) {
		const struct ib_qp_opts opts = {
			.send_wrs_max = 64, .recv_wrs_max = 64, .inline_bytes = 64};
		unsigned int posted;

		CHECK(ib_qp_create(&me.rails->rails[i], &opts, &me.qps[i]) == 0);
		CHECK(ib_qp_post_recvs(&me.qps[i], 500 + i, RECVS, &posted) == 0);
		ib_rail_describe(&me.rails->rails[i], &mine.rails[i]);
		mine.qps[i] = (struct qp_addr){.qpn = me.qps[i].qpn, .psn = me.qps[i].psn};
		mine.rkeys[i] = me.mr->rkeys[i];
	}
	say(&mine, sizeof(mine));
	hear(&peer, sizeof(peer));
	for (unsigned int i = 0; i < RAILS; i++) {
		CHECK(ib_qp_connect(&me.qps[i], &peer.rails[i], &peer.qps[i], &me.cfg, -1) == 0);
	}
	meet();
}

static void close_end(void)
{
	for (unsigned int i = 0; i < RAILS; i++) {
		ib_qp_destroy(&me.qps[i]);
	}
	ib_mr_put(me.cache, me.mr);
	ib_mr_cache_destroy(me.cache);
	free(me.area);
	ib_rails_close(me.rails);
	(void)close(me.sock);
}

static void configure(char host)
{
	const char *hca = getenv(host == '0' ? "BRAID_TEST_HCA_A" : "BRAID_TEST_HCA_B");
	const char text[] = {host, '\0'};

	(void)setenv("FABRIC_HOST", text, 1);
	config_default(&me.cfg);
	(void)snprintf(me.cfg.ib_hca, sizeof(me.cfg.ib_hca), "%s", hca != NULL ? hca : "");
	me.cfg.ib_timeout = 8; /* 1 ms a try; soft RoCE makes it 8 */
	me.cfg.ib_retry_count = 3;
}

static pid_t start(char host, int socks[2], void (*body)(void))
{
	pid_t pid;

	(void)fflush(NULL);
	pid = fork();
	if (pid != 0) {
		return pid;
	}
	(void)alarm(2 * WAIT_MS / 1000); /* ends it, and so the test, where a verb never returns */
	me.sock = socks[host == '1'];
	(void)close(socks[host != '1']);
	configure(host);
	open_end();
	body();
	meet();
	close_end();
	exit(0); /* not _exit: the leak check runs */
}

/* Both must end well, even when one of them has failed first. */
static void run_pair(void (*ours)(void), void (*theirs)(void))
{
	int socks[2], status[2] = {-1, -1};
	pid_t pids[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, socks), 0);
	pids[0] = start('0', socks, ours);
	pids[1] = start('1', socks, theirs);
	(void)close(socks[0]);
	(void)close(socks[1]);
	for (int i = 0; i < 2; i++) {
		assert_true(pids[i] > 0);
		assert_int_equal(waitpid(pids[i], &status[i], 0), pids[i]);
	}
	assert_int_equal(status[0], 0);
	assert_int_equal(status[1], 0);
}

/* Wait for exactly one completion. */
static struct ib_wc one_wc(struct ib_qp *qp)
{
	uint64_t end_ns = clock_mono_ns() + WAIT_MS * NS_PER_MS;
	struct ib_wc wc;
	int count = 0;

	while (count == 0 && clock_mono_ns() < end_ns) {
		count = ib_qp_poll(qp, &wc, 1);
		(void)sched_yield();
	}
	CHECK(count == 1);
	return wc;
}

static struct ib_write write_to(unsigned int rail, uint32_t offset, uint32_t len, uint32_t flags)
{
	return (struct ib_write){.wr_id = 900 + offset,
				 .local_addr = (uintptr_t)me.area + offset,
				 .remote_addr = peer.area + offset,
				 .lkey = me.mr->lkeys[rail],
				 .rkey = peer.rkeys[rail],
				 .len_bytes = len,
				 .imm = 0xdead0000 + rail,
				 .flags = flags};
}

static void post(unsigned int rail, const struct ib_write *writes, unsigned int count)
{
	unsigned int posted;

	CHECK(ib_qp_post_writes(&me.qps[rail], writes, count, &posted) == 0);
	CHECK(posted == count);
}

/* A piece and its record, in one chain, on each rail. */
static void write_ours(void)
{
	for (unsigned int i = 0; i < RAILS; i++) {
		const struct ib_write writes[] = {
			write_to(i, i * 20000, 19000, 0),
			write_to(i, 60000 + i * 64, 64,
				 IB_WRITE_WITH_IMM | IB_WRITE_INLINE | IB_WRITE_SIGNALED),
		};
		const struct ib_write empty =
			write_to(i, 0, 0, IB_WRITE_WITH_IMM | IB_WRITE_SIGNALED);
		struct ib_wc wc;

		memset(me.area + i * 20000, 'a' + (int)i, 19000);
		memset(me.area + 60000 + i * 64, 'A' + (int)i, 64);
		post(i, writes, 2);
		memset(me.area + 60000 + i * 64, 0, 64); /* inline: ours again at once */
		wc = one_wc(&me.qps[i]);
		CHECK(wc.cause == CAUSE_NONE && wc.wr_id == 60900 + i * 64 && !wc.is_recv);
		post(i, &empty, 1);
		CHECK(one_wc(&me.qps[i]).cause == CAUSE_NONE);
	}
}

static bool filled(const uint8_t *bytes, uint8_t value, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (bytes[i] != value) {
			return false;
		}
	}
	return true;
}

static void write_theirs(void)
{
	for (unsigned int i = 0; i < RAILS; i++) {
		struct ib_wc wc = one_wc(&me.qps[i]);

		CHECK(wc.cause == CAUSE_NONE && wc.is_recv && wc.wr_id == 500 + i);
		CHECK(wc.imm == 0xdead0000 + i);
		CHECK(wc.len_bytes == 64);
		/* the record's arrival proves the piece's */
		CHECK(filled(me.area + i * 20000, (uint8_t)('a' + i), 19000));
		CHECK(filled(me.area + 60000 + i * 64, (uint8_t)('A' + i), 64));
		CHECK(me.area[i * 20000 + 19000] == 0);
		wc = one_wc(&me.qps[i]);
		CHECK(wc.is_recv && wc.len_bytes == 0);
	}
}

static void test_write(void **state)
{
	(void)state;
	run_pair(write_ours, write_theirs);
}

/* The receiver fences rail 0: nothing lands there any more, rail 1 goes on. */
static void fence_ours(void)
{
	const struct ib_write late = write_to(0, 0, 4096, IB_WRITE_WITH_IMM | IB_WRITE_SIGNALED);
	const struct ib_write more = write_to(0, 4096, 64, IB_WRITE_SIGNALED);
	const struct ib_write good = write_to(1, 8192, 64, IB_WRITE_WITH_IMM | IB_WRITE_SIGNALED);
	unsigned int flushed_count = 0;
	struct ib_wc wc;

	memset(me.area, 0x55, AREA_BYTES);
	meet(); /* theirs is fenced */
	post(0, &late, 1);
	post(0, &more, 1);
	wc = one_wc(&me.qps[0]);
	CHECK(wc.wr_id == 900);
	CHECK(cause_class(wc.cause) == CAUSE_CLASS_PATH);
	CHECK(wc.cause == CAUSE_RETRY_EXC);
	CHECK(ib_qp_fence(&me.qps[0]) == 0);
	/* what was posted comes back, sends and receives in any order between the two */
	for (unsigned int i = 0; i < RECVS + 1; i++) {
		wc = one_wc(&me.qps[0]);
		CHECK(wc.cause == CAUSE_FLUSH && (wc.wr_id == 500 || wc.wr_id == 4996));
		flushed_count += wc.wr_id == 4996;
	}
	CHECK(flushed_count == 1);
	post(1, &good, 1);
	CHECK(one_wc(&me.qps[1]).cause == CAUSE_NONE);
	meet();
}

static void fence_theirs(void)
{
	struct ib_wc wc;

	CHECK(ib_qp_fence(&me.qps[0]) == 0);
	for (unsigned int i = 0; i < RECVS; i++) {
		wc = one_wc(&me.qps[0]);
		CHECK(wc.cause == CAUSE_FLUSH && wc.wr_id == 500);
	}
	meet();
	CHECK(one_wc(&me.qps[1]).is_recv);
	meet();
	CHECK(ib_qp_poll(&me.qps[0], &wc, 1) == 0);
	CHECK(filled(me.area, 0, 8192));
	CHECK(ib_qp_reset(&me.qps[0]) == 0);
}

static void test_fence(void **state)
{
	(void)state;
	run_pair(fence_ours, fence_theirs);
}

/* A bad key is a software fault: never one to fail over from. */
static void key_ours(void)
{
	struct ib_write bad = write_to(0, 0, 64, IB_WRITE_SIGNALED);
	struct ib_wc wc;

	bad.rkey ^= 0x5a5a5a;
	post(0, &bad, 1);
	wc = one_wc(&me.qps[0]);
	CHECK(wc.cause == CAUSE_REM_ACCESS && wc.wr_id == 900);
}

static void key_theirs(void)
{
}

static void test_bad_key(void **state)
{
	(void)state;
	run_pair(key_ours, key_theirs);
}

/* A full queue says so, and how much of a chain it took; what was taken completes. Nobody answers:
 * some devices free an entry with the acknowledgement, others with the completion. */
static void full_ours(void)
{
	const struct ib_write one = write_to(0, 0, 8, IB_WRITE_SIGNALED);
	const struct ib_write chain[IB_WRITES_MAX] = {one, one, one, one};
	unsigned int posted = 0, total = 0, echo_count = 0;
	int rc = 0;

	meet();
	while (rc == 0 && total < 10000) {
		rc = ib_qp_post_writes(&me.qps[0], chain, IB_WRITES_MAX, &posted);
		total += posted;
	}
	CHECK(rc == -ENOMEM);
	CHECK(total >= 64);
	CHECK(one_wc(&me.qps[0]).cause == CAUSE_RETRY_EXC);
	for (unsigned int i = 1; i < total; i++) {
		echo_count += one_wc(&me.qps[0]).cause == CAUSE_FLUSH;
	}
	CHECK(echo_count == total - 1);
}

static void full_theirs(void)
{
	CHECK(ib_qp_fence(&me.qps[0]) == 0);
	meet();
}

static void test_full_queue(void **state)
{
	(void)state;
	run_pair(full_ours, full_theirs);
}

static void flush_ours(void)
{
	for (unsigned int i = 0; i < RAILS; i++) {
		struct ib_flush flush;
		struct ib_wc wc;

		CHECK(ib_flush_create(&me.rails->rails[i], me.cache, &me.cfg, &flush) == 0);
		me.area[77] = 0xc3;
		CHECK(ib_flush_post(&flush, (uintptr_t)me.area + 77, me.mr->rkeys[i], 31) == 0);
		wc = one_wc(&flush.qp);
		CHECK(wc.cause == CAUSE_NONE && wc.wr_id == 31 && !wc.is_recv);
		CHECK(flush.scratch[0] == 0xc3);
		ib_flush_destroy(&flush);
	}
}

static void test_flush(void **state)
{
	(void)state;
	run_pair(flush_ours, flush_ours);
}

/* Nothing happened: the event descriptor must not block. */
static void event_ours(void)
{
	struct ib_event event;

	for (unsigned int i = 0; i < RAILS; i++) {
		CHECK(ib_rail_event_next(me.rails, me.rails->rails[i].device, &event) == 0 ||
		      event.kind == IB_EVENT_OTHER || event.kind == IB_EVENT_GID_CHANGE);
	}
}

static void test_events(void **state)
{
	(void)state;
	run_pair(event_ours, event_ours);
}

/* The stand-in library lies beside this program in the build folder. */
static int use_fabric(void)
{
	char exe[PATH_MAX / 2], lib[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (len < 0 || !tree_begin()) {
		return -1;
	}
	exe[len] = '\0';
	(void)snprintf(lib, sizeof(lib), "%s/../../fabric/libibverbs.so.1", dirname(exe));
	if (access(lib, R_OK) != 0) {
		(void)fprintf(stderr, "%s is missing\n", lib);
		return -1;
	}
	(void)setenv("NCCL_IBVERBS_LIB", lib, 1);
	(void)setenv("FABRIC_DIR", tree_root, 1);
	(void)setenv("FABRIC_RAILS", "2", 1);
	return 0;
}

static int remove_fabric(void **state)
{
	(void)state;
	return tree_root[0] != '\0' ? tree_end() : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write),   cmocka_unit_test(test_fence),
		cmocka_unit_test(test_bad_key), cmocka_unit_test(test_full_queue),
		cmocka_unit_test(test_flush),   cmocka_unit_test(test_events),
	};
	const char *verbs = getenv("BRAID_TEST_VERBS");

	if ((verbs == NULL || strcmp(verbs, "system") != 0) && use_fabric() != 0) {
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, remove_fabric);
}
