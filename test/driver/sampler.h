/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_SAMPLER_H
#define BRAID_TEST_DRIVER_SAMPLER_H

#include "test/driver/rails.h"

struct sampler;

/**
 * Start a thread that writes every HCA's byte counters to a CSV file every 5 ms. Rows:
 * kind,time_ns,host,rail,tx_bytes,rx_bytes,text; kind is sample or mark; times are
 * CLOCK_MONOTONIC. Returns 0 or -errno.
 */
int sampler_start(struct sampler **out, const char *path, struct rails *rails,
		  const struct options *opt);
/** Write a mark with its time. Any thread; accepts NULL. */
void sampler_mark(struct sampler *sampler, uint64_t time_ns, const char *text);
/** End the thread and close the file. Accepts NULL. */
void sampler_stop(struct sampler *sampler);

#endif
