/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/mr_set.h"

#include "ib/mr.h"
#include "include/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	SIZE_FIRST = 64
};

static uintptr_t end_of(const struct ib_mr *mr)
{
	return mr->addr + mr->len_bytes;
}

/* How many begin at addr or before. */
static size_t count_to(const struct ib_mr_set *set, uintptr_t addr)
{
	size_t from = 0, to = set->count;

	while (from < to) {
		size_t mid = from + (to - from) / 2;

		if (set->slots[mid].addr <= addr) {
			from = mid + 1;
		} else {
			to = mid;
		}
	}
	return from;
}

/* The highest ends from `at` on, after a change there. */
static void ends_renew(struct ib_mr_set *set, size_t at)
{
	uintptr_t end_max = at > 0 ? set->slots[at - 1].end_max : 0;

	for (size_t i = at; i < set->count; i++) {
		uintptr_t end = end_of(set->slots[i].mr);

		end_max = end > end_max ? end : end_max;
		set->slots[i].end_max = end_max;
	}
}

static int grow(struct ib_mr_set *set)
{
	size_t size = set->size > 0 ? set->size * 2 : SIZE_FIRST;
	struct ib_mr_set_slot *slots = realloc(set->slots, size * sizeof(*slots));

	if (slots == NULL) {
		return -ENOMEM;
	}
	set->slots = slots;
	set->size = size;
	return 0;
}

int ib_mr_set_add(struct ib_mr_set *set, struct ib_mr *mr)
{
	size_t at = count_to(set, mr->addr);
	int rc = set->count == set->size ? grow(set) : 0;

	if (rc != 0) {
		return rc;
	}
	memmove(&set->slots[at + 1], &set->slots[at], (set->count - at) * sizeof(set->slots[0]));
	set->slots[at] = (struct ib_mr_set_slot){.addr = mr->addr, .mr = mr};
	set->count++;
	ends_renew(set, at);
	return 0;
}

void ib_mr_set_del(struct ib_mr_set *set, const struct ib_mr *mr)
{
	size_t at = count_to(set, mr->addr);

	do {
		ASSERT(at > 0);
		at--;
	} while (set->slots[at].mr != mr);
	set->count--;
	memmove(&set->slots[at], &set->slots[at + 1], (set->count - at) * sizeof(set->slots[0]));
	ends_renew(set, at);
}

struct ib_mr *ib_mr_set_find(const struct ib_mr_set *set, uintptr_t addr, size_t len_bytes,
			     ib_mr_set_fn fn, const void *arg)
{
	uintptr_t end = addr + len_bytes;

	for (size_t i = count_to(set, addr); i > 0 && set->slots[i - 1].end_max >= end; i--) {
		struct ib_mr *mr = set->slots[i - 1].mr;

		if (end_of(mr) >= end && fn(mr, arg)) {
			return mr;
		}
	}
	return NULL;
}

void ib_mr_set_clear(struct ib_mr_set *set)
{
	free(set->slots);
	*set = (struct ib_mr_set){.slots = NULL};
}
