/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/mr.h"

#include "ib/verbs.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * The lock guards the list and the reference counts only. Verbs calls, which block for long on a
 * sick HCA, are made outside of it; two threads that miss at once register twice, which is allowed.
 */
struct ib_mr_cache {
	struct ib_rails *rails;
	uintptr_t page_bytes;
	pthread_mutex_t lock;
	struct ib_mr *head;
};

static_assert(RAILS_MAX <= 32, "rail_mask has 32 bits");

/* What is to be registered: a page-aligned range. */
struct mr_range {
	uintptr_t addr;
	size_t len_bytes;
	bool ordered;
	const struct ib_dmabuf *dmabuf; /* NULL: ordinary memory */
};

int ib_mr_cache_create(struct ib_rails *rails, struct ib_mr_cache **out)
{
	struct ib_mr_cache *cache = calloc(1, sizeof(*cache));
	int rc;

	if (cache == NULL) {
		return -ENOMEM;
	}
	rc = pthread_mutex_init(&cache->lock, NULL);
	if (rc != 0) {
		free(cache);
		return -rc;
	}
	cache->rails = rails;
	cache->page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	*out = cache;
	return 0;
}

static void deregister(const struct ib_mr_cache *cache, struct ib_mr *mr)
{
	for (unsigned int i = 0; i < cache->rails->count; i++) {
		int rc = mr->mrs[i] != NULL ? ib_verbs_dereg_mr(mr->mrs[i]) : 0;

		if (rc != 0) {
			LOG_INFO("rail %s: deregistering %zu bytes: %s",
				 cache->rails->rails[i].label, mr->len_bytes, strerror(-rc));
		}
	}
	free(mr);
}

void ib_mr_cache_destroy(struct ib_mr_cache *cache)
{
	unsigned int leak_count = 0;

	if (cache == NULL) {
		return;
	}
	while (cache->head != NULL) {
		struct ib_mr *mr = cache->head;

		cache->head = mr->next;
		leak_count++;
		deregister(cache, mr);
	}
	if (leak_count > 0) {
		LOG_INFO("%u memory registrations were never given back", leak_count);
	}
	(void)pthread_mutex_destroy(&cache->lock);
	free(cache);
}

/* Rail of the same device before this one, whose registration serves both; -1 none. */
static int shared_rail(const struct ib_rails *rails, unsigned int idx)
{
	for (unsigned int i = 0; i < idx; i++) {
		if (rails->rails[i].pd == rails->rails[idx].pd) {
			return (int)i;
		}
	}
	return -1;
}

static int register_rail(const struct ib_rail *rail, const struct mr_range *range,
			 struct ibv_mr **out)
{
	unsigned int access =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	if (atomic_load_explicit(&rail->device_fatal, memory_order_acquire)) {
		return -EIO;
	}
	if (rail->relaxed_ordering && !range->ordered) {
		access |= IBV_ACCESS_RELAXED_ORDERING;
	}
	if (range->dmabuf != NULL) {
		return ib_verbs_reg_dmabuf(rail->pd, range->dmabuf, access, out);
	}
	/* an integer on purpose: aligning down may leave the object the caller's pointer is of */
	return ib_verbs_reg_mr(rail->pd, (void *)range->addr, range->len_bytes, access, out);
}

/* On every rail that can. 0, or the first error when none could. */
static int register_all(const struct ib_rails *rails, const struct mr_range *range,
			struct ib_mr *mr)
{
	int first_rc = rails->count == 0 ? -ENODEV : 0;

	for (unsigned int i = 0; i < rails->count; i++) {
		int shared = shared_rail(rails, i);
		int rc;

		if (shared >= 0) {
			mr->lkeys[i] = mr->lkeys[shared];
			mr->rkeys[i] = mr->rkeys[shared];
			mr->rail_mask |= (mr->rail_mask >> shared & 1u) << i;
			continue;
		}
		rc = register_rail(&rails->rails[i], range, &mr->mrs[i]);
		if (rc != 0) {
			first_rc = first_rc != 0 ? first_rc : rc;
			LOG_WARN_LIMITED("rail %s: cannot register %zu bytes%s, it will not carry "
					 "them: %s",
					 rails->rails[i].label, range->len_bytes,
					 range->dmabuf != NULL ? " of a DMA-BUF" : "",
					 strerror(-rc));
			continue;
		}
		mr->lkeys[i] = mr->mrs[i]->lkey;
		mr->rkeys[i] = mr->mrs[i]->rkey;
		mr->rail_mask |= 1u << i;
	}
	return mr->rail_mask != 0 ? 0 : first_rc;
}

