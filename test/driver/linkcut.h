/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_LINKCUT_H
#define BRAID_TEST_DRIVER_LINKCUT_H

#include "test/driver/shared.h"

/*
 * A rank does harm to the TCP connections of its own process, which are the plugin's links: what
 * firewalls, drained load balancers and switches do to them elsewhere, and no right is needed for.
 */

struct linkcut;

/** Start a thread that waits for the launcher's orders (shared_link_order). Returns 0 or -errno. */
int linkcut_start(struct linkcut **out, struct shared *shared, uint32_t rank);
/** End the thread. Accepts NULL. */
void linkcut_stop(struct linkcut *linkcut);

#endif
