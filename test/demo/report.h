/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DEMO_REPORT_H
#define BRAID_TEST_DEMO_REPORT_H

#include "test/demo/facts.h"

/** The heading of the table and one row: time, what each rail of the host sent, bytes replayed. */
void report_header(const struct timeline *timeline, const struct demo *demo);
void report_row(const struct timeline *timeline, const struct demo *demo, uint32_t idx,
		const struct incidents *incidents);

/** What the run shows, in words. */
void report_facts(const struct facts *facts, const struct demo *demo);

/** Write the summary. Returns 0 or -errno. */
int report_json(const char *path, const struct facts *facts, const struct demo *demo,
		const struct timeline *timeline);

#endif
