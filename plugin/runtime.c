/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/runtime.h"

#include "include/log.h"
#include "plugin/events.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	WORKER_BOUND_MS = 2000,
	LOOP_BOUND_S = 2
};

static struct runtime instance;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the counts and start and stop */
static unsigned int init_count, user_count;
static bool loaded;     /* rails and configuration are there */
static sem_t unwatched; /* posted by the loop when it watches nothing any more */

struct runtime *runtime_instance(void)
{
	return &instance;
}

static int load(struct runtime *rt)
{
	int rc;

	if (config_load(environ, &rt->cfg) || rt->cfg.disable || rt->cfg.ib_disable) {
		LOG_INFO("no devices: %s", rt->cfg.disable      ? "BRAID_DISABLE is set"
					   : rt->cfg.ib_disable ? "NCCL_IB_DISABLE is set"
								: "a setting was refused");
		return 0;
	}
	rc = ib_rails_open(&rt->cfg, &rt->rails);
	if (rc) {
		return rc;
	}
	(void)events_open(rt->cfg.event_file); /* said so itself; the log has all events anyway */
	rc = ib_mr_cache_create(rt->rails, &rt->mrs);
	if (rc) {
		ib_rails_close(rt->rails);
		rt->rails = NULL;
		return rc;
	}
	return 0;
}

static void unload(struct runtime *rt)
{
	ib_mr_cache_destroy(rt->mrs);
	ib_rails_close(rt->rails);
	events_close();
	memset(rt, 0, sizeof(*rt));
	loaded = false;
}

int runtime_init(void)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!loaded) {
		rc = load(&instance);
		loaded = rc == 0;
	}
	init_count += rc == 0;
	pthread_mutex_unlock(&lock);
	return rc;
}

bool runtime_fini(void)
{
	bool last, used;

	pthread_mutex_lock(&lock);
	last = init_count > 0 && --init_count == 0;
	used = user_count > 0;
	if (last && !used && loaded) {
		unload(&instance);
	}
	pthread_mutex_unlock(&lock);
	return last && used;
}

void runtime_unwatch(struct runtime *rt, struct device_watch *watch)
{
	if (watch->device) {
		oob_watch_stop(rt->loop, &watch->watch);
		ib_device_put(watch->device);
		watch->device = NULL;
	}
}

void runtime_watch(struct runtime *rt, unsigned int first)
{
	struct device_watch *watch = &rt->watches[first];
	const struct ib_rail *rail = &rt->rails->rails[first];
	struct ib_device *device = ib_rail_device_get(rail);

	*watch = (struct device_watch){
		.watch = {.fd = device->ctx->async_fd, .fn = watch_device_event, .arg = watch},
		.rail = rail,
		.device = device};
	if (oob_watch_start(rt->loop, &watch->watch)) {
		LOG_WARN("%s: cannot watch for device events", rail->label);
		runtime_unwatch(rt, watch);
	}
}

static void stop_watches(void *arg)
{
	struct runtime *rt = arg;

	oob_timer_set(rt->loop, &rt->tick, 0);
	for (unsigned int i = 0; i < rt->rails->count; i++) {
		runtime_unwatch(rt, &rt->watches[i]);
	}
	sem_post(&unwatched);
}

static void start_watches(void *arg)
{
	struct runtime *rt = arg;

	for (unsigned int i = 0; i < rt->rails->count; i++) {
		if (rt->rails->rails[i].first == i) {
			runtime_watch(rt, i);
		}
	}
	rt->tick = (struct oob_timer){.fn = watch_tick, .arg = rt};
	rt->tick_ms = TICK_SLOW_MS;
	oob_timer_set(rt->loop, &rt->tick, rt->tick_ms);
}

static void stop_workers(struct runtime *rt)
{
	for (unsigned int i = 0; i < RAILS_MAX; i++) {
		worker_destroy(rt->rail_workers[i], WORKER_BOUND_MS);
		rt->rail_workers[i] = NULL;
	}
	worker_destroy(rt->setup, WORKER_BOUND_MS);
	rt->setup = NULL;
}

static int start_workers(struct runtime *rt)
{
	int rc = worker_create("braid-setup", &rt->setup);

	if (!rc) {
		rc = worker_start(rt->setup);
	}
	for (unsigned int i = 0; i < rt->rails->count && !rc; i++) {
		char name[16];

		snprintf(name, sizeof(name), "braid-rail%u", i & 0xffu);
		rc = worker_create(name, &rt->rail_workers[i]);
	}
	return rc;
}

static int start(struct runtime *rt)
{
	struct oob_net_opts opts = {.ifname = rt->cfg.socket_ifname,
				    .family = rt->cfg.socket_family,
				    .connect_timeout_ms = (uint32_t)rt->cfg.connect_timeout_ms,
				    .peer_timeout_ms = (uint32_t)rt->cfg.peer_timeout_ms};
	int rc;

	sem_init(&unwatched, 0, 0);
	rc = oob_loop_start(&rt->loop);
	if (rc) {
		return rc;
	}
	rc = start_workers(rt);
	if (rc) {
		goto stop_all;
	}
	rc = oob_net_open(rt->loop, &opts, &watch_link_handlers, rt, &rt->net);
	if (rc) {
		goto stop_all;
	}
	rc = oob_loop_post(rt->loop, start_watches, rt);
	if (rc) {
		goto close_net;
	}
	return 0;

close_net:
	oob_net_close(rt->net);
	rt->net = NULL;
stop_all:
	stop_workers(rt);
	oob_loop_stop(rt->loop);
	rt->loop = NULL;
	return rc;
}

/* What was posted to the loop before has run then: it may hand a job to a worker
 * (plugin/reopen.c). */
static void await_loop(struct runtime *rt)
{
	struct timespec until;

	if (oob_loop_post(rt->loop, stop_watches, rt)) {
		LOG_WARN("out of memory, device events are watched to the end");
		return;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LOOP_BOUND_S;
	while (sem_timedwait(&unwatched, &until) && errno == EINTR) {
	}
}

static void stop(struct runtime *rt)
{
	await_loop(rt);
	/* No comm is left, so no new job comes; queued ones (destroying comms) run first. */
	stop_workers(rt);
	oob_net_close(rt->net);
	oob_loop_stop(rt->loop);
	rt->net = NULL;
	rt->loop = NULL;
}

int runtime_get(void)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (!loaded || !instance.rails || ib_rails_device_count(instance.rails) == 0) {
		rc = -ENODEV;
	} else if (user_count == 0) {
		rc = start(&instance);
	}
	user_count += rc == 0;
	pthread_mutex_unlock(&lock);
	return rc;
}

void runtime_put(void)
{
	pthread_mutex_lock(&lock);
	ASSERT(user_count > 0);
	if (--user_count == 0) {
		stop(&instance);
		if (init_count == 0) {
			unload(&instance);
		}
	}
	pthread_mutex_unlock(&lock);
}

static void tick_fast(void *arg)
{
	struct runtime *rt = arg;

	rt->tick_ms = TICK_FAST_MS;
	oob_timer_set(rt->loop, &rt->tick, rt->tick_ms);
}

void runtime_repair_begins(void)
{
	/* Out of memory here only means that the slow tick has to do. */
	(void)oob_loop_post(instance.loop, tick_fast, &instance);
}
