/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_MR_SET_H
#define BRAID_IB_MR_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ib_mr;

/**
 * Memory registrations, to be found by address: an array sorted by where they begin, each entry
 * with the highest end up to it, so that a search stops where nothing earlier reaches far enough.
 * Finding takes a binary search where registrations do not overlap; adding and deleting move what
 * lies behind. Zeroed is empty. No lock: the owner's.
 */
struct ib_mr_set {
	struct ib_mr_set_slot {
		uintptr_t addr, end_max;
		struct ib_mr *mr;
	} * slots;
	size_t count, size;
};

/** 0 or -ENOMEM. The same range may be in it any number of times. */
int ib_mr_set_add(struct ib_mr_set *set, struct ib_mr *mr);
/** mr is in it. */
void ib_mr_set_del(struct ib_mr_set *set, const struct ib_mr *mr);

/** Does it do for the caller, besides covering the range? */
typedef bool (*ib_mr_set_fn)(const struct ib_mr *mr, const void *arg);

/** One that covers [addr, addr + len_bytes) and that fn accepts, or NULL. */
struct ib_mr *ib_mr_set_find(const struct ib_mr_set *set, uintptr_t addr, size_t len_bytes,
			     ib_mr_set_fn fn, const void *arg);
/** Give its memory back. */
void ib_mr_set_clear(struct ib_mr_set *set);

#endif
