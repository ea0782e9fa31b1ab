/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/shared.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t wait_ms)
{
	struct timespec ts = {wait_ms / 1000, (long)(wait_ms % 1000) * 1000000L};

	syscall(SYS_futex, word, FUTEX_WAIT, seen, &ts, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int shared_map(struct shared **out, int fd)
{
	void *at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (at == MAP_FAILED) {
		return -errno;
	}
	*out = at;
	return 0;
}

int shared_create(struct shared **out, int *fd)
{
	int memory = memfd_create("braid_driver", 0);
	int err;

	if (memory < 0) {
		return -errno;
	}
	if (ftruncate(memory, (off_t)sizeof(struct shared)) < 0) {
		err = -errno;
		goto close_memory;
	}
	err = shared_map(out, memory);
	if (err) {
		goto close_memory;
	}
	*fd = memory;
	return 0;

close_memory:
	close(memory);
	return err;
}

void shared_unmap(struct shared *shared)
{
	if (shared) {
		munmap(shared, sizeof(*shared));
	}
}

int shared_gate_pass(struct shared *shared)
{
	struct gate *gate = &shared->gate;
	uint32_t seen = atomic_load_explicit(&gate->generation, memory_order_acquire);

	atomic_fetch_add_explicit(&gate->arrived, 1, memory_order_acq_rel);
	futex_wake(&gate->arrived);
	while (atomic_load_explicit(&gate->generation, memory_order_acquire) == seen) {
		if (atomic_load_explicit(&shared->stop, memory_order_acquire) != STOP_NONE) {
			return -ECANCELED;
		}
		futex_wait(&gate->generation, seen, 100);
	}
	return 0;
}

int shared_gate_full(struct shared *shared, uint32_t wait_ms)
{
	struct gate *gate = &shared->gate;
	uint32_t seen = atomic_load_explicit(&gate->arrived, memory_order_acquire);

	if (seen < shared->opt.rank_count) {
		futex_wait(&gate->arrived, seen, wait_ms);
		seen = atomic_load_explicit(&gate->arrived, memory_order_acquire);
	}
	return seen >= shared->opt.rank_count;
}

void shared_gate_open(struct shared *shared)
{
	struct gate *gate = &shared->gate;

	atomic_store_explicit(&gate->arrived, 0, memory_order_release);
	atomic_fetch_add_explicit(&gate->generation, 1, memory_order_acq_rel);
	futex_wake(&gate->generation);
}

void shared_link_order(struct shared *shared, uint32_t rank, enum link_order order)
{
	_Atomic uint32_t *word = &shared->ranks[rank].link_orders;
	uint32_t last = atomic_load_explicit(word, memory_order_relaxed);

	atomic_store_explicit(word, (last / LINK_ORDER_COUNT + 1) * LINK_ORDER_COUNT + order,
			      memory_order_release);
	futex_wake(word);
}

enum link_order shared_link_wait(struct shared *shared, uint32_t rank, uint32_t *seen,
				 uint32_t wait_ms)
{
	_Atomic uint32_t *word = &shared->ranks[rank].link_orders;
	uint32_t now = atomic_load_explicit(word, memory_order_acquire);

	if (now == *seen) {
		futex_wait(word, now, wait_ms);
		now = atomic_load_explicit(word, memory_order_acquire);
	}
	if (now == *seen) {
		return LINK_NOTHING;
	}
	*seen = now;
	return (enum link_order)(now % LINK_ORDER_COUNT);
}

void shared_stop(struct shared *shared, enum stop_kind why)
{
	uint32_t none = STOP_NONE;

	atomic_compare_exchange_strong_explicit(&shared->stop, &none, (uint32_t)why,
						memory_order_acq_rel, memory_order_acquire);
	futex_wake(&shared->gate.generation);
}
