/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_SIM_RNG_H
#define BRAID_SIM_RNG_H

#include <stdbool.h>
#include <stdint.h>

/** The only source of chance in a run (splitmix64): one seed, one run. */
struct rng {
	uint64_t state;
};

static inline uint64_t rng_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static inline uint64_t rng_next(struct rng *rng)
{
	rng->state += 0x9e3779b97f4a7c15ull;
	return rng_mix(rng->state);
}

/** 0..n-1; 0 when n is 0. */
static inline uint32_t rng_below(struct rng *rng, uint32_t n)
{
	return (uint32_t)((rng_next(rng) >> 32) * n >> 32);
}

/** lo..hi, both included. */
static inline uint32_t rng_range(struct rng *rng, uint32_t lo, uint32_t hi)
{
	return lo + rng_below(rng, hi - lo + 1);
}

static inline bool rng_chance(struct rng *rng, uint32_t permille)
{
	return rng_below(rng, 1000) < permille;
}

/** lo..hi, but each power of two in between is as likely as the next: short and long waits. */
static inline uint64_t rng_spread(struct rng *rng, uint64_t lo, uint64_t hi)
{
	uint32_t octaves = 1;
	uint64_t top;

	while (lo << octaves < hi && octaves < 40) {
		octaves++;
	}
	top = lo << rng_range(rng, 1, octaves);
	top = top > hi ? hi : top;
	return lo + rng_next(rng) % (top - lo + 1);
}

#endif
