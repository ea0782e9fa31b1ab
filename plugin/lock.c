/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/lock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* errno is the caller's: NCCL's thread is inside isend, irecv or test. */
static void futex(struct lock *lock, int op, uint32_t value)
{
	int saved = errno;

	(void)syscall(SYS_futex, &lock->word, op, value, NULL, NULL, 0);
	errno = saved;
}

void lock_wait(struct lock *lock)
{
	/*
	 * From here on it is marked as waited for whenever we take it: another one may sleep whose
	 * mark ours has replaced. Too many wakes are harmless, one too few is not. A holder that
	 * gives it back between the exchange and the call has changed the word, and the call
	 * returns at once.
	 */
	while (atomic_exchange_explicit(&lock->word, LOCK_WAITED_FOR, memory_order_acquire) !=
	       LOCK_FREE) {
		futex(lock, FUTEX_WAIT_PRIVATE, LOCK_WAITED_FOR);
	}
}

void lock_wake(struct lock *lock)
{
	futex(lock, FUTEX_WAKE_PRIVATE, 1);
}
