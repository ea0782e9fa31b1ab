/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_LOCK_H
#define BRAID_PLUGIN_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

/**
 * A lock for what is nearly always free and held for microseconds: taken and given back inline, one
 * atomic operation each, where pthread's costs two calls and some forty instructions more, for each
 * isend, irecv and test. Waiting is futex(2). Not recursive. Zeroed is free; nothing to destroy.
 */
struct lock {
	_Atomic uint32_t word; /* enum lock_word */
};

enum lock_word {
	LOCK_FREE,
	LOCK_HELD,
	LOCK_WAITED_FOR, /* held, and somebody may sleep */
};

/** lock.c: blocks until it is ours. */
void lock_wait(struct lock *lock);
/** lock.c: one sleeper goes on. */
void lock_wake(struct lock *lock);

static inline void lock_take(struct lock *lock)
{
	uint32_t word = LOCK_FREE;

	/* Acquire: pairs with the release in lock_give(). */
	if (__builtin_expect(!atomic_compare_exchange_strong_explicit(&lock->word, &word, LOCK_HELD,
								      memory_order_acquire,
								      memory_order_relaxed),
			     0)) {
		lock_wait(lock);
	}
}

static inline void lock_give(struct lock *lock)
{
	if (__builtin_expect(atomic_exchange_explicit(&lock->word, LOCK_FREE,
						      memory_order_release) == LOCK_WAITED_FOR,
			     0)) {
		lock_wake(lock);
	}
}

#endif
