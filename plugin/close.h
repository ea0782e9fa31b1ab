/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_CLOSE_H
#define BRAID_PLUGIN_CLOSE_H

/** Lets close wait, bounded, for the end of what it closed. Shared by both; the later one frees it.
 */
struct close_wait;

struct close_wait *close_wait_create(void);
/** The thing is gone. NULL is fine. */
void close_wait_signal(struct close_wait *wait);
/** 0, or -ETIMEDOUT after bound_ms, or much sooner while an earlier wait has not ended either. The
 * object must not be used afterwards. */
int close_wait_end(struct close_wait *wait, unsigned int bound_ms);

#endif
