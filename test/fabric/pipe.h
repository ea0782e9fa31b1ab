/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_PIPE_H
#define BRAID_TEST_FABRIC_PIPE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A pipe of events: the application reads one end, blocking or not as it likes, and may poll it;
 * the engine writes the other and never blocks. 0 or -errno. */
int fab_pipe_open(int *read_fd, int *write_fd);

/** Does the entry belong to an object that goes away? */
typedef bool (*fab_pipe_match_fn)(const void *entry, const void *object);

/**
 * Takes the entries of `object`, `len` bytes each, that nobody has read yet out of the pipe; the
 * others stay, in their order. The caller keeps other writers off. Returns how many it took.
 */
uint32_t fab_pipe_remove(int read_fd, int write_fd, size_t len, fab_pipe_match_fn match,
			 const void *object);

/** Returns when the application has acknowledged as many events as it read: what destroying an
 * object waits for. `acked` is under `lock`. ibv_ack_async_event(3), ibv_ack_cq_events(3). */
void fab_pipe_wait_acked(pthread_mutex_t *lock, pthread_cond_t *changed, const uint32_t *acked,
			 uint32_t read_count);

#endif
