/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/tests/rig.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

const struct rig_qp_options rig_defaults = {
	.send_wr = 64,
	.recv_wr = 64,
	.timeout = 8,
	.retry_cnt = 3,
	.rnr_retry = 7,
	.min_rnr_timer = 1,
	.sq_psn = 7,
	.rq_psn = 7,
};

uint64_t rig_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void rig_sleep_ms(uint32_t ms)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&ts, NULL);
}

static void child_main(const struct rig_case *c, uint32_t host, int sock, const char *dir)
{
	struct rig rig = {.host = host, .sock = sock, .dir = dir};
	char number[16];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(number, sizeof(number), "%u", host);
	setenv("FABRIC_DIR", dir, 1);
	setenv("FABRIC_HOST", number, 1);
	for (int i = 0; c->env[i] != NULL; i += 2) {
		setenv(c->env[i], c->env[i + 1], 1);
	}
	CHECK(fabric_ctl_open(dir, &rig.ctl) == 0);
	(host == 0 ? c->host0 : c->host1)(&rig);
	fabric_ctl_close(rig.ctl);
	exit(0);
}

/* Waits for both, killing the other when one failed: it may wait for ever. */
static int reap(pid_t pids[2])
{
	int bad = 0;

	for (int left = 2; left > 0; left--) {
		int status;
		pid_t pid = wait(&status);

		if (pid < 0) {
			return -1;
		}
		if (status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
			bad = 1;
			kill(pids[0] == pid ? pids[1] : pids[0], SIGKILL);
		}
	}
	return bad;
}

int rig_run(const struct rig_case *c)
{
	char dir[64];
	pid_t pids[2];
	int socks[2];
	int hold_fd;
	int bad;

	if (fabric_ctl_make_dir(dir, sizeof(dir), &hold_fd) != 0) {
		return -1;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, socks) != 0) {
		close(hold_fd);
		return -1;
	}
	for (uint32_t host = 0; host < 2; host++) {
		pids[host] = fork();
		if (pids[host] == 0) {
			close(socks[1 - host]);
			child_main(c, host, socks[host], dir);
		}
	}
	close(socks[0]);
	close(socks[1]);
	bad = reap(pids);
	fabric_ctl_remove_dir(dir);
	close(hold_fd);
	return bad;
}

void rig_send(struct rig *rig, const void *data, size_t len)
{
	CHECK(send(rig->sock, data, len, MSG_NOSIGNAL) == (ssize_t)len);
}

void rig_recv(struct rig *rig, void *data, size_t len)
{
	CHECK(recv(rig->sock, data, len, MSG_WAITALL) == (ssize_t)len);
}

void rig_barrier(struct rig *rig)
{
	char byte = 'b';

	rig_send(rig, &byte, 1);
	rig_recv(rig, &byte, 1);
	CHECK(byte == 'b');
}

struct hello {
	uint64_t buf;
	uint32_t rkey;
	uint32_t pid;
};

void rig_open_alone(struct rig *rig, uint32_t rail)
{
	unsigned int access =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list != NULL && list[rail] != NULL);
	rig->context = ibv_open_device(list[rail]);
	ibv_free_device_list(list);
	CHECK(rig->context != NULL);
	rig->pd = ibv_alloc_pd(rig->context);
	rig->channel = ibv_create_comp_channel(rig->context);
	rig->cq = ibv_create_cq(rig->context, 4096, rig, rig->channel, 0);
	rig->buf = mmap(NULL, RIG_BUF_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);
	CHECK(rig->pd != NULL && rig->cq != NULL && rig->buf != MAP_FAILED);
	rig->mr = ibv_reg_mr(rig->pd, rig->buf, RIG_BUF_BYTES, access);
	CHECK(rig->mr != NULL);
	rig->peer_buf = (uint64_t)(uintptr_t)rig->buf;
	rig->peer_rkey = rig->mr->rkey;
}

void rig_open(struct rig *rig, uint32_t rail)
{
	struct hello hello;

	rig_open_alone(rig, rail);
	hello.buf = rig->peer_buf;
	hello.rkey = rig->peer_rkey;
	hello.pid = (uint32_t)getpid();
	rig_send(rig, &hello, sizeof(hello));
	rig_recv(rig, &hello, sizeof(hello));
	rig->peer_buf = hello.buf;
	rig->peer_rkey = hello.rkey;
	rig->peer_pid = hello.pid;
}

struct ibv_qp *rig_qp_create(struct rig *rig, const struct rig_qp_options *options)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = rig->cq,
		.recv_cq = rig->cq,
		.cap = {.max_send_wr = options->send_wr,
			.max_recv_wr = options->recv_wr,
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64},
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(rig->pd, &attr);
}

int rig_qp_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int rig_qp_rtr(struct ibv_qp *qp, uint32_t dest_qpn, uint16_t dlid,
	       const struct rig_qp_options *options)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = dest_qpn,
		.rq_psn = options->rq_psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = options->min_rnr_timer,
		.ah_attr = {.dlid = dlid, .port_num = 1},
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				     IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

int rig_qp_rts(struct ibv_qp *qp, const struct rig_qp_options *options)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = options->sq_psn,
		.timeout = options->timeout,
		.retry_cnt = options->retry_cnt,
		.rnr_retry = options->rnr_retry,
		.max_rd_atomic = 1,
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				     IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

