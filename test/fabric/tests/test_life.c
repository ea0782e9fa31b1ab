/* SPDX-License-Identifier: Apache-2.0 */

/* Processes that stop, die or leave, and the fence that must hold meanwhile. */

#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KB 1024u
#define MB (1024u * KB)

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ALARMS_OK 10
#else
#define ALARMS_OK 1
#endif

static void setup(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
}

static void run(void (*host0)(struct rig *rig), void (*host1)(struct rig *rig))
{
	struct rig_case c = {.host0 = host0, .host1 = host1};

	assert_int_equal(rig_run(&c), 0);
}

/* Waits until the process is stopped. */
static void await_stopped(uint32_t pid)
{
	char path[64];
	char text[512];
	char *state;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	do {
		FILE *file = fopen(path, "r");

		CHECK(file != NULL && fgets(text, sizeof(text), file) != NULL);
		fclose(file);
		state = strrchr(text, ')');
		rig_sleep_ms(1);
	} while (state == NULL || state[2] != 'T');
}

/* A stopped receiver still receives: data and completions. */
static void stopped_send(struct rig *rig)
{
	setup(rig);
	rig_fill(rig, 1, 0, 2 * MB);
	rig_barrier(rig);
	CHECK(kill((pid_t)rig->peer_pid, SIGSTOP) == 0);
	await_stopped(rig->peer_pid);
	for (uint32_t i = 0; i < 10; i++) {
		CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, i, i * 200 * KB, 200 * KB) == 0);
	}
	for (uint32_t i = 0; i < 10; i++) {
		CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	}
	CHECK(kill((pid_t)rig->peer_pid, SIGCONT) == 0);
	rig_barrier(rig);
	rig_close(rig);
}

static void stopped_recv(struct rig *rig)
{
	struct ibv_wc wc[16];

	setup(rig);
	for (uint32_t i = 0; i < 10; i++) {
		CHECK(rig_post_recv(rig, 0, i, 0, 0) == 0);
	}
	rig_barrier(rig);
	rig_barrier(rig);
	CHECK(ibv_poll_cq(rig->cq, 16, wc) == 10); /* all there before this process ran again */
	CHECK(rig_holds(rig, 1, 0, 2000 * KB));
	rig_close(rig);
}

static void test_stopped_receiver(void **state)
{
	(void)state;
	run(stopped_send, stopped_recv);
}

/* A killed receiver is a black hole: retry exceeded after the usual time, then flushes. */
static void killed_send(struct rig *rig)
{
	uint64_t start_ns;

	setup(rig);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 1, 0, 64) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	rig_barrier(rig);
	CHECK(kill((pid_t)rig->peer_pid, SIGKILL) == 0);
	rig_sleep_ms(20);
	start_ns = rig_now_ns();
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 2, 0, 64) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 3, 0, 64) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_RETRY_EXC_ERR);
	CHECK(rig_now_ns() - start_ns > 4194000);
	CHECK(rig_poll(rig).status == IBV_WC_WR_FLUSH_ERR);
	rig_close(rig);
}

static void killed_recv(struct rig *rig)
{
	setup(rig);
	rig_barrier(rig);
	pause();
}

static void test_killed_receiver(void **state)
{
	(void)state;
	run(killed_send, killed_recv);
}

/* Also when nothing has to be copied, and when the sender waits for a receive for ever. */
static void killed_empty_send(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_connect(rig, 1, &rig_defaults);
	CHECK(rig_post(rig, 1, IBV_WR_SEND, 1, 0, 64) == 0); /* no receive there */
	rig_quiet(rig, 5);
	rig_barrier(rig);
	CHECK(kill((pid_t)rig->peer_pid, SIGKILL) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_RETRY_EXC_ERR);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 0) == 0); /* receives are there */
	CHECK(rig_poll(rig).status == IBV_WC_RETRY_EXC_ERR);
	rig_close(rig);
}

static void killed_empty_recv(struct rig *rig)
{
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_connect(rig, 1, &rig_defaults);
	CHECK(rig_post_recv(rig, 0, 1, 0, 0) == 0);
	rig_barrier(rig);
	pause();
}

static void test_killed_receiver_empty(void **state)
{
	(void)state;
	run(killed_empty_send, killed_empty_recv);
}

