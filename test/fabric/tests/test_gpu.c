/* SPDX-License-Identifier: Apache-2.0 */

/* GPU memory at either end, on a stand-in for CUDA whose memory no process can touch. */

#include "test/fabric/tests/gpu/gpu_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#define KB 1024u

static struct gpu_rig gpu;

static void run(void (*host0)(struct rig *rig), void (*host1)(struct rig *rig))
{
	struct rig_case c = {.host0 = host0, .host1 = host1, .env = {"FABRIC_GPU", "1"}};

	assert_int_equal(rig_run(&c), 0);
}

/* Writes, a read and a send between GPU memory of two processes; every byte, and none too many. */
static void between_send(struct rig *rig)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.wr_id = 4,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};

	gpu_open(rig, &gpu, &rig_defaults);
	gpu_fill(&gpu, 1, 0, 2000 * KB);
	rig_barrier(rig);
	gpu_post(rig, &gpu, IBV_WR_RDMA_WRITE, 1, 0, 1000 * KB + 3);
	gpu_post(rig, &gpu, IBV_WR_RDMA_WRITE_WITH_IMM, 2, 1100 * KB, 5);
	gpu_post(rig, &gpu, IBV_WR_RDMA_READ, 3, 4096 * KB, 700 * KB);
	sge = (struct ibv_sge){
		.addr = gpu.addr + 1200 * KB, .length = 300 * KB, .lkey = gpu.mr->lkey};
	CHECK(rig_post_wr(rig, 0, &wr) == 0);
	for (uint64_t id = 1; id <= 4; id++) {
		gpu_wc(rig, id, IBV_WC_SUCCESS);
	}
	CHECK(gpu_holds(&gpu, 9, 4096 * KB, 700 * KB));
	CHECK(gpu.copies() > 0);
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void between_recv(struct rig *rig)
{
	struct ibv_sge sge;
	struct ibv_recv_wr wr = {.wr_id = 11, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	gpu_open(rig, &gpu, &rig_defaults);
	gpu_fill(&gpu, 9, 4096 * KB, 700 * KB);
	sge = (struct ibv_sge){
		.addr = gpu.addr + 1200 * KB, .length = 400 * KB, .lkey = gpu.mr->lkey};
	CHECK(rig_post_recv(rig, 0, 10, 0, 0) == 0);
	CHECK(ibv_post_recv(rig->qps[0], &wr, &bad) == 0);
	rig_barrier(rig);
	gpu_wc(rig, 10, IBV_WC_SUCCESS); /* the completion is proof of all that came before */
	CHECK(gpu_holds(&gpu, 1, 0, 1000 * KB + 3) && gpu_blank(&gpu, 1000 * KB + 3, 99 * KB));
	CHECK(gpu_holds(&gpu, 1, 1100 * KB, 5) && gpu_blank(&gpu, 1100 * KB + 5, KB));
	gpu_wc(rig, 11, IBV_WC_SUCCESS);
	CHECK(gpu_holds(&gpu, 1, 1200 * KB, 300 * KB) && gpu_blank(&gpu, 1500 * KB, KB));
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void test_between(void **state)
{
	(void)state;
	run(between_send, between_recv);
}

/* Host and GPU memory in one list, on either side; a read into such a list. */
static void mixed_post(struct rig *rig, enum ibv_wr_opcode opcode, uint64_t id)
{
	struct ibv_sge sge[3] = {
		{.addr = (uint64_t)(uintptr_t)rig->buf, .length = 333, .lkey = rig->mr->lkey},
		{.addr = gpu.addr, .length = 300 * KB, .lkey = gpu.mr->lkey},
		{.addr = (uint64_t)(uintptr_t)rig->buf + KB, .length = 77, .lkey = rig->mr->lkey},
	};
	struct ibv_send_wr wr = {
		.wr_id = id,
		.sg_list = sge,
		.num_sge = 3,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = gpu.peer_addr, .rkey = gpu.peer_rkey},
	};

	CHECK(rig_post_wr(rig, 0, &wr) == 0);
}

static void mixed_send(struct rig *rig)
{
	gpu_open(rig, &gpu, &rig_defaults);
	memset(rig->buf, 'a', 333);
	memset(rig->buf + KB, 'c', 77);
	memset(gpu.look(gpu.addr), 'b', 300 * KB);
	rig_barrier(rig);
	mixed_post(rig, IBV_WR_RDMA_WRITE, 1);
	mixed_post(rig, IBV_WR_SEND, 2);
	gpu_wc(rig, 1, IBV_WC_SUCCESS);
	gpu_wc(rig, 2, IBV_WC_SUCCESS);
	memset(rig->buf, 0, 2 * KB);
	memset(gpu.look(gpu.addr), 0, 300 * KB);
	mixed_post(rig, IBV_WR_RDMA_READ, 3);
	gpu_wc(rig, 3, IBV_WC_SUCCESS);
	CHECK(rig->buf[0] == 'a' && rig->buf[332] == 'a' && rig->buf[333] == 0);
	CHECK(*gpu.look(gpu.addr) == 'b' && *gpu.look(gpu.addr + 300 * KB - 1) == 'b');
	CHECK(rig->buf[KB] == 'c' && rig->buf[KB + 76] == 'c' && rig->buf[KB + 77] == 0);
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void mixed_recv(struct rig *rig)
{
	struct ibv_sge sge[3];
	struct ibv_recv_wr wr = {.wr_id = 10, .sg_list = sge, .num_sge = 3};
	struct ibv_recv_wr *bad;
	const char *at;

	gpu_open(rig, &gpu, &rig_defaults);
	at = gpu.look(gpu.addr);
	sge[0] = (struct ibv_sge){.addr = gpu.addr + 600 * KB, .length = 200, .lkey = gpu.mr->lkey};
	sge[1] = (struct ibv_sge){
		.addr = (uint64_t)(uintptr_t)rig->buf, .length = 200 * KB, .lkey = rig->mr->lkey};
	sge[2] = (struct ibv_sge){
		.addr = gpu.addr + 700 * KB, .length = 150 * KB, .lkey = gpu.mr->lkey};
	CHECK(ibv_post_recv(rig->qps[0], &wr, &bad) == 0);
	rig_barrier(rig);
	gpu_wc(rig, 10, IBV_WC_SUCCESS);
	CHECK(at[0] == 'a' && at[332] == 'a' && at[333] == 'b' && at[333 + 300 * KB] == 'c');
	CHECK(at[600 * KB + 199] == 'a' && at[600 * KB + 200] == 0);
	CHECK(rig->buf[132] == 'a' && rig->buf[133] == 'b' && rig->buf[200 * KB - 1] == 'b');
	CHECK(at[700 * KB] == 'b' && at[700 * KB + 100 * KB + 132] == 'b');
	CHECK(at[700 * KB + 100 * KB + 133] == 'c' && at[700 * KB + 100 * KB + 133 + 77] == 0);
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void test_mixed_lists(void **state)
{
	(void)state;
	run(mixed_send, mixed_recv);
}

/* A rail that connects to itself, as to flush GPU memory: read and write within the process. */
static void itself_here(struct rig *rig)
{
	struct ibv_port_attr port;
	struct ibv_qp *qp;

	gpu_open(rig, &gpu, &rig_defaults);
	gpu_fill(&gpu, 3, 0, 300 * KB);
	qp = rig->qps[0];
	rig->qps[0] = rig_qp_create(rig, &rig_defaults);
	CHECK(ibv_query_port(rig->context, 1, &port) == 0);
	CHECK(rig_qp_init(rig->qps[0]) == 0);
	CHECK(rig_qp_rtr(rig->qps[0], rig->qps[0]->qp_num, port.lid, &rig_defaults) == 0);
	CHECK(rig_qp_rts(rig->qps[0], &rig_defaults) == 0);
	gpu.peer_addr = gpu.addr;
	gpu.peer_rkey = gpu.mr->rkey;
	gpu_post(rig, &gpu, IBV_WR_RDMA_WRITE, 1, 0, 300 * KB);
	gpu_post(rig, &gpu, IBV_WR_RDMA_READ, 2, 0, 1);
	gpu_wc(rig, 1, IBV_WC_SUCCESS);
	gpu_wc(rig, 2, IBV_WC_SUCCESS);
	CHECK(gpu_holds(&gpu, 3, 0, 300 * KB));
	CHECK(ibv_destroy_qp(rig->qps[0]) == 0);
	rig->qps[0] = qp;
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void idle(struct rig *rig)
{
	gpu_open(rig, &gpu, &rig_defaults);
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void test_itself(void **state)
{
	(void)state;
	run(itself_here, idle);
}

/* A message cut in the middle is half there, and the rest never comes. */
static void cut_send(struct rig *rig)
{
	gpu_open(rig, &gpu, &rig_defaults);
	gpu_fill(&gpu, 5, 0, 1024 * KB);
	CHECK(fabric_ctl_fault(rig->ctl, "cut host=0 rail=0 dir=tx bytes=400001", NULL, NULL, 0) ==
	      0);
	rig_barrier(rig);
	gpu_post(rig, &gpu, IBV_WR_RDMA_WRITE, 1, 0, 1024 * KB);
	gpu_wc(rig, 1, IBV_WC_RETRY_EXC_ERR);
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void cut_recv(struct rig *rig)
{
	gpu_open(rig, &gpu, &rig_defaults);
	rig_barrier(rig);
	rig_barrier(rig);
	CHECK(gpu_holds(&gpu, 5, 0, 400001) && gpu_blank(&gpu, 400001, 600 * KB));
	gpu_close(rig, &gpu);
}

static void test_half_placed(void **state)
{
	(void)state;
	run(cut_send, cut_recv);
}

/* A copy is under way when the receiver fences: the call returns when it is over. A third of the
 * message is not there yet, and never gets there. */
enum {
	DELAY_MS = 150
};

static void fence_send(struct rig *rig)
{
	gpu_open(rig, &gpu, &rig_defaults);
	gpu_fill(&gpu, 6, 0, 768 * KB);
	rig_barrier(rig);
	gpu_post(rig, &gpu, IBV_WR_RDMA_WRITE, 1, 0, 768 * KB);
	gpu_wc(rig, 1, IBV_WC_RETRY_EXC_ERR);
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static uint64_t placed(void)
{
	const char *at = gpu.look(gpu.addr);
	uint64_t count = 0;

	while (count < 768 * KB && at[count] == gpu_byte(6, count)) {
		count++;
	}
	return count;
}

static void first_bytes_come(void)
{
	while (*(volatile char *)gpu.look(gpu.addr + 1) == 0) {
		rig_sleep_ms(1);
	}
}

static void fence_recv(struct rig *rig)
{
	uint64_t count;

	gpu_open(rig, &gpu, &rig_defaults);
	gpu.delay(DELAY_MS);
	rig_barrier(rig);
	first_bytes_come(); /* the first copy has begun, and pauses in the middle */
	CHECK(rig_qp_error(rig->qps[0]) == 0);
	count = placed();
	CHECK(count >= 256 * KB && count < 768 * KB);
	rig_sleep_ms(3 * DELAY_MS);
	CHECK(placed() == count && gpu_blank(&gpu, count, 768 * KB - count));
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void test_fence(void **state)
{
	(void)state;
	run(fence_send, fence_recv);
}

/* The same with the registration taken back, and the memory freed. */
static void dereg_send(struct rig *rig)
{
	gpu_open(rig, &gpu, &rig_defaults);
	rig_barrier(rig);
	gpu_post(rig, &gpu, IBV_WR_RDMA_WRITE, 1, 0, 768 * KB);
	gpu_wc(rig, 1, IBV_WC_REM_ACCESS_ERR);
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void dereg_recv(struct rig *rig)
{
	unsigned int copies;

	gpu_open(rig, &gpu, &rig_defaults);
	memset(gpu.look(gpu.addr), 'x', RIG_BUF_BYTES);
	gpu.delay(DELAY_MS);
	rig_barrier(rig);
	while (*(volatile char *)gpu.look(gpu.addr) == 'x') {
		rig_sleep_ms(1);
	}
	CHECK(ibv_dereg_mr(gpu.mr) == 0);
	gpu.mr = NULL;
	copies = gpu.copies();
	CHECK(gpu.mem_free(gpu.addr) == 0);
	rig_barrier(rig);
	CHECK(gpu.copies() == copies);
	gpu_close(rig, &gpu);
}

static void test_dereg(void **state)
{
	(void)state;
	run(dereg_send, dereg_recv);
}

/* The sender is killed while its bytes are copied at the receiver: the fence waits for the copy. */
static void killed_send(struct rig *rig)
{
	gpu_open(rig, &gpu, &rig_defaults);
	gpu_fill(&gpu, 6, 0, 768 * KB);
	rig_barrier(rig);
	gpu_post(rig, &gpu, IBV_WR_RDMA_WRITE, 1, 0, 768 * KB);
	for (;;) {
		pause();
	}
}

static void killed_recv(struct rig *rig)
{
	uint64_t count;

	gpu_open(rig, &gpu, &rig_defaults);
	gpu.delay(DELAY_MS);
	rig_barrier(rig);
	first_bytes_come();
	CHECK(kill((pid_t)rig->peer_pid, SIGKILL) == 0);
	rig_sleep_ms(10); /* gone, and the copy still in its pause */
	CHECK(rig_qp_error(rig->qps[0]) == 0);
	count = placed();
	CHECK(count == 256 * KB || count == 512 * KB);
	rig_sleep_ms(2 * DELAY_MS);
	CHECK(placed() == count && gpu_blank(&gpu, count, 768 * KB - count));
	gpu_close(rig, &gpu);
}

/* Host 1 is the one that may be killed. */
static void test_killed(void **state)
{
	(void)state;
	run(killed_recv, killed_send);
}

/* A stopped receiver gets nothing meanwhile, all of it afterwards, and no send fails. What needs no
 * help of it, another QP's write to its host memory, does not wait. */
static void stopped_send(struct rig *rig)
{
	gpu_open(rig, &gpu, &rig_defaults);
	rig_connect(rig, 1, &rig_defaults);
	gpu_fill(&gpu, 7, 0, 2048 * KB);
	rig_barrier(rig);
	CHECK(kill((pid_t)rig->peer_pid, SIGSTOP) == 0);
	rig_sleep_ms(20);
	gpu_post(rig, &gpu, IBV_WR_RDMA_WRITE, 1, 0, 2048 * KB);
	rig_quiet(rig, 20);
	CHECK(rig_post(rig, 1, IBV_WR_RDMA_WRITE, 2, 0, 100 * KB) == 0);
	gpu_wc(rig, 2, IBV_WC_SUCCESS);
	rig_quiet(rig, 200); /* more than the QP's time-outs make together */
	CHECK(kill((pid_t)rig->peer_pid, SIGCONT) == 0);
	gpu_wc(rig, 1, IBV_WC_SUCCESS);
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void stopped_recv(struct rig *rig)
{
	gpu_open(rig, &gpu, &rig_defaults);
	rig_connect(rig, 1, &rig_defaults);
	rig_barrier(rig);
	rig_barrier(rig);
	CHECK(gpu_holds(&gpu, 7, 0, 2048 * KB));
	gpu_close(rig, &gpu);
}

/* ... and its sender can let go of the QP while the receiver is stopped. */
static void let_go_send(struct rig *rig)
{
	uint64_t start_ns;

	gpu_open(rig, &gpu, &rig_defaults);
	rig_barrier(rig);
	CHECK(kill((pid_t)rig->peer_pid, SIGSTOP) == 0);
	rig_sleep_ms(20);
	gpu_post(rig, &gpu, IBV_WR_RDMA_WRITE, 1, 0, 2048 * KB);
	rig_quiet(rig, 20);
	start_ns = rig_now_ns();
	CHECK(rig_qp_error(rig->qps[0]) == 0);
	CHECK(rig_now_ns() - start_ns < 1000000000ull);
	gpu_wc(rig, 1, IBV_WC_WR_FLUSH_ERR);
	CHECK(kill((pid_t)rig->peer_pid, SIGCONT) == 0);
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void let_go_recv(struct rig *rig)
{
	gpu_open(rig, &gpu, &rig_defaults);
	rig_barrier(rig);
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void test_stopped(void **state)
{
	(void)state;
	run(stopped_send, stopped_recv);
	run(let_go_send, let_go_recv);
}

/* Packets that are held back take their bytes along from GPU memory. */
static void late_send(struct rig *rig)
{
	struct rig_qp_options patient = rig_defaults;

	patient.timeout = 16;
	gpu_open(rig, &gpu, &patient);
	gpu_fill(&gpu, 8, 0, 300 * KB);
	CHECK(fabric_ctl_fault(rig->ctl, "late host=0 rail=0 dir=tx delay_ms=50", NULL, NULL, 0) ==
	      0);
	rig_barrier(rig);
	gpu_post(rig, &gpu, IBV_WR_RDMA_WRITE, 1, 0, 300 * KB);
	rig_sleep_ms(20);
	gpu_fill(&gpu, 99, 0, 300 * KB); /* they have the bytes of when they were sent */
	gpu_wc(rig, 1, IBV_WC_SUCCESS);
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void late_recv(struct rig *rig)
{
	struct rig_qp_options patient = rig_defaults;

	patient.timeout = 16;
	gpu_open(rig, &gpu, &patient);
	rig_barrier(rig);
	rig_barrier(rig);
	CHECK(gpu_holds(&gpu, 8, 0, 300 * KB));
	gpu_close(rig, &gpu);
}

static void test_late(void **state)
{
	(void)state;
	run(late_send, late_recv);
}

/* DMA-BUFs: under their address, if they are what they seem. */
static void dmabuf_here(struct rig *rig)
{
	unsigned int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_mr *mr;
	int fd;

	gpu_open(rig, &gpu, &rig_defaults);
	CHECK(gpu.export_fd(&fd, gpu.addr, RIG_BUF_BYTES, 1, 0) == 0);
	mr = ibv_reg_dmabuf_mr(rig->pd, 0, RIG_BUF_BYTES, gpu.addr, fd, (int)access);
	CHECK(mr != NULL && mr->rkey != 0 && mr->rkey != gpu.mr->rkey);
	errno = 0;
	CHECK(ibv_reg_dmabuf_mr(rig->pd, KB, RIG_BUF_BYTES, gpu.addr, fd, (int)access) == NULL);
	CHECK(errno == EINVAL); /* past its end */
	CHECK(ibv_reg_dmabuf_mr(rig->pd, 0, KB, (uint64_t)(uintptr_t)rig->buf, fd, (int)access) ==
	      NULL);
	CHECK(errno == EINVAL); /* not where the GPU's memory is */
	CHECK(ibv_reg_dmabuf_mr(rig->pd, 0, KB, gpu.addr, -1, (int)access) == NULL);
	CHECK(errno == EBADF);
	CHECK(close(fd) == 0); /* NCCL closes it at once */
	rig_send(rig, &mr->rkey, sizeof(mr->rkey));
	rig_barrier(rig);
	CHECK(gpu_holds(&gpu, 4, 0, 100 * KB));
	CHECK(ibv_dereg_mr(mr) == 0);
	gpu_close(rig, &gpu);
}

static void dmabuf_peer(struct rig *rig)
{
	gpu_open(rig, &gpu, &rig_defaults);
	gpu_fill(&gpu, 4, 0, 100 * KB);
	rig_recv(rig, &gpu.peer_rkey, sizeof(gpu.peer_rkey));
	gpu_post(rig, &gpu, IBV_WR_RDMA_WRITE, 1, 0, 100 * KB);
	gpu_wc(rig, 1, IBV_WC_SUCCESS);
	rig_barrier(rig);
	gpu_close(rig, &gpu);
}

static void test_dmabuf(void **state)
{
	(void)state;
	run(dmabuf_here, dmabuf_peer);
}

/* Without FABRIC_GPU an adapter that cannot reach GPU memory. */
static void without(struct rig *rig)
{
	gpu_load(&gpu);
	rig_open(rig, 0);
	gpu.addr = gpu_alloc(&gpu, 64 * KB);
	CHECK(gpu_register(rig, gpu.addr, 64 * KB) == NULL && errno == EFAULT);
	CHECK(ibv_reg_dmabuf_mr(rig->pd, 0, KB, gpu.addr, -1, IBV_ACCESS_LOCAL_WRITE) == NULL);
	CHECK(errno == EOPNOTSUPP);
	rig_close(rig);
}

static void test_without(void **state)
{
	struct rig_case c = {.host0 = without, .host1 = without};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_between), cmocka_unit_test(test_mixed_lists),
		cmocka_unit_test(test_itself),  cmocka_unit_test(test_half_placed),
		cmocka_unit_test(test_fence),   cmocka_unit_test(test_dereg),
		cmocka_unit_test(test_killed),  cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_late),    cmocka_unit_test(test_dmabuf),
		cmocka_unit_test(test_without),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
