/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/guarded.h"

#include "test/driver/data.h"

#include <errno.h>
#include <sys/mman.h>

int guarded_create(struct guarded *buf, size_t cap_bytes)
{
	size_t map_bytes = (cap_bytes + 3 * GUARD_BYTES - 1) / GUARD_BYTES * GUARD_BYTES;
	void *map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (map == MAP_FAILED) {
		return -ENOMEM;
	}
	*buf = (struct guarded){.map = map,
				.map_bytes = map_bytes,
				.data = (unsigned char *)map + GUARD_BYTES,
				.cap_bytes = cap_bytes};
	guarded_arm(buf, 0);
	return 0;
}

void guarded_destroy(struct guarded *buf)
{
	if (buf->map) {
		munmap(buf->map, buf->map_bytes);
		*buf = (struct guarded){0};
	}
}

void guarded_arm(struct guarded *buf, size_t len_bytes)
{
	buf->len_bytes = len_bytes;
	data_poison(buf->map, GUARD_BYTES, DATA_GUARD);
	data_poison(buf->data + len_bytes, GUARD_BYTES, DATA_GUARD);
}

size_t guarded_check(struct guarded *buf, int64_t *at_bytes)
{
	size_t first_bytes = 0;
	size_t rear = data_poison_check(buf->data + buf->len_bytes, GUARD_BYTES, DATA_GUARD,
					&first_bytes);

	if (rear) {
		*at_bytes = (int64_t)(buf->len_bytes + first_bytes);
	}
	size_t front = data_poison_check(buf->map, GUARD_BYTES, DATA_GUARD, &first_bytes);

	if (front) {
		*at_bytes = (int64_t)first_bytes - GUARD_BYTES;
	}
	if (front + rear) {
		guarded_arm(buf, buf->len_bytes);
	}
	return front + rear;
}
