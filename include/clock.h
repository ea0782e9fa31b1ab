/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_CLOCK_H
#define BRAID_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS  1000000ull
#define NS_PER_SEC UINT64_C(1000000000)

/** CLOCK_MONOTONIC in ns. Any thread. repair/ never calls this: it is given the time. */
static inline uint64_t clock_mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

#endif
