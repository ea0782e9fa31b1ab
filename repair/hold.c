/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/hold.h"

#include "include/clock.h"

enum {
	ASKS = 8 /* in no_path_ms; silence before it is noticed counts as time that the peer had */
};

static void begin(struct repair_end *end)
{
	end->hold = (struct repair_hold){.since_ns = end->now_ns, .said_ns = end->now_ns};
	end->ops->report(end->ctx, &(struct repair_report){.kind = REPAIR_REPORT_NO_PATH,
							   .path = PATHS_MAX,
							   .cause = CAUSE_NO_PATH});
}

void hold_tick(struct repair_end *end)
{
	struct repair_hold *hold = &end->hold;

	if (!end->role->starved(end)) {
		hold->since_ns = 0;
		return;
	}
	if (hold->since_ns == 0) {
		begin(end);
	}
	if (end->now_ns - hold->said_ns >= end->limits.no_path_ms * NS_PER_MS / ASKS &&
	    end->ops->ask(end->ctx) == 0) {
		hold->said_ns = end->now_ns;
		hold->asked_ns = hold->asked_ns ? hold->asked_ns : end->now_ns;
	}
}

void hold_answered(struct repair_end *end)
{
	struct repair_hold *hold = &end->hold;

	if (hold->since_ns == 0) {
		return;
	}
	if (hold->asked_ns) {
		hold->since_ns += end->now_ns - hold->asked_ns;
		hold->asked_ns = 0;
	}
	if (end->now_ns - hold->since_ns >= end->limits.no_path_ms * NS_PER_MS) {
		repair_end_fail(end, CAUSE_NO_PATH, PATHS_MAX, "no path came back in time");
	}
}
