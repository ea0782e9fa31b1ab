/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/rails.h"

#include <errno.h>

int rails_open(struct rails **out, const char *dir, uint32_t host_count, uint32_t rail_count)
{
	(void)out;
	(void)dir;
	(void)host_count;
	(void)rail_count;
	return -ENOSYS;
}

void rails_close(struct rails *rails)
{
	(void)rails;
}

struct rail_bytes rails_read(struct rails *rails, uint32_t host, uint32_t rail)
{
	(void)rails;
	(void)host;
	(void)rail;
	return (struct rail_bytes){0};
}

int rails_fault(struct rails *rails, const char *rule)
{
	(void)rails;
	(void)rule;
	return -ENOSYS;
}

uint32_t rails_fired_list(struct rails *rails, struct rail_fired *out, uint32_t cap)
{
	(void)rails;
	(void)out;
	(void)cap;
	return 0;
}
