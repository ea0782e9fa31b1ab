/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/device.h"

#include "ib/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint32_t last_id;

/* Events are taken by a loop that must not block in the library. */
static int events_nonblocking(const struct ibv_context *ctx)
{
	int flags = fcntl(ctx->async_fd, F_GETFL);

	if (flags < 0 || fcntl(ctx->async_fd, F_SETFL, flags | O_NONBLOCK) < 0) {
		return -errno;
	}
	return 0;
}

int ib_device_open(struct ibv_device *device, struct ib_device **out, const char **what)
{
	struct ib_device *made = calloc(1, sizeof(*made));
	int rc;

	*what = "cannot open it";
	if (made == NULL) {
		return -ENOMEM;
	}
	rc = ib_verbs_open_device(device, &made->ctx);
	if (rc != 0) {
		goto free_made;
	}
	*what = "it does not answer";
	rc = ib_verbs_query_device(made->ctx, &made->attr);
	if (rc == 0) {
		rc = events_nonblocking(made->ctx);
	}
	if (rc != 0) {
		goto close_ctx;
	}
	(void)snprintf(made->name, sizeof(made->name), "%s", ib_verbs_device_name(device));
	made->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
	atomic_init(&made->refs, 1);
	atomic_init(&made->state, IB_DEVICE_USED);
	atomic_init(&made->looked_ns, 0);
	atomic_init(&made->is_fatal, false);
	*out = made;
	return 0;

close_ctx:
	(void)ib_verbs_close_device(made->ctx);
free_made:
	free(made);
	return rc;
}

int ib_device_alloc_pd(struct ib_device *device)
{
	return device->pd != NULL ? 0 : ib_verbs_alloc_pd(device->ctx, &device->pd);
}

struct ib_device *ib_device_hold(struct ib_device *device)
{
	/* Relaxed: whoever holds a reference may give one away. */
	atomic_fetch_add_explicit(&device->refs, 1, memory_order_relaxed);
	return device;
}

void ib_device_put(struct ib_device *device)
{
	int rc = 0;

	/* Acquire and release: what others did with it comes before its end. */
	if (device == NULL ||
	    atomic_fetch_sub_explicit(&device->refs, 1, memory_order_acq_rel) != 1) {
		return;
	}
	if (device->pd != NULL) {
		rc = ib_verbs_dealloc_pd(device->pd);
	}
	if (ib_verbs_close_device(device->ctx) != 0) {
		rc = -EBUSY;
	}
	if (rc != 0) {
		LOG_INFO("device %s: closing it: %s", device->name, strerror(-rc));
	}
	free(device);
}
