/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_NCCL_VALUE_H
#define BRAID_TEST_NCCL_VALUE_H

/*
 * What every element of every buffer must be: a whole number hashed from (source rank, index,
 * salt), small enough that a sum over 8 ranks is exact in its type in any order. A misplaced,
 * stale, doubled or lost element differs. The same code fills and checks on the GPU and, for the
 * self-tests, on the host; it is C and CUDA C++.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define VALUE_FN static inline __host__ __device__
#else
#define VALUE_FN static inline
#endif

#define VALUE_MAX_RANKS 8

enum value_type {
	VALUE_FLOAT,
	VALUE_HALF,
	VALUE_BFLOAT16,
	VALUE_INT32,
	VALUE_INT64,
	VALUE_TYPE_COUNT
};

enum value_red {
	VALUE_SUM,
	VALUE_MAX,
	VALUE_MIN,
	VALUE_AVG,
	VALUE_RED_COUNT
};

/** How a buffer is filled. */
struct value_spec {
	enum value_type type;
	uint32_t salt;
	bool is_unsigned; /* no negative values: what an average of whole numbers rounds to is then
			     plain */
};

/**
 * What a result must be. With `ranks` > 0 element i is `red` over the sources 0 .. ranks - 1 at
 * index `base` + i; with 0 it is that of source `source` + i / `block` at index `base` + i %
 * `block`.
 */
struct value_want {
	uint32_t ranks;
	enum value_red red;
	uint32_t source;
	uint64_t base;
	uint64_t block;
};

VALUE_FN uint32_t value_size(enum value_type type)
{
	return type == VALUE_INT64 ? 8 : (type == VALUE_HALF || type == VALUE_BFLOAT16) ? 2 : 4;
}

/* Exact over 8 ranks: half has 11 bits, bfloat16 8, float 24. An average adds three binary places.
 */
VALUE_FN uint64_t value_mask(enum value_type type)
{
	return type == VALUE_FLOAT      ? 0xffff
	       : type == VALUE_HALF     ? 0x7f
	       : type == VALUE_BFLOAT16 ? 0x1f
	       : type == VALUE_INT32    ? 0xfffff
					: 0xffffffffffULL;
}

VALUE_FN int64_t value_of(const struct value_spec *spec, uint32_t source, uint64_t idx)
{
	uint64_t mask = value_mask(spec->type);
	uint64_t x = idx * 0x9e3779b97f4a7c15ULL + (source + 1ULL) * 0xc2b2ae3d27d4eb4fULL +
		     (spec->salt + 1ULL) * 0x165667b19e3779f9ULL;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 32;
	x &= mask;
	return (int64_t)x - (spec->is_unsigned ? 0 : (int64_t)(mask / 2));
}

/* What element `idx` must be, times `ranks` for an average, which may not be whole. */
VALUE_FN int64_t value_wanted(const struct value_spec *spec, const struct value_want *want,
			      uint64_t idx)
{
	if (want->ranks == 0) {
		return value_of(spec, want->source + (uint32_t)(idx / want->block),
				want->base + idx % want->block);
	}
	int64_t total = value_of(spec, 0, want->base + idx);

	for (uint32_t r = 1; r < want->ranks; r++) {
		int64_t next = value_of(spec, r, want->base + idx);

		if (want->red == VALUE_MAX) {
			total = next > total ? next : total;
		} else if (want->red == VALUE_MIN) {
			total = next < total ? next : total;
		} else {
			total += next;
		}
	}
	return total;
}

VALUE_FN uint32_t value_float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

VALUE_FN float value_bits_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* For values that are normal and exact in half: no rounding, no infinities. */
VALUE_FN uint16_t value_half_bits(float value)
{
	uint32_t bits = value_float_bits(value);
	uint32_t sign = (bits >> 16) & 0x8000;

	if ((bits & 0x7fffffff) == 0) {
		return (uint16_t)sign;
	}
	return (uint16_t)(sign | ((((bits >> 23) & 0xff) - 112) << 10) | ((bits >> 13) & 0x3ff));
}

/* Every half: zero, subnormal, normal, infinity and NaN. */
VALUE_FN float value_half_float(uint16_t half)
{
	uint32_t exponent = (half >> 10) & 0x1f;
	uint32_t fraction = half & 0x3ff;
	float size;

	if (exponent == 0) {
		size = (float)fraction / 16777216.0f;
	} else if (exponent == 31) {
		size = value_bits_float(0x7f800000 | fraction << 13);
	} else {
		size = value_bits_float((exponent + 112) << 23 | fraction << 13);
	}
	return (half & 0x8000) != 0 ? -size : size;
}

VALUE_FN void value_put(enum value_type type, void *buf, uint64_t idx, int64_t value)
{
	switch (type) {
	case VALUE_FLOAT:
		((float *)buf)[idx] = (float)value;
		break;
	case VALUE_HALF:
		((uint16_t *)buf)[idx] = value_half_bits((float)value);
		break;
	case VALUE_BFLOAT16:
		((uint16_t *)buf)[idx] = (uint16_t)(value_float_bits((float)value) >> 16);
		break;
	case VALUE_INT32:
		((int32_t *)buf)[idx] = (int32_t)value;
		break;
	case VALUE_INT64:
	case VALUE_TYPE_COUNT:
		((int64_t *)buf)[idx] = value;
		break;
	}
}

VALUE_FN float value_get_float(enum value_type type, const void *buf, uint64_t idx)
{
	return type == VALUE_FLOAT ? ((const float *)buf)[idx]
	       : type == VALUE_HALF
		       ? value_half_float(((const uint16_t *)buf)[idx])
		       : value_bits_float((uint32_t)((const uint16_t *)buf)[idx] << 16);
}

/** Element `idx` as a number, for people. */
VALUE_FN double value_get_number(enum value_type type, const void *buf, uint64_t idx)
{
	return type == VALUE_INT32   ? (double)((const int32_t *)buf)[idx]
	       : type == VALUE_INT64 ? (double)((const int64_t *)buf)[idx]
				     : (double)value_get_float(type, buf, idx);
}

/** Whether element `idx` of `buf` is what it must be, to the last bit (0 and -0 are equal). */
VALUE_FN bool value_is_right(const struct value_spec *spec, const struct value_want *want,
			     const void *buf, uint64_t idx)
{
	int64_t value = value_wanted(spec, want, idx);
	int64_t parts = want->ranks > 0 && want->red == VALUE_AVG ? want->ranks : 1;

	if (spec->type == VALUE_INT32) {
		return ((const int32_t *)buf)[idx] == value / parts;
	}
	if (spec->type == VALUE_INT64) {
		return ((const int64_t *)buf)[idx] == value / parts;
	}
	return (double)value_get_float(spec->type, buf, idx) == (double)value / (double)parts;
}

#endif
