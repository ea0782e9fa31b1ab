/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_LAUNCHER_H
#define BRAID_TEST_DRIVER_LAUNCHER_H

#include "test/driver/options.h"

/** Run the whole thing: start the ranks, lead them through, report. Returns the exit status. */
int launcher_run(const struct options *opt);

#endif
