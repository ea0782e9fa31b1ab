/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_OOB_DECODE_H
#define BRAID_TEST_OOB_DECODE_H

#include "oob/codec.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/** Decode len_bytes from a heap block of exactly that size, so that ASan sees any step beyond. */
static inline int decode(const uint8_t *bytes, size_t len_bytes, struct oob_head *head,
			 struct frame *frame)
{
	uint8_t *block = malloc(len_bytes > 0 ? len_bytes : 1);
	int err;

	assert_non_null(block);
	memcpy(block, bytes, len_bytes);
	err = oob_codec_head(block, len_bytes, head);
	if (err == 0 && OOB_HEAD_BYTES + (size_t)head->body_bytes > len_bytes) {
		err = -EAGAIN;
	}
	if (err == 0) {
		err = oob_codec_get(block, head, frame);
	}
	free(block);
	return err;
}

#endif
