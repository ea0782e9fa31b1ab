/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/mr.h"

#include "ib/mr_set.h"
#include "ib/verbs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * The lock guards the set, the reference counts and `busy` only. Verbs calls, which block for long
 * on a sick HCA, are made outside of it; two threads that miss at once register twice, which is
 * allowed. What is in the set is registered with the present device of each rail, or its renewal
 * is still to come or under way: it is put there only when no device was replaced meanwhile, looked
 * at under the lock, and a renewal walks the set after the device was replaced.
 */
struct ib_mr_cache {
	struct ib_rails *rails;
	uintptr_t page_bytes;
	pthread_mutex_t lock;
	struct ib_mr_set set;
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

/* With one device. mr NULL: it could not, or nothing was tried yet. */
struct registration {
	struct ib_device *device;
	struct ibv_mr *mr;
};

static void unregister(const struct ib_mr *mr, const struct registration *reg)
{
	int rc = reg->mr != NULL ? ib_verbs_dereg_mr(reg->mr) : 0;

	if (rc != 0) {
		LOG_INFO("device %s: deregistering %zu bytes: %s", reg->device->name, mr->len_bytes,
			 strerror(-rc));
	}
	ib_device_put(reg->device);
}

static void deregister(const struct ib_mr_cache *cache, struct ib_mr *mr)
{
	for (unsigned int i = 0; i < cache->rails->count; i++) {
		unregister(mr, &(struct registration){mr->devices[i], mr->mrs[i]});
	}
	if (mr->is_dmabuf && mr->dmabuf.fd >= 0) {
		(void)close(mr->dmabuf.fd);
	}
	free(mr);
}

void ib_mr_cache_destroy(struct ib_mr_cache *cache)
{
	unsigned int leak_count = 0;

	if (cache == NULL) {
		return;
	}
	for (size_t i = 0; i < cache->set.count; i++) {
		leak_count++;
		deregister(cache, cache->set.slots[i].mr);
	}
	ib_mr_set_clear(&cache->set);
	if (leak_count > 0) {
		LOG_INFO("%u memory registrations were never given back", leak_count);
	}
	(void)pthread_mutex_destroy(&cache->lock);
	free(cache);
}

static int register_rail(const struct ib_rail *rail, const struct mr_range *range,
			 struct registration *out)
{
	unsigned int access =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	*out = (struct registration){.device = ib_rail_device_get(rail)};
	if (atomic_load_explicit(&out->device->is_fatal, memory_order_acquire) ||
	    atomic_load_explicit(&out->device->state, memory_order_acquire) == IB_DEVICE_LEFT) {
		return -EIO;
	}
	if (rail->relaxed_ordering && !range->ordered) {
		access |= IBV_ACCESS_RELAXED_ORDERING;
	}
	if (range->dmabuf != NULL) {
		return ib_verbs_reg_dmabuf(out->device->pd, range->dmabuf, access, &out->mr);
	}
	/* an integer on purpose: aligning down may leave the object the caller's pointer is of */
	return ib_verbs_reg_mr(out->device->pd, (void *)range->addr, range->len_bytes, access,
			       &out->mr);
}

/* The keys of all rails of a device. Returns what was there before. */
static struct registration replace(const struct ib_rails *rails, unsigned int first,
				   struct ib_mr *mr, const struct registration *reg)
{
	struct registration before = {mr->devices[first], mr->mrs[first]};
	uint32_t bits = 0;

	for (unsigned int i = first; i < rails->count; i++) {
		if (rails->rails[i].first != first) {
			continue;
		}
		bits |= 1u << i;
		if (reg->mr != NULL) {
			atomic_store_explicit(&mr->lkeys[i], reg->mr->lkey, memory_order_relaxed);
			atomic_store_explicit(&mr->rkeys[i], reg->mr->rkey, memory_order_relaxed);
		}
	}
	mr->devices[first] = reg->device;
	mr->mrs[first] = reg->mr;
	if (reg->mr != NULL) {
		atomic_fetch_or_explicit(&mr->rail_mask, bits, memory_order_relaxed);
	} else {
		atomic_fetch_and_explicit(&mr->rail_mask, ~bits, memory_order_relaxed);
	}
	return before;
}

/* With the present device of a first rail, in place of what there was. */
static int register_device(const struct ib_rails *rails, unsigned int first,
			   const struct mr_range *range, struct ib_mr *mr)
{
	const struct ib_rail *rail = &rails->rails[first];
	struct registration reg, before;
	int rc = register_rail(rail, range, &reg);

	if (rc != 0) {
		LOG_WARN_LIMITED("rail %s: cannot register %zu bytes%s, it will not carry them: %s",
				 rail->label, range->len_bytes,
				 range->dmabuf != NULL ? " of a DMA-BUF" : "", strerror(-rc));
	}
	before = replace(rails, first, mr, &reg);
	unregister(mr, &before);
	return rc;
}

/* With the present device of every rail that can. 0, or the first error when none could. */
static int register_all(const struct ib_rails *rails, const struct mr_range *range,
			struct ib_mr *mr)
{
	int first_rc = rails->count == 0 ? -ENODEV : 0;

