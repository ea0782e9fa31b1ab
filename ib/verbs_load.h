/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_VERBS_LOAD_H
#define BRAID_IB_VERBS_LOAD_H

#include "ib/verbs.h"

/**
 * Open libibverbs and fill the table. `first` is tried before the usual names, NULL: none. One line
 * says what is missing. The library is never closed once it was good. 0, -ENOENT, -ENOSYS; *out
 * only on success.
 */
int ib_verbs_library_open(const char *first, struct ib_verbs_syms *out);

#endif