static bool covers(const struct ib_mr *mr, const struct mr_range *range)
{
	return mr->addr <= range->addr && range->len_bytes <= mr->len_bytes &&
	       range->addr - mr->addr <= mr->len_bytes - range->len_bytes &&
	       mr->ordered == range->ordered && mr->dmabuf == (range->dmabuf != NULL);
}

/* Takes a reference. */
static struct ib_mr *lookup(struct ib_mr_cache *cache, const struct mr_range *range)
{
	struct ib_mr *mr;

	pthread_mutex_lock(&cache->lock);
	for (mr = cache->head; mr != NULL && !covers(mr, range); mr = mr->next) {
	}
	if (mr != NULL) {
		mr->ref_count++;
	}
	pthread_mutex_unlock(&cache->lock);
	return mr;
}

static int get(struct ib_mr_cache *cache, const struct mr_range *range, struct ib_mr **out)
{
	struct ib_mr *mr = lookup(cache, range);
	int rc;

	if (mr != NULL) {
		*out = mr;
		return 0;
	}
	mr = calloc(1, sizeof(*mr));
	if (mr == NULL) {
		return -ENOMEM;
	}
	mr->addr = range->addr;
	mr->len_bytes = range->len_bytes;
	mr->ordered = range->ordered;
	mr->dmabuf = range->dmabuf != NULL;
	mr->ref_count = 1;
	rc = register_all(cache->rails, range, mr);
	if (rc != 0) {
		free(mr);
		return rc;
	}
	pthread_mutex_lock(&cache->lock);
	mr->next = cache->head;
	cache->head = mr;
	pthread_mutex_unlock(&cache->lock);
	*out = mr;
	return 0;
}

/* Whole pages around [addr, addr + len). -EINVAL: empty, or beyond the end of memory. */
static int align_range(const struct ib_mr_cache *cache, const void *addr, size_t len_bytes,
		       struct mr_range *out)
{
	uintptr_t mask = cache->page_bytes - 1;
	uintptr_t start = (uintptr_t)addr;
	uintptr_t end;

	if (len_bytes == 0 || start > UINTPTR_MAX - mask ||
	    len_bytes > UINTPTR_MAX - mask - start) {
		return -EINVAL;
	}
	end = (start + len_bytes + mask) & ~mask;
	out->addr = start & ~mask;
	out->len_bytes = end - out->addr;
	return 0;
}

int ib_mr_get(struct ib_mr_cache *cache, void *addr, size_t len_bytes, bool ordered,
	      struct ib_mr **out)
{
	struct mr_range range = {.ordered = ordered};
	int rc = align_range(cache, addr, len_bytes, &range);

	return rc != 0 ? rc : get(cache, &range, out);
}

int ib_mr_get_dmabuf(struct ib_mr_cache *cache, void *addr, size_t len_bytes, uint64_t offset_bytes,
		     int fd, struct ib_mr **out)
{
	struct ib_dmabuf buf = {.fd = fd};
	struct mr_range range = {.dmabuf = &buf};
	int rc = align_range(cache, addr, len_bytes, &range);
	uintptr_t head_bytes;

	if (rc != 0) {
		return rc;
	}
	head_bytes = (uintptr_t)addr - range.addr;
	if (offset_bytes < head_bytes) {
		/* the page's start is not in the buffer */
		range.addr = (uintptr_t)addr;
		range.len_bytes = len_bytes;
		head_bytes = 0;
	}
	buf.offset_bytes = offset_bytes - head_bytes;
	buf.iova = range.addr;
	buf.len_bytes = range.len_bytes;
	return ib_verbs_has_dmabuf() ? get(cache, &range, out) : -EOPNOTSUPP;
}

void ib_mr_put(struct ib_mr_cache *cache, struct ib_mr *mr)
{
	struct ib_mr **link;
	bool last;

	if (mr == NULL) {
		return;
	}
	pthread_mutex_lock(&cache->lock);
	ASSERT(mr->ref_count > 0);
	last = --mr->ref_count == 0;
	if (last) {
		for (link = &cache->head; *link != mr; link = &(*link)->next) {
		}
		*link = mr->next;
	}
	pthread_mutex_unlock(&cache->lock);
	if (last) {
		deregister(cache, mr);
	}
}