	for (unsigned int i = 0; i < rails->count; i++) {
		const struct ib_rail *rail = &rails->rails[i];
		int rc = 0;

		if (rail->first == i && !ib_rail_device_is(rail, mr->devices[i])) {
			rc = register_device(rails, i, range, mr);
		}
		first_rc = first_rc != 0 ? first_rc : rc;
	}
	return atomic_load_explicit(&mr->rail_mask, memory_order_relaxed) != 0 ? 0 : first_rc;
}

static bool serves(const struct ib_mr *mr, const void *arg)
{
	const struct mr_range *range = arg;

	return mr->ordered == range->ordered && mr->is_dmabuf == (range->dmabuf != NULL);
}

/* Takes a reference. */
static struct ib_mr *lookup(struct ib_mr_cache *cache, const struct mr_range *range)
{
	struct ib_mr *mr;

	pthread_mutex_lock(&cache->lock);
	mr = ib_mr_set_find(&cache->set, range->addr, range->len_bytes, serves, range);
	if (mr != NULL) {
		mr->ref_count++;
	}
	pthread_mutex_unlock(&cache->lock);
	return mr;
}

/* False when a device was replaced while it was registered; else 0 or -ENOMEM in *rc. */
static bool insert(struct ib_mr_cache *cache, struct ib_mr *mr, int *rc)
{
	const struct ib_rails *rails = cache->rails;
	bool is_present = true;

	pthread_mutex_lock(&cache->lock);
	for (unsigned int i = 0; i < rails->count; i++) {
		const struct ib_rail *rail = &rails->rails[i];

		is_present =
			is_present && (rail->first != i || ib_rail_device_is(rail, mr->devices[i]));
	}
	if (is_present) {
		*rc = ib_mr_set_add(&cache->set, mr);
	}
	pthread_mutex_unlock(&cache->lock);
	return is_present;
}

static struct ib_mr *mr_create(const struct mr_range *range)
{
	struct ib_mr *mr = calloc(1, sizeof(*mr));

	if (mr == NULL) {
		return NULL;
	}
	mr->addr = range->addr;
	mr->len_bytes = range->len_bytes;
	mr->ordered = range->ordered;
	mr->ref_count = 1;
	if (range->dmabuf != NULL) {
		mr->is_dmabuf = true;
		mr->dmabuf = *range->dmabuf;
		mr->dmabuf.fd = fcntl(range->dmabuf->fd, F_DUPFD_CLOEXEC, 0);
	}
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
	mr = mr_create(range);
	if (mr == NULL) {
		return -ENOMEM;
	}
	do {
		rc = register_all(cache->rails, range, mr);
	} while (rc == 0 && !insert(cache, mr, &rc));
	if (rc != 0) {
		deregister(cache, mr);
		return rc;
	}
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
	bool last;

	if (mr == NULL) {
		return;
	}
	pthread_mutex_lock(&cache->lock);
	ASSERT(mr->ref_count > 0);
	last = --mr->ref_count == 0;
	if (last) {
		ib_mr_set_del(&cache->set, mr);
		last = mr->busy == 0; /* else the renewal ends it */
	}
	pthread_mutex_unlock(&cache->lock);
	if (last) {
		deregister(cache, mr);
	}
}

/* One that is not with the device yet, from place *at on and round to it. Lock held. */
static struct ib_mr *find_stale(const struct ib_mr_cache *cache, unsigned int first,
				const struct ib_device *device, size_t *at)
{
	for (size_t i = 0; i < cache->set.count; i++) {
		size_t place = (*at + i) % cache->set.count;

		if (cache->set.slots[place].mr->devices[first] != device) {
			*at = place; /* others come and go before the next look */
			return cache->set.slots[place].mr;
		}
	}
	return NULL;
}

void ib_mr_cache_renew(struct ib_mr_cache *cache, unsigned int first, struct ib_mr_renewed *out)
{
	struct ib_device *device = ib_rail_device_get(&cache->rails->rails[first]);
	struct ib_mr *mr;
	size_t at = 0;

	*out = (struct ib_mr_renewed){.count = 0};
	pthread_mutex_lock(&cache->lock);
	while ((mr = find_stale(cache, first, device, &at)) != NULL) {
		const struct mr_range range = {.addr = mr->addr,
					       .len_bytes = mr->len_bytes,
					       .ordered = mr->ordered,
					       .dmabuf = mr->is_dmabuf ? &mr->dmabuf : NULL};
		bool is_orphan;

		mr->busy |= 1u << first;
		pthread_mutex_unlock(&cache->lock);
		if (register_device(cache->rails, first, &range, mr) == 0) {
			out->count++;
		} else {
			out->failed_count++;
		}
		pthread_mutex_lock(&cache->lock);
		mr->busy &= ~(1u << first);
		is_orphan = mr->ref_count == 0 && mr->busy == 0;
		if (is_orphan) {
			pthread_mutex_unlock(&cache->lock);
			deregister(cache, mr);
			pthread_mutex_lock(&cache->lock);
		}
	}
	pthread_mutex_unlock(&cache->lock);
	ib_device_put(device);
}
