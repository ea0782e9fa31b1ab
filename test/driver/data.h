/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_DATA_H
#define BRAID_TEST_DRIVER_DATA_H

#include <stddef.h>
#include <stdint.h>

/** Bytes that lie in memory nobody may write to, in a receive slot between messages. */
#define DATA_POISON_RECV UINT64_C(0xdbdbdbdbdbdbdbdb)
/** Bytes a send buffer holds once its send was reported done. */
#define DATA_POISON_SEND UINT64_C(0xe7e7e7e7e7e7e7e7)
/** Bytes of a guard zone. */
#define DATA_GUARD UINT64_C(0xc5c5c5c5c5c5c5c5)

/** 8-byte unit of the low-latency protocol; flag is never 0 nor a poison word. */
struct ll_unit {
	uint32_t data;
	uint32_t flag;
};

/** Mix four numbers into a key that names one stream of elements. */
uint32_t data_key(uint32_t seed, uint32_t from, uint32_t to, uint32_t iter);

/**
 * Element idx of stream key: 20 bits, so that sums over 16 ranks stay far from overflow, and no
 * poison word is a valid element.
 */
static inline uint32_t data_element(uint32_t key, uint32_t idx)
{
	uint32_t x = idx * UINT32_C(0x9e3779b1) + key;

	x ^= x >> 15;
	x *= UINT32_C(0x85ebca77);
	return x >> 12;
}

/** Fill out[0..count) with elements base.. of stream key. */
void data_fill(uint32_t *out, size_t count, size_t base, uint32_t key);

/**
 * Count elements of got[0..count) that differ from the sum of the streams keys[0..key_count) at
 * base... *first gets the index of the first one, set only if the result is not 0.
 */
size_t data_check(const uint32_t *got, size_t count, size_t base, const uint32_t *keys,
		  size_t key_count, size_t *first);

/** Fill bytes (a multiple of 4) with pattern. */
void data_poison(void *at, size_t len_bytes, uint64_t pattern);

/**
 * Count bytes that differ from pattern (len a multiple of 4). *first_bytes gets the offset of the
 * first, set only if the result is not 0.
 */
size_t data_poison_check(const void *at, size_t len_bytes, uint64_t pattern, size_t *first_bytes);

/** acc[i] += in[i] */
void data_reduce(uint32_t *restrict acc, const uint32_t *restrict in, size_t count);
/** out[i] = a[i] + b[i] */
void data_add(uint32_t *restrict out, const uint32_t *restrict a, const uint32_t *restrict b,
	      size_t count);

/** Write count units {in[i], flag}. */
void ll_pack(struct ll_unit *out, const uint32_t *in, size_t count, uint32_t flag);
/** out[i] = in[i].data */
void ll_unpack(uint32_t *out, const struct ll_unit *in, size_t count);
/** out[i] = own[i] + in[i].data */
void ll_unpack_add(uint32_t *out, const uint32_t *own, const struct ll_unit *in, size_t count);
/**
 * First unit from index `from` on whose flag is not `flag`, or count. Reads each unit with one
 * 8-byte load, as a GPU thread does: a plugin may be writing the buffer at the same time.
 */
size_t ll_scan(const struct ll_unit *in, size_t from, size_t count, uint32_t flag);
/** Sum over the units that changes when any data or flag does. */
uint64_t ll_digest(const struct ll_unit *in, size_t count);

#endif
