/* SPDX-License-Identifier: Apache-2.0 */

/* Taking completions: by several threads, out of rings of any size, and past the entry that a
 * process took and left when it was killed. */

#include "test/fabric/inst.h"
#include "test/fabric/root.h"
#include "test/fabric/tests/rig.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#define POLLERS  3u
#define MESSAGES 30000u

static void nobody(struct rig *rig)
{
	(void)rig;
}

struct crowd {
	struct ibv_cq *cq;
	_Atomic uint32_t taken;
	_Atomic uint8_t seen[MESSAGES];
};

static void *poll_all(void *arg)
{
	struct crowd *crowd = arg;
	struct ibv_wc wc[3];

	while (atomic_load(&crowd->taken) < MESSAGES) {
		int got = ibv_poll_cq(crowd->cq, 3, wc);

		CHECK(got >= 0);
		for (int i = 0; i < got; i++) {
			CHECK(wc[i].status == IBV_WC_SUCCESS && wc[i].wr_id < MESSAGES);
			CHECK(atomic_fetch_add(&crowd->seen[wc[i].wr_id], 1) == 0);
			atomic_fetch_add(&crowd->taken, 1);
		}
		if (got == 0) {
			sched_yield();
		}
	}
	return NULL;
}

/* Each completion is taken once, by one of the threads, from a ring of `size` that is often full
 * and goes round all the time. */
static void crowd_poll(struct rig *rig, uint32_t size)
{
	struct crowd *crowd = calloc(1, sizeof(*crowd));
	struct ibv_cq *own = rig->cq;
	pthread_t threads[POLLERS];

	CHECK(crowd != NULL);
	crowd->cq = ibv_create_cq(rig->context, (int)size, NULL, NULL, 0);
	CHECK(crowd->cq != NULL && crowd->cq->cqe == (int)size);
	rig->cq = crowd->cq;
	rig_connect_self(rig, 0);
	rig->cq = own;
	for (uint32_t i = 0; i < POLLERS; i++) {
		CHECK(pthread_create(&threads[i], NULL, poll_all, crowd) == 0);
	}
	for (uint32_t i = 0; i < MESSAGES; i++) {
		while (i - atomic_load(&crowd->taken) >= size) {
			sched_yield();
		}
		CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, i, 0, 8) == 0);
	}
	for (uint32_t i = 0; i < POLLERS; i++) {
		CHECK(pthread_join(threads[i], NULL) == 0);
	}
	CHECK(atomic_load(&crowd->taken) == MESSAGES && !rig_has_event(rig)); /* no overrun */
	CHECK(ibv_destroy_qp(rig->qps[0]) == 0);
	rig->qps[0] = NULL;
	CHECK(ibv_destroy_cq(crowd->cq) == 0);
	free(crowd);
}

static void crowd_host(struct rig *rig)
{
	rig_open_alone(rig, 0);
	crowd_poll(rig, 1);
	crowd_poll(rig, 4);
	crowd_poll(rig, 64);
	rig_close(rig);
}

static void test_crowd(void **state)
{
	static const struct rig_case c = {.host0 = crowd_host, .host1 = nobody};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* The id of a host's opened device. */
static uint32_t inst_of(const struct rig *rig, uint32_t host)
{
	struct fab_root *root;
	uint32_t id = 0;

	CHECK(fab_root_open(rig->dir, &root) == 0);
	for (uint32_t i = 1; i <= atomic_load(&root->inst_count); i++) {
		if (root->insts[i].host == host) {
			id = i;
		}
	}
	fab_root_close(root);
	CHECK(id != 0);
	return id;
}

/* Does to the own ring what `producer` does before it fills in a completion, and no more. */
static void take_entry(struct rig *rig, uint32_t producer)
{
	struct fab_inst *inst;
	struct fab_cqe *cqe;
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/inst-%u.shm", rig->dir, inst_of(rig, rig->host));
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	inst = mmap(NULL, FAB_INST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
		    0);
	CHECK(inst != MAP_FAILED);
	cqe = fab_inst_at(inst, inst->cqs[rig->cq->handle].ring_off);
	CHECK(atomic_load(&cqe[0].ctl) == FAB_CQE_FREE && atomic_load(&cqe[1].ctl) == 0);
	atomic_store(&cqe[0].ctl, (uint64_t)producer << 48 | FAB_CQE_TAKEN);
	munmap(inst, FAB_INST_BYTES);
	close(fd);
}

/* What is behind the entry waits for its producer, and no longer than that one lives. */
static void orphan_host(struct rig *rig)
{
	rig_open(rig, 0);
	take_entry(rig, inst_of(rig, 1));
	rig_connect_self(rig, 0);
	rig->peer_buf = (uint64_t)(uintptr_t)rig->buf;
	rig->peer_rkey = rig->mr->rkey;
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 77, 0, 8) == 0);
	rig_quiet(rig, 50);
	CHECK(kill((pid_t)rig->peer_pid, SIGKILL) == 0);
	CHECK(rig_poll(rig).wr_id == 77);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 78, 0, 8) == 0);
	CHECK(rig_poll(rig).wr_id == 78);
	rig_close(rig);
}

static void orphan_peer(struct rig *rig)
{
	rig_open(rig, 0);
	rig_barrier(rig); /* does not return: killed */
	CHECK(false);
}

static void test_orphan(void **state)
{
	static const struct rig_case c = {.host0 = orphan_host, .host1 = orphan_peer};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_orphan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
