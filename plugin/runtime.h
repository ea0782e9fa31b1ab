/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_RUNTIME_H
#define BRAID_PLUGIN_RUNTIME_H

#include "ib/mr.h"
#include "ib/rail.h"
#include "include/config.h"
#include "oob/link.h"
#include "oob/loop.h"
#include "plugin/worker.h"
#include "repair/share.h"

#include <stdbool.h>
#include <stdint.h>

/** Events of one device. Loop thread. */
struct device_watch {
	struct oob_watch watch;
	const struct ib_rail *rail; /* its first */
	struct ib_device *device;   /* a reference; NULL: not watched */
};

/**
 * What the process has once: configuration and rails from the first plugin_init on, threads and the
 * listening socket only while there is a listener or a comm (P11: no thread outlives the last one).
 */
struct runtime {
	/* set by runtime_init, constant until runtime_fini */
	struct braid_config cfg;
	struct ib_rails *rails; /* NULL: no devices */
	struct ib_mr_cache *mrs;
	struct repair_share shares[RAILS_MAX]; /* of each rail; any comm */

	/* set by the first runtime_get, constant while there are users */
	struct oob_loop *loop;
	struct oob_net *net;
	struct worker *setup;                   /* work on several rails */
	struct worker *rail_workers[RAILS_MAX]; /* fences */
	struct oob_timer tick;                  /* loop thread */
	uint32_t tick_ms;                       /* loop thread; its period */
	struct device_watch watches[RAILS_MAX]; /* loop thread; by first rail */
};

struct runtime *runtime_instance(void);

/** Read the configuration and open the rails, or count one more. 0 also without any device. */
int runtime_init(void);

/**
 * One less; the last one closes the rails, at once or when the last user is gone. True: it was the
 * last, and there are users left.
 */
bool runtime_fini(void);

/** A listener or comm begins: start the threads if it is the first. 0 or -errno. Service thread. */
int runtime_get(void);

/**
 * It is gone: stop the threads if it was the last. Waits for them, bounded. Not from our own
 * threads.
 */
void runtime_put(void);

/** Some comm repairs: tick fast until none does. Any thread. */
void runtime_repair_begins(void);

/* Loop thread. Watch the events of a first rail's present device; no more of those of a device. */
void runtime_watch(struct runtime *rt, unsigned int first);
void runtime_unwatch(struct runtime *rt, struct device_watch *watch);

/* plugin/watch.c; loop thread */
extern const struct oob_handlers watch_link_handlers;
void watch_device_event(void *watch);
void watch_tick(void *runtime);

enum {
	TICK_FAST_MS = 2,
	TICK_SLOW_MS = 250
};

#endif