int rig_qp_error(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

void rig_connect(struct rig *rig, uint32_t n, const struct rig_qp_options *options)
{
	struct ibv_port_attr port;
	uint32_t mine[2];
	uint32_t peers[2];

	rig->qps[n] = rig_qp_create(rig, options);
	CHECK(rig->qps[n] != NULL);
	CHECK(ibv_query_port(rig->context, 1, &port) == 0);
	mine[0] = rig->qps[n]->qp_num;
	mine[1] = port.lid;
	rig_send(rig, mine, sizeof(mine));
	rig_recv(rig, peers, sizeof(peers));
	CHECK(rig_qp_init(rig->qps[n]) == 0);
	CHECK(rig_qp_rtr(rig->qps[n], peers[0], (uint16_t)peers[1], options) == 0);
	CHECK(rig_qp_rts(rig->qps[n], options) == 0);
	rig_barrier(rig);
}

void rig_connect_self(struct rig *rig, uint32_t n)
{
	struct ibv_port_attr port;

	rig->qps[n] = rig_qp_create(rig, &rig_defaults);
	CHECK(rig->qps[n] != NULL);
	CHECK(ibv_query_port(rig->context, 1, &port) == 0);
	CHECK(rig_qp_init(rig->qps[n]) == 0);
	CHECK(rig_qp_rtr(rig->qps[n], rig->qps[n]->qp_num, port.lid, &rig_defaults) == 0);
	CHECK(rig_qp_rts(rig->qps[n], &rig_defaults) == 0);
}

void rig_close(struct rig *rig)
{
	for (int i = 0; i < RIG_MAX_QPS; i++) {
		if (rig->qps[i] != NULL) {
			CHECK(ibv_destroy_qp(rig->qps[i]) == 0);
		}
	}
	CHECK(ibv_dereg_mr(rig->mr) == 0);
	CHECK(ibv_destroy_cq(rig->cq) == 0);
	CHECK(ibv_destroy_comp_channel(rig->channel) == 0);
	CHECK(ibv_dealloc_pd(rig->pd) == 0);
	CHECK(ibv_close_device(rig->context) == 0);
	munmap(rig->buf, RIG_BUF_BYTES);
}

int rig_post_wr(struct rig *rig, uint32_t n, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;

	return ibv_post_send(rig->qps[n], wr, &bad);
}

int rig_post(struct rig *rig, uint32_t n, enum ibv_wr_opcode opcode, uint64_t id, uint32_t offset,
	     uint32_t len)
{
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)rig->buf + offset,
		.length = len,
		.lkey = rig->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = id,
		.sg_list = &sge,
		.num_sge = len > 0 ? 1 : 0,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = (uint32_t)id ^ 0x01020304u,
		.wr.rdma = {.remote_addr = rig->peer_buf + offset, .rkey = rig->peer_rkey},
	};

	return rig_post_wr(rig, n, &wr);
}

int rig_post_recv(struct rig *rig, uint32_t n, uint64_t id, uint32_t offset, uint32_t len)
{
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)rig->buf + offset,
		.length = len,
		.lkey = rig->mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = len > 0 ? 1 : 0};
	struct ibv_recv_wr *bad = NULL;

	return ibv_post_recv(rig->qps[n], &wr, &bad);
}

struct ibv_wc rig_poll(struct rig *rig)
{
	uint64_t end_ns = rig_now_ns() + 20000000000ull;
	struct ibv_wc wc;
	int got;

	do {
		got = ibv_poll_cq(rig->cq, 1, &wc);
		CHECK(got >= 0);
		if (got == 0) {
			sched_yield();
		}
	} while (got == 0 && rig_now_ns() < end_ns);
	CHECK(got == 1);
	return wc;
}

void rig_quiet(struct rig *rig, uint32_t ms)
{
	uint64_t end_ns = rig_now_ns() + ms * 1000000ull;
	struct ibv_wc wc;

	do {
		CHECK(ibv_poll_cq(rig->cq, 1, &wc) == 0);
		rig_sleep_ms(1);
	} while (rig_now_ns() < end_ns);
}

static uint8_t pattern(uint32_t seed, uint32_t at)
{
	uint32_t x = (at + seed * 40503u) * 2654435761u;

	return (uint8_t)((x >> 24 | 1) & 0xff); /* never 0: a blank byte is no data */
}

void rig_fill(struct rig *rig, uint32_t seed, uint32_t offset, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++) {
		rig->buf[offset + i] = pattern(seed, offset + i);
	}
}

int rig_holds(struct rig *rig, uint32_t seed, uint32_t offset, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++) {
		if (rig->buf[offset + i] != pattern(seed, offset + i)) {
			fprintf(stderr, "byte %u: %u, expected %u\n", offset + i,
				rig->buf[offset + i], pattern(seed, offset + i));
			return 0;
		}
	}
	return 1;
}

int rig_blank(struct rig *rig, uint32_t offset, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++) {
		if (rig->buf[offset + i] != 0) {
			fprintf(stderr, "byte %u: %u, expected 0\n", offset + i,
				rig->buf[offset + i]);
			return 0;
		}
	}
	return 1;
}

enum ibv_event_type rig_event(struct rig *rig)
{
	struct pollfd fd = {.fd = rig->context->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	CHECK(poll(&fd, 1, 5000) == 1);
	CHECK(ibv_get_async_event(rig->context, &event) == 0);
	ibv_ack_async_event(&event);
	return event.event_type;
}

int rig_has_event(struct rig *rig)
{
	struct pollfd fd = {.fd = rig->context->async_fd, .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

void rig_no_event(struct rig *rig, uint32_t ms)
{
	struct pollfd fd = {.fd = rig->context->async_fd, .events = POLLIN};

	CHECK(poll(&fd, 1, (int)ms) == 0);
}
