/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_IB_RAILS_RIG_H
#define BRAID_TEST_IB_RAILS_RIG_H

/* Rails over the fake verbs, for the tests of what is found and of what changes later. */

#include "ib/rail.h"
#include "ib_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct braid_config cfg;

static inline int setup(void **state)
{
	(void)state;
	fake_reset();
	config_default(&cfg);
	return 0;
}

static inline struct ib_rails *open_rails(unsigned int want)
{
	struct ib_rails *rails = NULL;

	assert_int_equal(ib_rails_open(&cfg, &rails), 0);
	assert_int_equal(rails->count, want);
	return rails;
}

static inline void close_rails(struct ib_rails *rails)
{
	ib_rails_close(rails);
	assert_int_equal(fake.live_count, 0);
}

static inline bool logged(const char *text)
{
	return strstr(fake.log, text) != NULL;
}

#endif
