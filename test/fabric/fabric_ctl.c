/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/fabric_ctl.h"

#include "test/fabric/rule.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fabric_ctl {
	struct fab_root *root;
	char dir[PATH_MAX];
};

_Static_assert(sizeof(((struct fabric_fired *)0)->text) == FAB_RULE_TEXT_LEN, "one text length");

int fabric_ctl_open(const char *dir, struct fabric_ctl **ctl)
{
	struct fabric_ctl *made = calloc(1, sizeof(*made));
	int rc = -ENAMETOOLONG;

	if (made == NULL) {
		return -ENOMEM;
	}
	if (snprintf(made->dir, sizeof(made->dir), "%s", dir) < (int)sizeof(made->dir)) {
		rc = fab_root_open(dir, &made->root);
	}
	if (rc != 0) {
		free(made);
		return rc;
	}
	*ctl = made;
	return 0;
}

void fabric_ctl_close(struct fabric_ctl *ctl)
{
	if (ctl != NULL) {
		fab_root_close(ctl->root);
		free(ctl);
	}
}

int fabric_ctl_counters(struct fabric_ctl *ctl, uint32_t host, uint32_t rail,
			struct fabric_counters *counters)
{
	struct fab_port *port;

	if (host >= FAB_MAX_HOSTS || rail >= FAB_MAX_RAILS) {
		return -EINVAL;
	}
	port = fab_root_port(ctl->root, host, rail);
	counters->tx_bytes = atomic_load(&port->bytes[FAB_TX]);
	counters->rx_bytes = atomic_load(&port->bytes[FAB_RX]);
	counters->tx_msgs = atomic_load(&port->msgs[FAB_TX]);
	counters->rx_msgs = atomic_load(&port->msgs[FAB_RX]);
	counters->lost = atomic_load(&port->lost);
	counters->late_held = atomic_load(&port->late_held);
	counters->late_landed = atomic_load(&port->late_landed);
	counters->late_dropped = atomic_load(&port->late_dropped);
	return 0;
}

int fabric_ctl_fault(struct fabric_ctl *ctl, const char *rule, uint32_t *rule_idx, char *why,
		     size_t why_len)
{
	struct fab_rule_spec spec;
	char nowhere[1];

	if (why == NULL) {
		why = nowhere;
		why_len = sizeof(nowhere);
	}
	if (fab_rule_parse(rule, &spec, why, why_len) != 0) {
		return -EINVAL;
	}
	return fab_rule_add(ctl->root, ctl->dir, &spec, rule_idx);
}

uint32_t fabric_ctl_fired_count(struct fabric_ctl *ctl)
{
	return atomic_load(&ctl->root->fired_count);
}

int fabric_ctl_fired(struct fabric_ctl *ctl, uint32_t number, struct fabric_fired *fired)
{
	const struct fab_fired *entry = &ctl->root->fired[number % FAB_MAX_FIRED];

	if (atomic_load_explicit(&entry->ready, memory_order_acquire) != number + 1) {
		return -ENOENT;
	}
	fired->rule_idx = entry->rule_idx;
	fired->host = entry->spec.host;
	fired->rail = entry->spec.rail;
	fired->t_ns = entry->t_ns;
	fired->seen = entry->seen;
	fired->tx_bytes = entry->bytes[FAB_TX];
	fired->rx_bytes = entry->bytes[FAB_RX];
	memcpy(fired->text, entry->spec.text, sizeof(fired->text));
	return 0;
}

static int fired_find(struct fabric_ctl *ctl, uint32_t rule_idx, struct fabric_fired *fired)
{
	uint32_t count = fabric_ctl_fired_count(ctl);

	for (uint32_t i = count; i > 0 && count - i < FAB_MAX_FIRED; i--) {
		struct fabric_fired got;

		if (fabric_ctl_fired(ctl, i - 1, &got) == 0 && got.rule_idx == rule_idx) {
			if (fired != NULL) {
				*fired = got;
			}
			return 0;
		}
	}
	return -ENOENT;
}

int fabric_ctl_wait_fired(struct fabric_ctl *ctl, uint32_t rule_idx, uint32_t timeout_ms,
			  struct fabric_fired *fired)
{
	const struct timespec pause = {.tv_nsec = 500000};
	uint64_t end_ns = fab_now_ns() + (uint64_t)timeout_ms * 1000000ull;

	while (fired_find(ctl, rule_idx, fired) != 0) {
		if (fab_now_ns() >= end_ns) {
			return -ETIMEDOUT;
		}
		nanosleep(&pause, NULL); /* other processes fire it; they know of no waiter */
	}
	return 0;
}
