/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/codec.h"

#include "oob/crc32c.h"

#include <errno.h>

enum {
	HEAD_SEQ_AT = 20,
	HEAD_CRC_AT = 36,
	MAGIC_BYTES = 4
};

static void head_move(struct oob_bytes *bytes, uint32_t *magic, uint16_t *flags,
		      struct oob_head *head)
{
	oob_bytes_u32(bytes, magic);
	oob_bytes_u32(bytes, &head->body_bytes);
	oob_bytes_u16(bytes, &head->type);
	oob_bytes_u16(bytes, flags);
	oob_bytes_u64(bytes, &head->dst_comm);
	oob_bytes_u64(bytes, &head->seq);
	oob_bytes_u64(bytes, &head->ack);
	oob_bytes_u32(bytes, &head->crc);
}

static uint32_t frame_crc(const uint8_t *buf, size_t len_bytes)
{
	uint32_t crc = oob_crc32c(0, buf, HEAD_CRC_AT);

	return oob_crc32c(crc, buf + OOB_HEAD_BYTES, len_bytes - OOB_HEAD_BYTES);
}

int oob_codec_put(const struct frame *frame, uint8_t *buf, size_t *len_bytes)
{
	struct frame copy = *frame;
	struct oob_bytes body = {
		.pos = buf + OOB_HEAD_BYTES, .end = buf + OOB_FRAME_MAX_BYTES, .put = true};
	struct oob_bytes bytes = {.pos = buf, .end = buf + OOB_HEAD_BYTES, .put = true};
	struct oob_head head = {.dst_comm = frame->dst_comm};
	uint32_t magic = OOB_MAGIC;
	uint16_t flags = 0;

	if ((unsigned)frame->type >= FRAME_TYPE_COUNT) {
		return -EINVAL;
	}
	oob_codec_body(&body, &copy);
	if (body.bad) {
		return -EINVAL;
	}
	head.type = (uint16_t)frame->type;
	head.body_bytes = (uint32_t)(body.pos - (buf + OOB_HEAD_BYTES));
	head_move(&bytes, &magic, &flags, &head);
	*len_bytes = OOB_HEAD_BYTES + head.body_bytes;
	return 0;
}

void oob_codec_seal(uint8_t *buf, size_t len_bytes, uint64_t seq, uint64_t ack)
{
	struct oob_bytes numbers = {
		.pos = buf + HEAD_SEQ_AT, .end = buf + HEAD_CRC_AT, .put = true};
	struct oob_bytes check = {
		.pos = buf + HEAD_CRC_AT, .end = buf + OOB_HEAD_BYTES, .put = true};
	uint32_t crc;

	oob_bytes_u64(&numbers, &seq);
	oob_bytes_u64(&numbers, &ack);
	crc = frame_crc(buf, len_bytes);
	oob_bytes_u32(&check, &crc);
}

int oob_codec_head(const uint8_t *buf, size_t len_bytes, struct oob_head *head)
{
	/* the direction is "get", so nothing is written through these */
	struct oob_bytes bytes = {.pos = (uint8_t *)(uintptr_t)buf,
				  .end = (uint8_t *)(uintptr_t)buf + OOB_HEAD_BYTES};
	struct oob_head read = {0};
	uint32_t magic = 0;
	uint16_t flags = 0;

	for (size_t i = 0; i < MAGIC_BYTES && i < len_bytes; i++) {
		if (buf[i] != (uint8_t)(OOB_MAGIC >> (8 * i))) {
			return -EPROTO;
		}
	}
	if (len_bytes < OOB_HEAD_BYTES) {
		return -EAGAIN;
	}
	head_move(&bytes, &magic, &flags, &read);
	if (read.body_bytes > OOB_BODY_MAX_BYTES || flags != 0 || read.type >= FRAME_TYPE_COUNT ||
	    (read.type == FRAME_NONE && read.body_bytes != 0)) {
		return -EBADMSG;
	}
	*head = read;
	return 0;
}

int oob_codec_get(const uint8_t *buf, const struct oob_head *head, struct frame *frame)
{
	size_t len_bytes = OOB_HEAD_BYTES + head->body_bytes;
	struct oob_bytes body = {.pos = (uint8_t *)(uintptr_t)buf + OOB_HEAD_BYTES,
				 .end = (uint8_t *)(uintptr_t)buf + len_bytes};

	if (frame_crc(buf, len_bytes) != head->crc) {
		return -EBADMSG;
	}
	memset(frame, 0, sizeof(*frame));
	frame->type = (enum frame_type)head->type;
	frame->dst_comm = head->dst_comm;
	oob_codec_body(&body, frame);
	return body.bad || body.pos != body.end ? -EBADMSG : 0;
}

const char *oob_codec_name(enum frame_type type)
{
	static const char *const names[] = {"ACK",
#define FRAME_NAME(name) #name,
					    FRAME_LIST(FRAME_NAME)
#undef FRAME_NAME
	};

	return (unsigned)type < FRAME_TYPE_COUNT ? names[type] : "unknown";
}
