/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

/**
 * What the linked-in copy of libev calls stderr (see cmake/deps.cmake): read only when libev runs
 * out of memory and says so. Hidden, set once when the object is loaded, never written again.
 */
FILE *braid_ev_stderr;

static void __attribute__((constructor)) ev_stderr_init(void)
{
	braid_ev_stderr = stderr;
}
