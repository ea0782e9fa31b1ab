/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_LOGGER_H
#define BRAID_TEST_DRIVER_LOGGER_H

#include "test/driver/tally.h"

/**
 * Set up the one logger of this process: lines go to stderr with the rank in front, as far as the
 * level in NCCL_DEBUG (NONE, VERSION, WARN, INFO, ABORT, TRACE) reaches; WARN lines are counted in
 * any case. Call before the plugin can log.
 */
void logger_init(struct tally *tally, int rank);
/** NCCL's logger, as a plugin gets it. Any thread. */
void logger_write(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

#endif
