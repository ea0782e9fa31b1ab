/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a peer on a link. What decodes must encode again, and decode to the same. */
#include "oob/codec.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

/* The fuzzer would never guess a CRC: it is put right for it, as a hostile peer would. */
static void seal(uint8_t *copy, size_t len_bytes)
{
	if (len_bytes >= OOB_HEAD_BYTES) {
		oob_codec_seal(copy, len_bytes, 1, 0);
	}
}

static void check_again(const struct frame *frame)
{
	uint8_t bytes[OOB_FRAME_MAX_BYTES];
	struct oob_head head;
	struct frame again;
	size_t len_bytes = 0;

	if (oob_codec_put(frame, bytes, &len_bytes)) {
		abort();
	}
	oob_codec_seal(bytes, len_bytes, 1, 0);
	if (oob_codec_head(bytes, len_bytes, &head) || oob_codec_get(bytes, &head, &again) ||
	    again.type != frame->type) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	struct oob_head head;
	struct frame frame;
	uint8_t *copy = malloc(len_bytes ? len_bytes : 1);

	if (!copy) {
		return 0;
	}
	memcpy(copy, data, len_bytes);
	seal(copy, len_bytes);
	if (oob_codec_head(copy, len_bytes, &head) == 0 &&
	    len_bytes >= OOB_HEAD_BYTES + (size_t)head.body_bytes &&
	    oob_codec_get(copy, &head, &frame) == 0 && frame.type != FRAME_NONE) {
		/* of another version's HELLO only the version was read */
		if (frame.type != FRAME_HELLO || frame.hello.version == PROTO_VERSION) {
			check_again(&frame);
		}
	}
	free(copy);
	return 0;
}
