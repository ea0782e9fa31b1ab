/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_BYTES_H
#define BRAID_OOB_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/**
 * A position in a run of bytes and the direction of travel. Each helper below moves one field, out
 * of the structure or into it, little-endian; so one function per frame body serves both ways and
 * the two cannot disagree. A field that does not fit, or a value out of range, sets `bad`; from
 * then on nothing is read or written and fields that are read become 0.
 */
struct oob_bytes {
	uint8_t *pos;
	uint8_t *end;
	bool put; /* true: structure to bytes */
	bool bad;
};

/** Room for `len_bytes`, or NULL and bad. */
static inline uint8_t *oob_bytes_take(struct oob_bytes *bytes, size_t len_bytes)
{
	uint8_t *at = bytes->pos;

	if (bytes->bad || (size_t)(bytes->end - at) < len_bytes) {
		bytes->bad = true;
		return NULL;
	}
	bytes->pos += len_bytes;
	return at;
}

/** The low `width_bytes` bytes of an integer. */
static inline void oob_bytes_uint(struct oob_bytes *bytes, uint64_t *value, size_t width_bytes)
{
	uint8_t *at = oob_bytes_take(bytes, width_bytes);

	if (bytes->put) {
		for (size_t i = 0; at != NULL && i < width_bytes; i++) {
			at[i] = (uint8_t)(*value >> (8 * i));
		}
		return;
	}
	*value = 0;
	for (size_t i = 0; at != NULL && i < width_bytes; i++) {
		*value |= (uint64_t)at[i] << (8 * i);
	}
}

static inline void oob_bytes_u64(struct oob_bytes *bytes, uint64_t *value)
{
	oob_bytes_uint(bytes, value, 8);
}

static inline void oob_bytes_u32(struct oob_bytes *bytes, uint32_t *value)
{
	uint64_t wide = *value;

	oob_bytes_uint(bytes, &wide, 4);
	*value = (uint32_t)wide;
}

static inline void oob_bytes_u16(struct oob_bytes *bytes, uint16_t *value)
{
	uint64_t wide = *value;

	oob_bytes_uint(bytes, &wide, 2);
	*value = (uint16_t)wide;
}

static inline void oob_bytes_u8(struct oob_bytes *bytes, uint8_t *value)
{
	uint64_t wide = *value;

	oob_bytes_uint(bytes, &wide, 1);
	*value = (uint8_t)wide;
}

/** Bytes as they are. */
static inline void oob_bytes_raw(struct oob_bytes *bytes, void *data, size_t len_bytes)
{
	uint8_t *at = oob_bytes_take(bytes, len_bytes);

	if (bytes->put && at != NULL) {
		memcpy(at, data, len_bytes);
	} else if (!bytes->put && at != NULL) {
		memcpy(data, at, len_bytes);
	} else if (!bytes->put) {
		memset(data, 0, len_bytes);
	}
}

/** A value that must lie in [min, max]: counts, indices, enums. Read as 0 when it does not. */
static inline void oob_bytes_range(struct oob_bytes *bytes, uint32_t *value, uint32_t min,
				   uint32_t max)
{
	oob_bytes_u32(bytes, value);
	if (bytes->bad || *value < min || *value > max) {
		bytes->bad = true;
		if (!bytes->put) {
			*value = 0;
		}
	}
}

/** The same for a field of one byte. */
static inline void oob_bytes_range8(struct oob_bytes *bytes, uint8_t *value, uint8_t min,
				    uint8_t max)
{
	oob_bytes_u8(bytes, value);
	if (bytes->bad || *value < min || *value > max) {
		bytes->bad = true;
		if (!bytes->put) {
			*value = 0;
		}
	}
}

/**
 * Text in an array of `size_bytes` (up to 256): one length byte, then the characters. Read text is
 * always terminated, and what is not printable ASCII becomes '?', since it ends up in log lines.
 */
static inline void oob_bytes_text(struct oob_bytes *bytes, char *text, size_t size_bytes)
{
	uint8_t len = 0;

	if (bytes->put) {
		len = (uint8_t)strnlen(text, size_bytes - 1);
	}
	oob_bytes_range8(bytes, &len, 0, (uint8_t)(size_bytes - 1));
	if (!bytes->put) {
		memset(text, 0, size_bytes);
	}
	oob_bytes_raw(bytes, text, bytes->bad ? 0 : len);
	for (size_t i = 0; !bytes->put && i < len; i++) {
		if (text[i] < 0x20 || text[i] > 0x7e) {
			text[i] = '?';
		}
	}
}

#endif
