/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_ROOT_H
#define BRAID_TEST_FABRIC_ROOT_H

#include "test/fabric/layout.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/** CLOCK_MONOTONIC in ns: the one clock of the fabric, the same in all processes. */
static inline uint64_t fab_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/**
 * Maps DIR/fabric.shm, making it first when it is not there. A process maps one root at a time per
 * caller; the mapping stays valid until fab_root_close(). Blocks while another process makes it.
 * Returns 0 or -errno.
 */
int fab_root_open(const char *dir, struct fab_root **root);
void fab_root_close(struct fab_root *root);

/** A process-shared robust mutex. A dead owner is cleaned up after by the next one to lock. */
void fab_mutex_init(pthread_mutex_t *mutex);
void fab_mutex_lock(pthread_mutex_t *mutex);
bool fab_mutex_trylock(pthread_mutex_t *mutex);
void fab_mutex_unlock(pthread_mutex_t *mutex);

static inline struct fab_port *fab_root_port(struct fab_root *root, uint32_t host, uint32_t rail)
{
	return &root->ports[host][rail];
}

/** How often an adapter that has these rails as its ports died: with one of them, the whole does.
 */
static inline uint32_t fab_root_deaths(struct fab_root *root, uint32_t host, uint32_t rail,
				       uint32_t rail_count)
{
	uint32_t deaths = 0;

	for (uint32_t i = 0; i < rail_count; i++) {
		deaths += atomic_load_explicit(&fab_root_port(root, host, rail + i)->dead_count,
					       memory_order_acquire);
	}
	return deaths;
}

/** How often it was taken out of its host, as a whole. */
static inline uint32_t fab_root_pulls(struct fab_root *root, uint32_t host, uint32_t rail,
				      uint32_t rail_count)
{
	uint32_t pulls = 0;

	for (uint32_t i = 0; i < rail_count; i++) {
		pulls += atomic_load_explicit(&fab_root_port(root, host, rail + i)->pull_count,
					      memory_order_acquire);
	}
	return pulls;
}

/** Complains on stderr in one line that starts with "fabric: ". */
void fab_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
