/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_GPU_AREA_H
#define BRAID_TEST_FABRIC_GPU_AREA_H

#include "test/fabric/gpu.h"

#define FAB_GPU_WINDOWS      8u
#define FAB_GPU_WINDOW_BYTES (256u << 10) /* one step of a message */

/*
 * A job goes round: FREE, TAKEN by a peer's engine, which fills the window (a write) and the
 * fields; READY; RUNS at the owner's thread; DONE, when the peer has read the result it is FREE.
 * `state` is the peer's instance id << 3 | phase. A job whose peer is gone is taken by the next
 * that needs one.
 */
enum fab_gpu_phase {
	FAB_GPU_FREE,
	FAB_GPU_TAKEN,
	FAB_GPU_READY,
	FAB_GPU_RUNS,
	FAB_GPU_DONE
};

#define FAB_GPU_PHASES 7u

struct fab_gpu_job {
	_Atomic uint32_t state;
	uint32_t device;
	uint32_t to_device; /* else from it */
	int32_t rc;         /* 0, -ESTALE: the claim was taken away, -EIO */
	uint32_t qp_idx;    /* of the owner's QP that the claim is on */
	uint32_t marks;     /* store the claim in claim_done when the bytes are there */
	uint64_t claim;
	uint64_t addr;
	uint64_t offset; /* in the window */
	uint64_t len_bytes;
} __attribute__((aligned(64)));

/** FABRIC_DIR/gpu-N.shm, N the instance's id. */
struct fab_gpu_area {
	_Atomic uint32_t doorbell;
	_Atomic uint32_t sleeping;
	_Atomic uint32_t was_stopped; /* a peer found the owner so: look before waiting again */
	struct fab_gpu_job jobs[FAB_GPU_WINDOWS];
	char windows[FAB_GPU_WINDOWS][FAB_GPU_WINDOW_BYTES] __attribute__((aligned(4096)));
};

/** Makes the file and maps it. 0 or -errno. */
int fab_gpu_area_create(const struct fab_ctx *ctx, struct fab_gpu_area **area);
void fab_gpu_area_close(const struct fab_ctx *ctx, struct fab_gpu_area *area);
/** A peer's, mapped at first use and kept; NULL when there is none. */
struct fab_gpu_area *fab_gpu_area_peer(const struct fab_ctx *ctx, uint32_t id);

/** Takes a job of the peer's area, waiting for one. -ESRCH: the peer is gone; -EBUSY: it is
 * stopped, or somebody in this process wants the engine to let go. */
int fab_gpu_job_take(struct fab_ctx *ctx, struct fab_gpu_area *area, uint32_t peer_id,
		     struct fab_gpu_job **job);
/**
 * Hands a filled job over and waits for its end. Returns its rc, or -ESRCH: the peer is gone, or
 * -EBUSY: it is stopped and has not begun. The job stays taken.
 */
int fab_gpu_job_run(struct fab_ctx *ctx, struct fab_gpu_area *area, struct fab_gpu_job *job,
		    uint32_t peer_id);
void fab_gpu_job_free(struct fab_gpu_job *job);

/** The owner's thread: serves jobs until gpu->stopping. */
void *fab_gpu_serve(void *gpu);
void fab_gpu_ring(struct fab_gpu_area *area);

#endif
