/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/reopen.h"

#include "ib/pci.h"
#include "ib/port.h"
#include "include/clock.h"

#include <errno.h>
#include <string.h>

enum {
	LOOK_MS = 100 /* the paths of hundreds of connections would each look for themselves */
};

static bool is_fatal(const struct ib_device *device)
{
	return atomic_load_explicit(&device->is_fatal, memory_order_acquire);
}

/* Does any port of the rails on this device work? Verbs are not asked about a failed one. */
static bool has_active_port(const struct ib_rail *rail, const struct ib_device *device)
{
	const struct ib_rails *rails = rail->rails;

	for (unsigned int i = rail->first; i < rails->count && !is_fatal(device); i++) {
		struct ibv_port_attr attr;
		uint32_t speed_mbps;

		if (rails->rails[i].first == rail->first &&
		    ib_verbs_query_port(device->ctx, rails->rails[i].port, &attr, &speed_mbps) ==
			    0 &&
		    attr.state == IBV_PORT_ACTIVE) {
			return true;
		}
	}
	return false;
}

/* Another rail's, or this one's unless it failed: a driver may bring back the same. */
static bool is_open(const struct ib_rail *rail, const struct ibv_device *candidate)
{
	const struct ib_rails *rails = rail->rails;
	bool is_one = false;

	for (unsigned int i = 0; i < rails->count && !is_one; i++) {
		struct ib_device *device = ib_rail_device_get(&rails->rails[i]);

		is_one = device->ctx->device == candidate &&
			 (rails->rails[i].first != rail->first || !is_fatal(device));
		ib_device_put(device);
	}
	return is_one;
}

/* The same card under whatever name, else another one that has taken its name. */
static struct ibv_device *find(const struct ib_rail *rail, const struct ib_device *before,
			       struct ibv_device **list, int count)
{
	struct ibv_device *namesake = NULL;

	for (int i = 0; i < count; i++) {
		if (is_open(rail, list[i])) {
			continue;
		}
		if (before->attr.node_guid != 0 &&
		    ib_verbs_device_guid(list[i]) == before->attr.node_guid) {
			return list[i];
		}
		if (strcmp(ib_verbs_device_name(list[i]), before->name) == 0) {
			namesake = list[i];
		}
	}
	return namesake;
}

/* One thread at a time, and not too often. */
static bool may_look(struct ib_device *before, uint64_t now_ns)
{
	uint64_t looked_ns = atomic_load_explicit(&before->looked_ns, memory_order_relaxed);

	return now_ns - looked_ns >= LOOK_MS * NS_PER_MS &&
	       atomic_compare_exchange_strong_explicit(&before->looked_ns, &looked_ns, now_ns,
						       memory_order_relaxed, memory_order_relaxed);
}

int ib_reopen_begin(struct ib_rail *rail, struct ib_reopen *out)
{
	struct ib_reopen reopen = {.rail = rail, .began_ns = clock_mono_ns()};
	int used = IB_DEVICE_USED;
	int count, rc;

	reopen.before = ib_rail_device_get(rail);
	rc = -EAGAIN;
	if (!may_look(reopen.before, reopen.began_ns)) {
		goto put_before;
	}
	rc = -ENODEV;
	if (has_active_port(rail, reopen.before)) {
		goto put_before;
	}
	rc = ib_verbs_get_devices(&reopen.list, &count);
	if (rc != 0) {
		goto put_before;
	}
	rc = -ENODEV;
	reopen.found = find(rail, reopen.before, reopen.list, count);
	if (reopen.found == NULL) {
		goto free_list;
	}
	/* acquire and release: who makes something with it sees that, or is seen by the caller */
	rc = -EBUSY;
	if (!atomic_compare_exchange_strong_explicit(&reopen.before->state, &used, IB_DEVICE_LEFT,
						     memory_order_acq_rel, memory_order_relaxed)) {
		goto free_list;
	}
	*out = reopen;
	return 0;

free_list:
	ib_verbs_free_devices(reopen.list);
put_before:
	ib_device_put(reopen.before);
	return rc;
}

void ib_reopen_cancel(struct ib_reopen *reopen)
{
	atomic_store_explicit(&reopen->before->state, IB_DEVICE_USED, memory_order_release);
	ib_verbs_free_devices(reopen->list);
	ib_device_put(reopen->before);
}

