/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/gpu_area.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPIN_NS  50000ull   /* a job comes soon after the last one, and is soon done */
#define SLEEP_NS 2000000ull /* then look what became of the other process */

static _Atomic(struct fab_gpu_area *) peer_areas[FAB_MAX_INSTS];
static pthread_mutex_t peer_lock = PTHREAD_MUTEX_INITIALIZER;

static int area_path(char path[PATH_MAX], const struct fab_ctx *ctx, uint32_t id)
{
	int len = snprintf(path, PATH_MAX, "%s/gpu-%u.shm", ctx->lib->dir, id);

	return len < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int area_map(const struct fab_ctx *ctx, uint32_t id, int flags, struct fab_gpu_area **area)
{
	char path[PATH_MAX];
	void *map;
	int fd;
	int rc = area_path(path, ctx, id);

	if (rc != 0) {
		return rc;
	}
	fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
	if (fd < 0) {
		return -errno;
	}
	if ((flags & O_CREAT) != 0 && ftruncate(fd, (off_t)sizeof(**area)) != 0) {
		rc = -errno;
		close(fd);
		return rc;
	}
	map = mmap(NULL, sizeof(**area), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	rc = map == MAP_FAILED ? -errno : 0;
	close(fd);
	if (rc == 0) {
		*area = map;
	}
	return rc;
}

int fab_gpu_area_create(const struct fab_ctx *ctx, struct fab_gpu_area **area)
{
	return area_map(ctx, ctx->inst->id, O_CREAT | O_EXCL, area);
}

void fab_gpu_area_close(const struct fab_ctx *ctx, struct fab_gpu_area *area)
{
	char path[PATH_MAX];

	if (area_path(path, ctx, ctx->inst->id) == 0) {
		unlink(path);
	}
	munmap(area, sizeof(*area));
}

struct fab_gpu_area *fab_gpu_area_peer(const struct fab_ctx *ctx, uint32_t id)
{
	struct fab_gpu_area *area = atomic_load_explicit(&peer_areas[id], memory_order_acquire);

	if (area != NULL) {
		return area;
	}
	pthread_mutex_lock(&peer_lock);
	area = atomic_load_explicit(&peer_areas[id], memory_order_relaxed);
	if (area == NULL && area_map(ctx, id, 0, &area) == 0) {
		atomic_store_explicit(&peer_areas[id], area, memory_order_release);
	}
	pthread_mutex_unlock(&peer_lock);
	return area;
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
	const struct timespec limit = {.tv_nsec = SLEEP_NS};

	syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

void fab_gpu_ring(struct fab_gpu_area *area)
{
	/* Sequentially consistent, like an instance's doorbell: one of the two sees the other. */
	atomic_fetch_add_explicit(&area->doorbell, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&area->sleeping, memory_order_seq_cst) != 0) {
		futex_wake(&area->doorbell);
	}
}

static bool job_is_free(const struct fab_ctx *ctx, uint32_t state, bool look_for_dead)
{
	uint32_t phase = state & FAB_GPU_PHASES;

	if (phase == FAB_GPU_FREE) {
		return true;
	}
	return look_for_dead && (phase == FAB_GPU_TAKEN || phase == FAB_GPU_DONE) &&
	       fab_inst_life(ctx->lib->root, state >> 3) == FAB_LIFE_GONE;
}

static bool is_pressed(struct fab_ctx *ctx)
{
	return atomic_load_explicit(&ctx->exec_wanted, memory_order_seq_cst) != 0 ||
	       atomic_load_explicit(&ctx->stopping, memory_order_acquire) != 0;
}

/* Others fill all windows. Is there hope? */
static int take_goes_on(struct fab_ctx *ctx, uint32_t peer_id)
{
	enum fab_life life = fab_inst_life(ctx->lib->root, peer_id);

	if (life == FAB_LIFE_GONE) {
		return -ESRCH;
	}
	return life == FAB_LIFE_STOPPED || is_pressed(ctx) ? -EBUSY : 0;
}

int fab_gpu_job_take(struct fab_ctx *ctx, struct fab_gpu_area *area, uint32_t peer_id,
		     struct fab_gpu_job **job)
{
	uint32_t mine = ctx->inst->id << 3 | FAB_GPU_TAKEN;
	int rc = 0;

	if (atomic_load_explicit(&area->was_stopped, memory_order_relaxed) != 0) {
		rc = take_goes_on(ctx, peer_id);
		atomic_store_explicit(&area->was_stopped, rc != 0, memory_order_relaxed);
	}
	for (uint64_t look = 1; rc == 0; look++) {
		bool thorough = look % 1024 == 0;

		for (uint32_t i = 0; i < FAB_GPU_WINDOWS; i++) {
			uint32_t state =
				atomic_load_explicit(&area->jobs[i].state, memory_order_relaxed);

			if (job_is_free(ctx, state, thorough) &&
			    atomic_compare_exchange_strong(&area->jobs[i].state, &state, mine)) {
				*job = &area->jobs[i];
				return 0;
			}
		}
		rc = thorough ? take_goes_on(ctx, peer_id) : 0;
		sched_yield();
	}
	return rc;
}

static uint32_t job_state(const struct fab_gpu_job *job)
{
	return atomic_load_explicit(&job->state, memory_order_acquire);
}

/* It takes long: 0 is worth waiting for, else taken back, unless the peer is in the middle of it.
 */
static int job_withdraw(struct fab_ctx *ctx, struct fab_gpu_job *job, uint32_t peer_id)
{
	enum fab_life life = fab_inst_life(ctx->lib->root, peer_id);
	uint32_t ready = ctx->inst->id << 3 | FAB_GPU_READY;
	uint32_t taken = ctx->inst->id << 3 | FAB_GPU_TAKEN;

	if (life == FAB_LIFE_GONE) {
		return -ESRCH; /* its memory is gone too */
	}
	return life == FAB_LIFE_STOPPED &&
			       atomic_compare_exchange_strong(&job->state, &ready, taken)
		       ? -EBUSY
		       : 0;
}

int fab_gpu_job_run(struct fab_ctx *ctx, struct fab_gpu_area *area, struct fab_gpu_job *job,
		    uint32_t peer_id)
{
	uint64_t start_ns = fab_now_ns();
	uint32_t state;
	int rc;

	atomic_store_explicit(&job->state, ctx->inst->id << 3 | FAB_GPU_READY,
			      memory_order_release);
	fab_gpu_ring(area);
	while (state = job_state(job), (state & FAB_GPU_PHASES) != FAB_GPU_DONE) {
		if (fab_now_ns() - start_ns < SPIN_NS) {
			sched_yield();
			continue;
		}
		futex_wait(&job->state, state);
		rc = fab_now_ns() - start_ns > SLEEP_NS ? job_withdraw(ctx, job, peer_id) : 0;
		if (rc != 0) {
			atomic_store_explicit(&area->was_stopped, 1, memory_order_relaxed);
			return rc;
		}
	}
	return job->rc;
}

void fab_gpu_job_free(struct fab_gpu_job *job)
{
	atomic_store_explicit(&job->state, FAB_GPU_FREE, memory_order_release);
}

/* Under gpu->run, so that whoever takes claims away can wait for the copy to be over. */
static int job_execute(struct fab_gpu *gpu, struct fab_gpu_job *job, char *window)
{
	uint32_t device = job->device % FAB_GPU_DEVICES;
	const struct fab_gpu_lane *lane = &gpu->serve[device];
	struct fab_qp_slot *slot = &gpu->ctx->inst->qps[job->qp_idx % FAB_MAX_QPS];
	int rc;

	if (atomic_load_explicit(&slot->claim, memory_order_seq_cst) !=
	    (job->claim | FAB_CLAIM_COPY)) {
		return -ESTALE;
	}
	if ((atomic_load_explicit(&gpu->serves, memory_order_acquire) >> device & 1) == 0 ||
	    job->offset > FAB_GPU_WINDOW_BYTES ||
	    job->len_bytes > FAB_GPU_WINDOW_BYTES - job->offset) {
		return -EIO;
	}
	rc = job->to_device != 0
		     ? fab_cuda_to_device(lane, job->addr, window + job->offset, job->len_bytes)
		     : fab_cuda_from_device(lane, window + job->offset, job->addr, job->len_bytes);
	if (rc == 0 && job->marks != 0) {
		atomic_store_explicit(&slot->claim_done, job->claim, memory_order_release);
	}
	return rc;
}

static bool serve_once(struct fab_gpu *gpu)
{
	bool served = false;

	for (uint32_t i = 0; i < FAB_GPU_WINDOWS; i++) {
		struct fab_gpu_job *job = &gpu->area->jobs[i];
		uint32_t state = job_state(job);
		uint32_t who = state & ~FAB_GPU_PHASES;

		if ((state & FAB_GPU_PHASES) != FAB_GPU_READY ||
		    !atomic_compare_exchange_strong(&job->state, &state, who | FAB_GPU_RUNS)) {
			continue;
		}
		pthread_mutex_lock(&gpu->run);
		job->rc = job_execute(gpu, job, gpu->area->windows[i]);
		pthread_mutex_unlock(&gpu->run);
		atomic_store_explicit(&job->state, who | FAB_GPU_DONE, memory_order_seq_cst);
		futex_wake(&job->state);
		served = true;
	}
	return served;
}

void *fab_gpu_serve(void *arg)
{
	struct fab_gpu *gpu = arg;
	uint64_t busy_ns = 0;

	prctl(PR_SET_NAME, "fabric");
	for (;;) {
		uint32_t seen = atomic_load_explicit(&gpu->area->doorbell, memory_order_seq_cst);

		if (atomic_load_explicit(&gpu->stopping, memory_order_acquire) != 0) {
			return NULL;
		}
		if (serve_once(gpu)) {
			busy_ns = fab_now_ns();
			continue;
		}
		if (fab_now_ns() - busy_ns < SPIN_NS) {
			sched_yield();
			continue;
		}
		atomic_store_explicit(&gpu->area->sleeping, 1, memory_order_seq_cst);
		if (atomic_load_explicit(&gpu->area->doorbell, memory_order_seq_cst) == seen) {
			syscall(SYS_futex, &gpu->area->doorbell, FUTEX_WAIT, seen, NULL, NULL, 0);
		}
		atomic_store_explicit(&gpu->area->sleeping, 0, memory_order_seq_cst);
	}
}
