/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_PROC_H
#define BRAID_OOB_PROC_H

#include "include/frame.h"

#include <stdbool.h>
#include <stdint.h>

/**
 * The identity of this process and what fork() does to it. A child of fork() has copies of all
 * sockets; as long as it holds them, the death of its parent would stay invisible to the peers. So
 * they are closed in the child before fork() returns there.
 */

/** Id of this process, another one in a child of fork(). 0 or -errno of getrandom. Any thread. */
int oob_proc_self(struct proc_id *out);

bool oob_proc_equal(const struct proc_id *a, const struct proc_id *b);

/** A random number for link ids. Never 0. 0 or -errno. Any thread. */
int oob_proc_random(uint64_t *out);

/** Remember a descriptor that a child of fork() must close. 0 or -ENOMEM. Any thread. */
int oob_proc_fd_add(int fd);

/** Forget it and close it, so that no fork() falls in between. Any thread. */
void oob_proc_fd_close(int fd);

#endif