/* Keeps the queue of QP 0 full until a send fails. */
static void pump(struct rig *rig, enum ibv_wr_opcode opcode, uint32_t len)
{
	uint32_t out = 0;

	for (uint64_t i = 0;; i++) {
		struct ibv_wc wc;

		while (out < 32) {
			CHECK(rig_post(rig, 0, opcode, i, 0, len) == 0);
			out++;
		}
		wc = rig_poll(rig);
		out--;
		if (wc.status != IBV_WC_SUCCESS) {
			return;
		}
	}
}

/* The fence: once modify(ERR) has returned, not one byte changes any more, though the sender goes
 * on at full speed. Many rounds, as the window is small. */
static void fence_send(struct rig *rig)
{
	rig_open(rig, 0);
	rig_fill(rig, 1, 0, MB);
	for (uint32_t round = 0; round < 20; round++) {
		rig_connect(rig, 0, &rig_defaults);
		pump(rig, IBV_WR_RDMA_WRITE, round % 2 == 0 ? MB : 4 * KB);
		rig_barrier(rig);
		CHECK(ibv_destroy_qp(rig->qps[0]) == 0);
		rig->qps[0] = NULL;
	}
	rig_close(rig);
}

static void fence_recv(struct rig *rig)
{
	rig_open(rig, 0);
	for (uint32_t round = 0; round < 20; round++) {
		rig_connect(rig, 0, &rig_defaults);
		rig_sleep_ms(2);
		CHECK(rig_qp_error(rig->qps[0]) == 0);
		memset(rig->buf, 0, MB);
		rig_sleep_ms(2);
		CHECK(rig_blank(rig, 0, MB));
		rig_barrier(rig);
		CHECK(ibv_destroy_qp(rig->qps[0]) == 0);
		rig->qps[0] = NULL;
	}
	rig_close(rig);
}

static void test_fence(void **state)
{
	(void)state;
	run(fence_send, fence_recv);
}

/* The same with the sender stopped in the middle of it: the fence must not wait for SIGCONT, and
 * must hold when it comes. */
static void stopfence_send(struct rig *rig)
{
	rig_open(rig, 0);
	rig_fill(rig, 1, 0, MB);
	for (uint32_t round = 0; round < 40; round++) {
		rig_connect(rig, 0, &rig_defaults);
		/* Long writes, to be stopped while copying; or one system call a message. */
		if (round % 2 == 0) {
			pump(rig, IBV_WR_RDMA_WRITE, MB);
		} else {
			pump(rig, IBV_WR_RDMA_WRITE_WITH_IMM, 256 * KB);
		}
		rig_barrier(rig);
		CHECK(ibv_destroy_qp(rig->qps[0]) == 0);
		rig->qps[0] = NULL;
	}
	rig_close(rig);
}

/* Takes receives' completions for a while, putting in new ones; counts on in *done and *posted. */
static void keep_receiving(struct rig *rig, uint32_t ms, uint64_t *posted, uint64_t *done)
{
	uint64_t end_ns = rig_now_ns() + ms * 1000000ull;

	while (rig_now_ns() < end_ns) {
		struct ibv_wc wc;

		while (*posted - *done < 50) {
			CHECK(rig_post_recv(rig, 0, (*posted)++, 0, 0) == 0);
		}
		if (ibv_poll_cq(rig->cq, 1, &wc) == 1) {
			CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (*done)++);
		}
	}
}

/* What is posted is completed once, in order, flushes after successes. */
static void drain_receives(struct rig *rig, uint64_t posted, uint64_t done)
{
	uint32_t flushed = 0;

	while (done < posted) {
		struct ibv_wc wc = rig_poll(rig);

		CHECK(wc.wr_id == done++);
		flushed += wc.status == IBV_WC_WR_FLUSH_ERR;
		CHECK(wc.status == IBV_WC_SUCCESS ? flushed == 0 : 1);
	}
	CHECK(flushed > 0);
	rig_quiet(rig, 5);
}

static struct rig *alarm_rig;
static volatile sig_atomic_t alarm_count;

/* The fence did not end by itself. */
static void on_alarm(int signal_number)
{
	(void)signal_number;
	kill((pid_t)alarm_rig->peer_pid, SIGCONT);
	alarm_count++;
}

