/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_CODEC_H
#define BRAID_OOB_CODEC_H

#include "include/frame.h"
#include "oob/bytes.h"

#include <stddef.h>
#include <stdint.h>

/**
 * Frames as bytes on a link, little-endian:
 *
 *   0        4        8      10      12         20     28     36      40
 *   | magic  | length | type | flags | dst_comm | seq  | ack  | crc   | body (length bytes)
 *
 * length counts the body only. flags is 0. seq and ack: see oob/queue.h. crc is CRC-32C over
 * bytes 0..35 and the body. A frame of type FRAME_NONE has no body and carries an ack only.
 */
enum {
	OOB_HEAD_BYTES = 40,
	OOB_BODY_MAX_BYTES = 4096,
	OOB_FRAME_MAX_BYTES = OOB_HEAD_BYTES + OOB_BODY_MAX_BYTES
};

#define OOB_MAGIC 0x44495242u /* "BRID" in this byte order */

struct oob_head {
	uint32_t body_bytes;
	uint16_t type; /* below FRAME_TYPE_COUNT */
	uint64_t dst_comm;
	uint64_t seq; /* 0: not numbered */
	uint64_t ack;
	uint32_t crc;
};

/**
 * Encode into buf of OOB_FRAME_MAX_BYTES; *len_bytes is set on success. Seal it before it leaves.
 * FRAME_NONE makes a bare ack. 0, or -EINVAL when a count, index or type is out of range.
 * Any thread.
 */
int oob_codec_put(const struct frame *frame, uint8_t *buf, size_t *len_bytes);

/** Write seq, ack and crc into an encoded frame of len_bytes. Any thread. */
void oob_codec_seal(uint8_t *buf, size_t len_bytes, uint64_t seq, uint64_t ack);

/**
 * Look at the head of what has arrived. 0, -EAGAIN while it is incomplete, -EPROTO when the magic
 * is wrong (said as soon as the bytes that are there differ), -EBADMSG when the head cannot be
 * right (length, type or flags). Any thread.
 */
int oob_codec_head(const uint8_t *buf, size_t len_bytes, struct oob_head *head);

/**
 * Decode the whole frame at buf, OOB_HEAD_BYTES + head->body_bytes long. 0, -EBADMSG when the crc
 * is wrong, or a count, index, enum or length does not fit, or bytes are left over. Of a HELLO of
 * another version only the version is filled in. *frame is all zero beyond what was read, and
 * unspecified after an error. Any thread.
 */
int oob_codec_get(const uint8_t *buf, const struct oob_head *head, struct frame *frame);

/** Name of a frame type for log lines. */
const char *oob_codec_name(enum frame_type type);

/** Move one body between bytes and frame, by frame->type. Used by the functions above. */
void oob_codec_body(struct oob_bytes *bytes, struct frame *frame);

#endif
