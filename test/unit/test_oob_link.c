/* SPDX-License-Identifier: Apache-2.0 */
#include "test/unit/oob_rig.h"

#include <errno.h>

/* Links between nets of one process. */

static void exchange(void **state)
{
	struct rig a, b;
	struct oob_link *link, *again;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	b.echo = 1;
	link = rig_get(&a, &b);
	again = rig_get(&a, &b);
	assert_ptr_equal(link, again);
	/* queued before the link is up */
	for (uint64_t i = 1; i <= 100; i++) {
		assert_int_equal(rig_send(link, 3, i), 0);
	}
	rig_wait_stream(&b, 3, 100);
	rig_wait_stream(&a, 3, 100);
	rig_wait(&a, up_count, 1);
	assert_non_null(strstr(oob_link_name(link), "127.0.0.1"));
	oob_link_put(again);
	oob_link_put(link);
	rig_close(&a);
	rig_close(&b);
	assert_int_equal(a.lost_count + b.lost_count, 0);
	assert_int_equal(a.up_count, 1);
	assert_int_equal(b.up_count, 1);
}

static void goodbye_to_users(void **state)
{
	struct rig a, b;
	struct oob_link *link;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	link = rig_get(&a, &b);
	rig_wait(&b, up_count, 1);
	rig_wait(&a, up_count, 1);
	rig_close(&b);
	rig_wait(&a, gone_count, 1);
	assert_int_equal(a.gone_err, -ESHUTDOWN);
	assert_int_equal(a.lost_count, 0);
	assert_int_equal(rig_send(link, 0, 1), -EPIPE);
	oob_link_put(link);
	rig_close(&a);
	assert_int_equal(a.gone_count, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exchange),
		cmocka_unit_test(goodbye_to_users),
	};

	return cmocka_run_group_tests_name("oob_link", tests, NULL, NULL);
}
