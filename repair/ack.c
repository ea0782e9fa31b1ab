/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/ack.h"

#include "repair/end.h"

#include <string.h>

void ack_init(struct ack_pace *pace, const struct repair_limits *limits)
{
	memset(pace, 0, sizeof(*pace));
	pace->eager_left = limits->ack_eager_min;
	pace->eager_next = limits->ack_eager_min;
}

void ack_was_in_vain(struct ack_pace *pace, const struct repair_limits *limits)
{
	if (pace->carried >= ACK_WORTH) {
		pace->eager_next = limits->ack_eager_min;
	}
	pace->eager_left = pace->eager_next;
	pace->eager_next = pace->eager_next < limits->ack_eager_max / 2 ? 2 * pace->eager_next
									: limits->ack_eager_max;
	pace->carried = 0;
}
