/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/rails.h"

#include "test/fabric/fabric_ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct rails {
	struct fabric_ctl *ctl;
};

int rails_open(struct rails **out, const char *dir)
{
	struct rails *rails = calloc(1, sizeof(*rails));
	int err;

	if (!rails) {
		return -ENOMEM;
	}
	err = fabric_ctl_open(dir, &rails->ctl);
	if (err) {
		free(rails);
		return err;
	}
	*out = rails;
	return 0;
}

void rails_close(struct rails *rails)
{
	if (rails) {
		fabric_ctl_close(rails->ctl);
		free(rails);
	}
}

struct rail_bytes rails_read(struct rails *rails, uint32_t host, uint32_t rail)
{
	struct fabric_counters counters = {0};

	if (fabric_ctl_counters(rails->ctl, host, rail, &counters)) {
		return (struct rail_bytes){0};
	}
	return (struct rail_bytes){counters.tx_bytes, counters.rx_bytes};
}

int rails_fault(struct rails *rails, const char *rule, uint32_t *rule_idx)
{
	char why[128] = "";
	int err = fabric_ctl_fault(rails->ctl, rule, rule_idx, why, sizeof(why));

	if (err) {
		fprintf(stderr, "driver: fault '%s': %s\n", rule, why);
	}
	return err;
}

int rails_fired_at(struct rails *rails, uint32_t number, struct rail_fired *out)
{
	struct fabric_fired fired;
	int err = fabric_ctl_fired(rails->ctl, number, &fired);

	if (err) {
		return err;
	}
	out->at_ns = fired.t_ns;
	out->seen = fired.seen;
	out->rule_idx = fired.rule_idx;
	snprintf(out->rule, sizeof(out->rule), "%s", fired.text);
	return 0;
}

uint32_t rails_fired_list(struct rails *rails, struct rail_fired *out, uint32_t cap)
{
	uint32_t count = 0;

	while (count < cap && rails_fired_at(rails, count, &out[count]) == 0) {
		count++;
	}
	return count;
}
