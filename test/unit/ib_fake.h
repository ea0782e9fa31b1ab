/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_IB_FAKE_H
#define BRAID_TEST_IB_FAKE_H

/*
 * Entry points in the library's own conventions, for the unit tests of ib/: every one can be made
 * to fail, and what was opened and not closed is counted. Also a log sink that keeps the lines.
 */

#include "ib_fake_device.h"
#include "ib_fake_object.h"

static inline void fake_log(int level, unsigned long flags, const char *file, int line,
			    const char *fmt, ...)
{
	size_t used = strlen(fake.log);
	va_list args;

	(void)flags;
	(void)file;
	(void)line;
	used += (size_t)snprintf(fake.log + used, sizeof(fake.log) - used, "%s ",
				 level == LOG_LEVEL_WARN ? "WARN" : "INFO");
	va_start(args, fmt);
	used += (size_t)vsnprintf(fake.log + used, sizeof(fake.log) - used, fmt, args);
	va_end(args);
	(void)snprintf(fake.log + used, sizeof(fake.log) - used, "\n");
}

/** All of them. */
static inline void fake_syms(struct ib_verbs_syms *syms)
{
#define FAKE_SET(ret, name, params) syms->name = fake_##name;
	IB_VERBS_REQUIRED(FAKE_SET)
#undef FAKE_SET
	syms->reg_mr_iova2 = fake_reg_mr_iova2;
	syms->reg_dmabuf_mr = fake_reg_dmabuf_mr;
	syms->query_port_speed = NULL;
	syms->query_gid_ex = fake_query_gid_ex;
}

/** Forget everything: two InfiniBand devices fab0 and fab1 of one ACTIVE port; no call fails. */
static inline void fake_reset(void)
{
	static struct ib_verbs_syms syms;
	static const union ibv_gid gid = {
		.raw = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}};

	memset(&fake, 0, sizeof(fake));
	fake.inline_limit = 512;
	fake.fail_errno = ENOMEM;
	fake.dmabuf_errno = EOPNOTSUPP;
	fake.device_count = 2;
	for (unsigned int i = 0; i < FAKE_DEVICES_MAX; i++) {
		static const char *const names[] = {"fab0", "fab1", "fab2"};

		fake.devices[i] = (struct fake_device){.name = names[i],
						       .port_count = 1,
						       .state = IBV_PORT_ACTIVE,
						       .link_layer = IBV_LINK_LAYER_INFINIBAND,
						       .guid = 0xabc0 + i,
						       .gid_count = 1};
		fake.devices[i].gids[0] = gid;
		fake.devices[i].gids[0].raw[15] = (uint8_t)i;
	}
	fake_syms(&syms);
	ib_verbs_use(&syms);
	log_sink_set(fake_log);
}

#endif
