/* SPDX-License-Identifier: Apache-2.0 */

/* How fast one engine is: GB/s of large writes, messages a second of small ones, the time of a
 * ping-pong; a line each. With the word `scale`: what a large fabric takes; fails above 2 GiB. */

#include "test/fabric/tests/rig.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

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

static double cpu_us(int who)
{
	struct rusage used;

	getrusage(who, &used);
	return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* The process has two threads that do anything: this one, which posts and polls, and the engine. */
static void small(struct rig *rig, const char *what, enum ibv_wr_opcode opcode, uint32_t len)
{
	double own_us = cpu_us(RUSAGE_THREAD);
	double both_us = cpu_us(RUSAGE_SELF);
	double s = pump(rig, 1, opcode, MESSAGES, len);

	own_us = (cpu_us(RUSAGE_THREAD) - own_us) / MESSAGES;
	both_us = (cpu_us(RUSAGE_SELF) - both_us) / MESSAGES;
	printf("%s %u B: %.0f thousand messages/s, CPU time each: engine %.2f us, poster %.2f us\n",
	       what, len, MESSAGES / s / 1e3, both_us - own_us, own_us);
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
	small(rig, "write", IBV_WR_RDMA_WRITE, 8);
	small(rig, "write", IBV_WR_RDMA_WRITE, 64);
	rig_barrier(rig);
	small(rig, "write with immediate", IBV_WR_RDMA_WRITE_WITH_IMM, 64);
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

/* How much memory and idle time a large fabric takes: HOSTS processes with RAILS devices of QPS
 * connected QPs each, sized as a net plugin does. Prints the sum over all processes. */
#define HOSTS 8u
#define RAILS 8u
#define QPS   500u

static struct ibv_qp *scale_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 256,
			.max_recv_wr = 128,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(pd, &attr);
}

/* Connected to itself: what it costs does not depend on the peer. */
static void scale_rail(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	struct ibv_port_attr port;
	struct ibv_pd *pd;

	CHECK(context != NULL && ibv_query_port(context, 1, &port) == 0);
	pd = ibv_alloc_pd(context);
	CHECK(pd != NULL);
	for (uint32_t i = 0; i < QPS; i++) {
		struct ibv_cq *cq = ibv_create_cq(context, 512, NULL, NULL, 0);
		struct ibv_qp *qp = cq != NULL ? scale_qp(pd, cq) : NULL;
		struct ibv_recv_wr wr = {.wr_id = i};
		struct ibv_recv_wr *bad;

		CHECK(qp != NULL && rig_qp_init(qp) == 0);
		CHECK(rig_qp_rtr(qp, qp->qp_num, port.lid, &rig_defaults) == 0);
		CHECK(rig_qp_rts(qp, &rig_defaults) == 0);
		for (uint32_t r = 0; r < 128; r++) {
			CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
		}
	}
}

/* Proportional set size: shared pages are counted once over all processes. */
static uint64_t pss_kib(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	unsigned long long kib = 0;
	char line[128];

	CHECK(file != NULL);
	while (fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "Pss: %llu", &kib) == 1) {
			break;
		}
	}
	fclose(file);
	return kib;
}

static void scale_host(uint32_t host, const char *dir, int start, int result)
{
	struct ibv_device **list;
	struct rusage before;
	struct rusage after;
	uint64_t sums[2];
	char number[16];

	snprintf(number, sizeof(number), "%u", host);
	setenv("FABRIC_DIR", dir, 1);
	setenv("FABRIC_HOST", number, 1);
	setenv("FABRIC_RAILS", "8", 1);
	list = ibv_get_device_list(NULL);
	CHECK(list != NULL);
	for (uint32_t rail = 0; rail < RAILS; rail++) {
		scale_rail(list[rail]);
	}
	CHECK(write(result, "r", 1) == 1);
	CHECK(read(start, number, 1) == 1); /* all are up */
	getrusage(RUSAGE_SELF, &before);
	rig_sleep_ms(1000);
	getrusage(RUSAGE_SELF, &after);
	sums[0] = pss_kib();
	sums[1] = (uint64_t)(after.ru_utime.tv_sec - before.ru_utime.tv_sec +
			     after.ru_stime.tv_sec - before.ru_stime.tv_sec) *
			  1000000 +
		  (uint64_t)(after.ru_utime.tv_usec - before.ru_utime.tv_usec +
			     after.ru_stime.tv_usec - before.ru_stime.tv_usec);
	CHECK(write(result, sums, sizeof(sums)) == (ssize_t)sizeof(sums));
	CHECK(read(start, number, 1) == 1); /* all have looked */
	_exit(0);
}

static int scale(void)
{
	char dir[64];
	uint64_t kib = 0;
	uint64_t cpu_us = 0;
	char byte;
	int start[2];
	int result[2];
	int hold_fd;

	CHECK(fabric_ctl_make_dir(dir, sizeof(dir), &hold_fd) == 0);
	CHECK(pipe(start) == 0 && pipe(result) == 0);
	for (uint32_t host = 0; host < HOSTS; host++) {
		if (fork() == 0) {
			scale_host(host, dir, start[0], result[1]);
		}
	}
	for (uint32_t host = 0; host < HOSTS; host++) {
		CHECK(read(result[0], &byte, 1) == 1);
	}
	CHECK(write(start[1], "ssssssss", HOSTS) == HOSTS);
	for (uint32_t host = 0; host < HOSTS; host++) {
		uint64_t sums[2];

		CHECK(read(result[0], sums, sizeof(sums)) == (ssize_t)sizeof(sums));
		kib += sums[0];
		cpu_us += sums[1];
	}
	CHECK(write(start[1], "ssssssss", HOSTS) == HOSTS);
	while (wait(NULL) > 0) {
	}
	fabric_ctl_remove_dir(dir);
	close(hold_fd);
	printf("%u hosts, %u rails, %u QPs each: %.0f MiB, idle %.2f ms of CPU a second\n", HOSTS,
	       RAILS, QPS, (double)kib / 1024, (double)cpu_us / 1e3);
	return kib > 2u << 20; /* 2 GiB is the limit */
}

int main(int argc, char **argv)
{
	static const struct rig_case c = {.host0 = host0, .host1 = host1};

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && strcmp(argv[1], "scale") == 0) {
		return scale();
	}
	return rig_run(&c);
}
