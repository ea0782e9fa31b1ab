/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_INTERN_H
#define BRAID_IB_INTERN_H

/**
 * A copy of the text that lives as long as the process; equal texts give equal pointers. For
 * strings that NCCL keeps. NULL for "" and when out of memory. Any thread.
 */
char *ib_intern(const char *text);

#endif
