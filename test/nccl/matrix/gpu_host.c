/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/gpu.h"

#include <errno.h>
#include <stdlib.h>

/* Host memory for the GPU's, and everything done on return: for the self-tests. */

static int stream_place; /* NCCL's stand-in does not look at it */

int gpu_open(int rank)
{
	return rank >= 0 ? 0 : -ENODEV;
}

int gpu_alloc(size_t len_bytes, void **ptr)
{
	*ptr = malloc(len_bytes);
	return *ptr != NULL ? 0 : -ENOMEM;
}

void gpu_free(void *ptr)
{
	free(ptr);
}

int gpu_stream_create(void **stream)
{
	*stream = &stream_place;
	return 0;
}

void gpu_stream_destroy(void *stream)
{
	(void)stream;
}

int gpu_stream_poll(void *stream)
{
	(void)stream;
	return 0;
}

int gpu_stream_wait(void *stream)
{
	(void)stream;
	return 0;
}

int gpu_fill(void *buf, uint64_t count, const struct value_spec *spec,
	     const struct value_want *from, void *stream)
{
	(void)stream;
	for (uint64_t i = 0; i < count; i++) {
		value_put(spec->type, buf, i, value_wanted(spec, from, i));
	}
	return 0;
}

int gpu_set(void *buf, int byte, size_t len_bytes, void *stream)
{
	(void)stream;
	memset(buf, byte, len_bytes);
	return 0;
}

static void note_wrong(struct gpu_wrong *wrong, uint64_t idx)
{
	wrong->first = wrong->count == 0 ? idx : wrong->first;
	wrong->last = idx;
	wrong->count++;
}

int gpu_check(const void *buf, uint64_t count, const struct value_spec *spec,
	      const struct value_want *want, void *stream, struct gpu_wrong *wrong)
{
	(void)stream;
	memset(wrong, 0, sizeof(*wrong));
	for (uint64_t i = 0; i < count; i++) {
		if (!value_is_right(spec, want, buf, i)) {
			note_wrong(wrong, i);
		}
	}
	return 0;
}

int gpu_check_set(const void *buf, int byte, size_t len_bytes, void *stream,
		  struct gpu_wrong *wrong)
{
	(void)stream;
	memset(wrong, 0, sizeof(*wrong));
	for (size_t i = 0; i < len_bytes; i++) {
		if (((const unsigned char *)buf)[i] != byte) {
			note_wrong(wrong, i);
		}
	}
	return 0;
}

int gpu_read(const void *buf, void *to, size_t len_bytes, void *stream)
{
	(void)stream;
	memcpy(to, buf, len_bytes);
	return 0;
}