static void stopfence_round(struct rig *rig)
{
	uint64_t posted = 0;
	uint64_t done = 0;

	rig_connect(rig, 0, &rig_defaults);
	keep_receiving(rig, 3, &posted, &done);
	CHECK(kill((pid_t)rig->peer_pid, SIGSTOP) == 0);
	await_stopped(rig->peer_pid);
	alarm(1);
	CHECK(rig_qp_error(rig->qps[0]) == 0);
	alarm(0);
	CHECK(rig_post_recv(rig, 0, posted++, 0, 0) == 0);
	memset(rig->buf, 0, MB);
	rig_sleep_ms(1);
	CHECK(kill((pid_t)rig->peer_pid, SIGCONT) == 0);
	drain_receives(rig, posted, done);
	CHECK(rig_blank(rig, 0, MB));
	rig_barrier(rig);
	CHECK(ibv_destroy_qp(rig->qps[0]) == 0);
	rig->qps[0] = NULL;
}

static void stopfence_recv(struct rig *rig)
{
	alarm_rig = rig;
	CHECK(signal(SIGALRM, on_alarm) != SIG_ERR);
	rig_open(rig, 0);
	for (uint32_t round = 0; round < 40; round++) {
		stopfence_round(rig);
	}
	printf("%d fences of 40 had to wait\n", alarm_count);
	fflush(stdout);
	/* A sender that is stopped in the few instructions around its system call is waited for. A
	 * sanitizer makes them many. */
	CHECK(alarm_count <= ALARMS_OK);
	rig_close(rig);
}

static void test_fence_stopped_sender(void **state)
{
	(void)state;
	run(stopfence_send, stopfence_recv);
}

/* A sender killed at any moment leaves a receiver that flushes each receive exactly once and goes
 * on with another peer. */
static void dying_send(struct rig *rig)
{
	rig_open(rig, 0);
	rig_fill(rig, 1, 0, MB);
	rig_connect(rig, 0, &rig_defaults);
	for (uint64_t i = 0;; i++) {
		CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, i, 0, (uint32_t)(i % 9000)) ==
		      0);
		CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	}
}

static void dying_recv(struct rig *rig)
{
	uint64_t posted = 0;
	uint64_t done = 0;

	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	keep_receiving(rig, 5, &posted, &done);
	CHECK(kill((pid_t)rig->peer_pid, SIGKILL) == 0);
	CHECK(rig_qp_error(rig->qps[0]) == 0);
	CHECK(rig_post_recv(rig, 0, posted++, 0, 0) == 0);
	drain_receives(rig, posted, done);
	rig_close(rig);
}

static void test_dying_sender(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		run(dying_send, dying_recv);
	}
}

/* Completion events: one for each arming, none for completions before it; and the queue of
 * asynchronous events honours O_NONBLOCK. */
static void event_send(struct rig *rig)
{
	setup(rig);
	rig_barrier(rig);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 64) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	rig_barrier(rig);
	rig_barrier(rig);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 0, 64) == 0);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 3, 0, 64) == 0);
	rig_barrier(rig);
	rig_close(rig);
}

static void event_recv(struct rig *rig)
{
	struct pollfd fd;
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;

	setup(rig);
	fd = (struct pollfd){.fd = rig->channel->fd, .events = POLLIN};
	for (uint32_t i = 1; i <= 3; i++) {
		CHECK(rig_post_recv(rig, 0, i, 0, 0) == 0);
	}
	rig_barrier(rig);
	rig_barrier(rig);
	CHECK(rig_poll(rig).wr_id == 1);
	CHECK(poll(&fd, 1, 5) == 0); /* not armed */
	CHECK(ibv_req_notify_cq(rig->cq, 0) == 0);
	CHECK(poll(&fd, 1, 5) == 0); /* armed after it */
	rig_barrier(rig);
	CHECK(poll(&fd, 1, 5000) == 1);
	CHECK(ibv_get_cq_event(rig->channel, &cq, &context) == 0);
	CHECK(cq == rig->cq && context == rig);
	ibv_ack_cq_events(cq, 1);
	CHECK(rig_poll(rig).wr_id == 2 && rig_poll(rig).wr_id == 3);
	CHECK(poll(&fd, 1, 5) == 0); /* one event, however many completions */
	CHECK(fcntl(rig->context->async_fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(ibv_get_async_event(rig->context, &event) == -1 && errno == EAGAIN);
	rig_barrier(rig);
	rig_close(rig);
}

static void test_events(void **state)
{
	(void)state;
	run(event_send, event_recv);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stopped_receiver),
		cmocka_unit_test(test_killed_receiver),
		cmocka_unit_test(test_killed_receiver_empty),
		cmocka_unit_test(test_fence),
		cmocka_unit_test(test_fence_stopped_sender),
		cmocka_unit_test(test_dying_sender),
		cmocka_unit_test(test_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