/* All that its rails need of it, and the asking one's port can be used. */
static const char *check(const struct ib_reopen *reopen, const struct braid_config *cfg,
			 const struct ib_device *made)
{
	const struct ib_rails *rails = reopen->rail->rails;
	struct gid_port port = {.ctx = made->ctx,
				.device = made->name,
				.sysfs_root = PCI_SYSFS_ROOT,
				.port = reopen->rail->port};
	const union ibv_gid *keep = NULL;
	struct ib_rail_addr addr;
	struct port_state state;
	const char *why;

	for (unsigned int i = reopen->rail->first; i < rails->count; i++) {
		if (rails->rails[i].first == reopen->rail->first &&
		    rails->rails[i].port > made->attr.phys_port_cnt) {
			return "it has fewer ports";
		}
	}
	/* as ib_rail_refresh() will: the address may be at another place of the table than usual */
	ib_rail_addr_get(reopen->rail, &addr);
	if (atomic_load_explicit(&reopen->rail->is_read, memory_order_acquire)) {
		keep = &addr.gid;
	}
	why = ib_port_read(&port, cfg, keep, &state);
	if (why == NULL && state.inactive != NULL) {
		why = state.inactive;
	}
	if (why == NULL && state.link_layer != reopen->rail->link_layer) {
		why = "its link layer is another one";
	}
	return why;
}

/* A device that can be used, in state PREPARED. */
static int open_found(const struct ib_reopen *reopen, const struct braid_config *cfg,
		      struct ib_device **out)
{
	struct ib_device *made;
	const char *why;
	int rc = ib_device_open(reopen->found, &made, &why);

	if (rc == 0) {
		rc = ib_device_alloc_pd(made);
		why = rc != 0 ? "no protection domain" : check(reopen, cfg, made);
		rc = why != NULL && rc == 0 ? -ENETDOWN : rc;
		if (rc != 0) {
			ib_device_put(made);
		}
	}
	if (rc != 0) {
		/* relaxed: at worst the same is said twice */
		if (atomic_exchange_explicit(&reopen->rail->out_why, why, memory_order_relaxed) !=
		    why) {
			LOG_INFO("rail %s: device %s is there, but cannot be used yet: %s: %s",
				 reopen->rail->label, ib_verbs_device_name(reopen->found), why,
				 strerror(-rc));
		}
		return rc;
	}
	atomic_store_explicit(&made->state, IB_DEVICE_PREPARED, memory_order_relaxed);
	*out = made;
	return 0;
}

/* Each of its rails has a reference. */
static void take_over(const struct ib_reopen *reopen, struct ib_device *made)
{
	struct ib_rails *rails = reopen->rail->rails;

	for (unsigned int i = reopen->rail->first; i < rails->count; i++) {
		struct ib_rail *rail = &rails->rails[i];

		if (rail->first != reopen->rail->first) {
			continue;
		}
		pthread_mutex_lock(&rails->lock);
		rail->device = ib_device_hold(made);
		pthread_mutex_unlock(&rails->lock);
		/* until ib_rail_refresh() has looked at it */
		atomic_store_explicit(&rail->port_up, false, memory_order_release);
		ib_device_put(reopen->before);
	}
}

int ib_reopen_finish(struct ib_reopen *reopen, const struct braid_config *cfg,
		     struct ib_mr_cache *cache)
{
	struct ib_mr_renewed renewed;
	struct ib_device *made = NULL;
	int rc = open_found(reopen, cfg, &made);

	if (rc != 0) {
		ib_reopen_cancel(reopen);
		return rc;
	}
	take_over(reopen, made);
	ib_mr_cache_renew(cache, reopen->rail->first, &renewed);
	/* release: the keys of all that is registered are there */
	atomic_store_explicit(&made->state, IB_DEVICE_USED, memory_order_release);
	LOG_WARN("rail %s: its device %s %s and was opened again as %s: %u registrations made "
		 "anew, %u could not be, %llu us",
		 reopen->rail->label, reopen->before->name,
		 is_fatal(reopen->before) ? "had failed" : "was replaced", made->name,
		 renewed.count, renewed.failed_count,
		 (unsigned long long)(clock_mono_ns() - reopen->began_ns) / 1000);
	ib_verbs_free_devices(reopen->list);
	ib_device_put(reopen->before);
	ib_device_put(made);
	return 0;
}
