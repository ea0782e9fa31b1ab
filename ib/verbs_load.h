/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_VERBS_LOAD_H
#define BRAID_IB_VERBS_LOAD_H

#include "ib/verbs.h"

/**
 * Open the first of the libraries that is there and fill the table; NULL and "" are skipped. One
 * line says what is missing. The library stays open once it was good. 0, -ENOENT, -ENOSYS; *out
 * only on success.
 */
int ib_verbs_library_open(const char *const *names, unsigned int count, struct ib_verbs_syms *out);

#endif
