/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_RAILS_H
#define BRAID_TEST_DRIVER_RAILS_H

#include "test/driver/options.h"

#include <stdint.h>

enum {
	RAILS_COUNT_MAX = 64,
	RAILS_FIRED_MAX = 64
};

/** Bytes of payload one HCA has sent and received so far. */
struct rail_bytes {
	uint64_t tx;
	uint64_t rx;
};

/** A fault that happened. */
struct rail_fired {
	char rule[OPT_TEXT_MAX];
	uint64_t at_ns;    /**< CLOCK_MONOTONIC */
	uint64_t seen;     /**< what its trigger counted: bytes, writes, messages or ms */
	uint32_t rule_idx; /**< as rails_fault gave it */
};

struct rails;

/** The launcher's side of the software fabric whose state lies in dir. Returns 0 or -errno. */
int rails_open(struct rails **out, const char *dir);
/** Accepts NULL. */
void rails_close(struct rails *rails);
/** Counters of one HCA; zeros while its process has not opened it. Any thread. */
struct rail_bytes rails_read(struct rails *rails, uint32_t host, uint32_t rail);
/** Install a rule now. rule_idx may be NULL. Returns 0 or -errno, with the reason printed. */
int rails_fault(struct rails *rails, const char *rule, uint32_t *rule_idx);
/**
 * The number-th fault that fired, from 0. Returns 0, or -ENOENT when there is none (yet), or no
 * more: the newest 1024 are kept.
 */
int rails_fired_at(struct rails *rails, uint32_t number, struct rail_fired *out);
/** Faults that have fired so far, in the order of their installation; returns how many. */
uint32_t rails_fired_list(struct rails *rails, struct rail_fired *out, uint32_t cap);

#endif
