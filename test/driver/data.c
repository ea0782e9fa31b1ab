/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/data.h"

#include <stdatomic.h>
#include <string.h>

enum {
	BLOCK = 1024 /**< elements checked at once: expected values stay in the L1 cache */
};

uint32_t data_key(uint32_t seed, uint32_t from, uint32_t to, uint32_t iter)
{
	const uint32_t words[] = {seed, from + 1, to + 1, iter + 1};
	uint32_t x = UINT32_C(0x2545f491);

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		x = (x ^ words[i]) * UINT32_C(0xcc9e2d51);
		x ^= x >> 16;
		x *= UINT32_C(0x1b873593);
		x ^= x >> 13;
	}
	return x;
}

void data_fill(uint32_t *out, size_t count, size_t base, uint32_t key)
{
	uint32_t first = (uint32_t)base;

	for (size_t i = 0; i < count; i++) {
		out[i] = data_element(key, first + (uint32_t)i);
	}
}

size_t data_check(const uint32_t *got, size_t count, size_t base, const uint32_t *keys,
		  size_t key_count, size_t *first)
{
	uint32_t want[BLOCK];
	size_t wrong_count = 0;

	for (size_t start = 0; start < count; start += BLOCK) {
		size_t block = count - start < BLOCK ? count - start : BLOCK;
		uint32_t diff = 0;

		data_fill(want, block, base + start, keys[0]);
		for (size_t k = 1; k < key_count; k++) {
			uint32_t idx = (uint32_t)(base + start);

			for (size_t i = 0; i < block; i++) {
				want[i] += data_element(keys[k], idx + (uint32_t)i);
			}
		}
		for (size_t i = 0; i < block; i++) {
			diff |= got[start + i] ^ want[i];
		}
		for (size_t i = 0; diff && i < block; i++) {
			if (got[start + i] != want[i] && wrong_count++ == 0) {
				*first = start + i;
			}
		}
	}
	return wrong_count;
}

void data_poison(void *at, size_t len_bytes, uint64_t pattern)
{
	/* All patterns repeat one byte, so the fastest fill there is will do. */
	memset(at, (int)(pattern & 0xff), len_bytes);
}

size_t data_poison_check(const void *at, size_t len_bytes, uint64_t pattern, size_t *first_bytes)
{
	const unsigned char *bytes = at;
	unsigned char want = (unsigned char)(pattern & 0xff);
	size_t wrong_count = 0;

	for (size_t start = 0; start < len_bytes; start += 4 * BLOCK) {
		size_t block = len_bytes - start < 4 * BLOCK ? len_bytes - start : 4 * BLOCK;
		unsigned char diff = 0;

		for (size_t i = 0; i < block; i++) {
			diff |= (unsigned char)(bytes[start + i] ^ want);
		}
		for (size_t i = 0; diff && i < block; i++) {
			if (bytes[start + i] != want && wrong_count++ == 0) {
				*first_bytes = start + i;
			}
		}
	}
	return wrong_count;
}

void data_reduce(uint32_t *restrict acc, const uint32_t *restrict in, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		acc[i] += in[i];
	}
}

void data_add(uint32_t *restrict out, const uint32_t *restrict a, const uint32_t *restrict b,
	      size_t count)
{
	for (size_t i = 0; i < count; i++) {
		out[i] = a[i] + b[i];
	}
}

void ll_pack(struct ll_unit *out, const uint32_t *in, size_t count, uint32_t flag)
{
	for (size_t i = 0; i < count; i++) {
		out[i] = (struct ll_unit){in[i], flag};
	}
}

void ll_unpack(uint32_t *out, const struct ll_unit *in, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		out[i] = in[i].data;
	}
}

void ll_unpack_add(uint32_t *out, const uint32_t *own, const struct ll_unit *in, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		out[i] = own[i] + in[i].data;
	}
}

size_t ll_scan(const struct ll_unit *in, size_t from, size_t count, uint32_t flag)
{
	size_t i = from;

	for (; i < count; i++) {
		/* An 8-byte aligned load; acquire pairs with whatever wrote the unit in one store.
		 */
		uint64_t word =
			__atomic_load_n((const uint64_t *)(const void *)&in[i], __ATOMIC_ACQUIRE);

		if ((uint32_t)(word >> 32) != flag) {
			break;
		}
	}
	return i;
}

uint64_t ll_digest(const struct ll_unit *in, size_t count)
{
	uint64_t sum = count;

	for (size_t i = 0; i < count; i++) {
		uint64_t word = in[i].data | (uint64_t)in[i].flag << 32;

		sum += word * (2 * (uint64_t)i + UINT64_C(0x9e3779b97f4a7c15));
	}
	return sum;
}
