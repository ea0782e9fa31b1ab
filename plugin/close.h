/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_CLOSE_H
#define BRAID_PLUGIN_CLOSE_H

/** Lets close wait, bounded, for the end of what it closed. Shared by both; the later one frees it.
 */
struct close_wait;

struct close_wait *close_wait_create(void);
/** The thing is gone. NULL is fine. */
void close_wait_signal(struct close_wait *wait);
/**
 * Wait for it, 2 s at most, or much shorter while an earlier one is stuck, and give up its use of
 * the runtime; when it ends later than that, it does so itself. The object must not be used
 * afterwards. NULL (no memory): as if it never ended. `what` is for the log.
 */
void close_wait_end(struct close_wait *wait, const char *what);

#endif
