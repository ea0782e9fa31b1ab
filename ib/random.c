/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/random.h"

#include "include/clock.h"

#include <stdatomic.h>
#include <sys/random.h>
#include <unistd.h>

uint32_t ib_random_u32(void)
{
	static _Atomic uint32_t calls;
	uint32_t value;
	uint64_t mix;

	if (getrandom(&value, sizeof(value), GRND_NONBLOCK) == (ssize_t)sizeof(value)) {
		return value;
	}
	mix = clock_mono_ns() ^ (uint64_t)getpid() << 32;
	mix += atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
	mix *= 0x9e3779b97f4a7c15ull;
	return (uint32_t)(mix >> 32);
}
