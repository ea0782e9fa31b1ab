/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/shared.h"

#include <errno.h>
#include <time.h>

#define NAP_NS 20000

uint64_t shared_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void shared_nap(void)
{
	struct timespec nap = {.tv_nsec = NAP_NS};

	nanosleep(&nap, NULL);
}

int shared_barrier(struct shared *shared, uint64_t limit_ms)
{
	uint64_t deadline_ns = shared_now_ns() + limit_ms * 1000000;
	uint32_t gen = atomic_load_explicit(&shared->gen, memory_order_acquire);

	if (atomic_fetch_add_explicit(&shared->arrived, 1, memory_order_acq_rel) + 1 ==
	    (uint32_t)shared->rank_count) {
		atomic_store_explicit(&shared->arrived, 0, memory_order_relaxed);
		atomic_store_explicit(&shared->gen, gen + 1, memory_order_release);
		return 0;
	}
	while (atomic_load_explicit(&shared->gen, memory_order_acquire) == gen) {
		if (atomic_load_explicit(&shared->has_failed, memory_order_acquire) != 0) {
			return -ECANCELED;
		}
		if (shared_now_ns() > deadline_ns) {
			return -ETIMEDOUT;
		}
		shared_nap();
	}
	return 0;
}
