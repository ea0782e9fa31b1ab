/* SPDX-License-Identifier: Apache-2.0 */
#include "include/log.h"
#include "repair/path.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static unsigned int warn_count;

static void sink(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	(void)flags;
	(void)file;
	(void)line;
	(void)fmt;
	warn_count += level == LOG_LEVEL_WARN;
}

/* The table written a second time, by hand, from the protocol's description in repair/fence.h. */
struct row {
	enum path_state state;
	enum path_event event;
	enum path_state next;
	unsigned int actions;
};

static const struct row legal[] = {
	{PATH_PARKED, PATH_EV_READY, PATH_UP, PATH_ACT_RESUME},
	{PATH_PARKED, PATH_EV_FAULT, PATH_DOWN, 0},
	{PATH_UP, PATH_EV_FAULT, PATH_FENCING, PATH_ACT_BEGIN},
	{PATH_UP, PATH_EV_PEER_FENCE, PATH_FENCING, PATH_ACT_BEGIN},
	{PATH_UP, PATH_EV_PEER_FENCED, PATH_FENCING_HEARD, PATH_ACT_BEGIN | PATH_ACT_KEEP},
	{PATH_FENCING, PATH_EV_FAULT, PATH_FENCING, 0},
	{PATH_FENCING, PATH_EV_PEER_FENCE, PATH_FENCING, 0},
	{PATH_FENCING, PATH_EV_SELF_FENCED, PATH_FENCED, PATH_ACT_ANNOUNCE},
	{PATH_FENCING, PATH_EV_PEER_FENCED, PATH_FENCING_HEARD, PATH_ACT_KEEP},
	{PATH_FENCING_HEARD, PATH_EV_FAULT, PATH_FENCING_HEARD, 0},
	{PATH_FENCING_HEARD, PATH_EV_PEER_FENCE, PATH_FENCING_HEARD, 0},
	{PATH_FENCING_HEARD, PATH_EV_PEER_FENCED, PATH_FENCING_HEARD, 0},
	{PATH_FENCING_HEARD, PATH_EV_SELF_FENCED, PATH_DOWN,
	 PATH_ACT_ANNOUNCE | PATH_ACT_RECONCILE},
	{PATH_FENCED, PATH_EV_FAULT, PATH_FENCED, 0},
	{PATH_FENCED, PATH_EV_PEER_FENCE, PATH_FENCED, 0},
	{PATH_FENCED, PATH_EV_PEER_FENCED, PATH_DOWN, PATH_ACT_KEEP | PATH_ACT_RECONCILE},
	{PATH_DOWN, PATH_EV_FAULT, PATH_DOWN, 0},
	{PATH_DOWN, PATH_EV_PEER_FENCE, PATH_FENCED, PATH_ACT_ANNOUNCE},
	{PATH_DOWN, PATH_EV_PEER_FENCED, PATH_DOWN,
	 PATH_ACT_ANNOUNCE | PATH_ACT_KEEP | PATH_ACT_RECONCILE},
	{PATH_DOWN, PATH_EV_JOINED, PATH_PROBING, PATH_ACT_PROBE},
	{PATH_PROBING, PATH_EV_READY, PATH_UP, PATH_ACT_RESUME},
	{PATH_PROBING, PATH_EV_FAULT, PATH_FENCING, PATH_ACT_BEGIN},
	{PATH_PROBING, PATH_EV_PEER_FENCE, PATH_FENCING, PATH_ACT_BEGIN},
	{PATH_PROBING, PATH_EV_PEER_FENCED, PATH_FENCING_HEARD, PATH_ACT_BEGIN | PATH_ACT_KEEP},
};

static const struct row *find(enum path_state state, enum path_event event)
{
	for (size_t i = 0; i < sizeof(legal) / sizeof(legal[0]); i++) {
		if (legal[i].state == state && legal[i].event == event) {
			return &legal[i];
		}
	}
	return NULL;
}

static void test_every_pair(void **state)
{
	(void)state;
	for (int s = 0; s < PATH_STATE_COUNT; s++) {
		for (int e = 0; e < PATH_EVENT_COUNT; e++) {
			struct path_step step = path_step((enum path_state)s, (enum path_event)e);
			const struct row *row = find((enum path_state)s, (enum path_event)e);

			assert_int_equal(step.legal, row != NULL);
			if (row) {
				assert_int_equal(step.next, row->next);
				assert_int_equal(step.actions, row->actions);
			}
		}
	}
}

static void test_apply_is_the_table(void **state)
{
	(void)state;
	for (int s = 0; s < PATH_STATE_COUNT; s++) {
		for (int e = 0; e < PATH_EVENT_COUNT; e++) {
			struct repair_path path = {.state = (enum path_state)s, .epoch = 7};
			const struct row *row = find((enum path_state)s, (enum path_event)e);
			int rc;

			warn_count = 0;
			rc = path_apply(&path, (enum path_event)e);
			assert_int_equal(path.epoch, 7);
			if (row) {
				assert_int_equal(rc, row->actions);
				assert_int_equal(path.state, row->next);
				assert_int_equal(warn_count, 0);
			} else {
				assert_int_equal(rc, -EPROTO);
				assert_int_equal(path.state, s);
				assert_int_equal(warn_count, 1);
			}
		}
	}
}

/* Properties of the table as a graph, whatever its rows are. */
static void test_rules(void **state)
{
	(void)state;
	for (int s = 0; s < PATH_STATE_COUNT; s++) {
		for (int e = 0; e < PATH_EVENT_COUNT; e++) {
			struct path_step step = path_step((enum path_state)s, (enum path_event)e);

			if (!step.legal) {
				continue;
			}
			/* A replay starts where DOWN is entered, and nowhere else (I3); in DOWN an
			 * epoch that never carried anything is closed the same way. What was never
			 * connected has nothing to replay. */
			assert_int_equal((step.actions & PATH_ACT_RECONCILE) != 0,
					 step.next == PATH_DOWN && s != PATH_PARKED &&
						 (s != PATH_DOWN || e == PATH_EV_PEER_FENCED));
			/* Each way into DOWN has heard of both fences; DOWN itself is fenced. */
			if (step.actions & PATH_ACT_RECONCILE) {
				assert_true((s == PATH_FENCED && e == PATH_EV_PEER_FENCED) ||
					    (s == PATH_FENCING_HEARD && e == PATH_EV_SELF_FENCED) ||
					    (s == PATH_DOWN && e == PATH_EV_PEER_FENCED));
			}
			/* The own fence starts once, on leaving the states with live QPs; it is
			 * announced once, at its end, or at once where no QP is live. */
			assert_int_equal((step.actions & PATH_ACT_BEGIN) != 0,
					 (s == PATH_UP || s == PATH_PROBING) &&
						 step.next != PATH_UP);
			assert_int_equal((step.actions & PATH_ACT_ANNOUNCE) != 0,
					 e == PATH_EV_SELF_FENCED ||
						 (s == PATH_DOWN && (e == PATH_EV_PEER_FENCE ||
								     e == PATH_EV_PEER_FENCED)));
			/* Only a path whose probes got through, or a fresh one, carries traffic. */
			assert_int_equal((step.actions & PATH_ACT_RESUME) != 0,
					 s != PATH_UP && step.next == PATH_UP);
			/* A book is kept when it comes first, and before it is compared. */
			if (step.actions & PATH_ACT_KEEP) {
				assert_int_equal(e, PATH_EV_PEER_FENCED);
			}
		}
	}
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(path_state_name(PATH_PARKED), "PARKED");
	assert_string_equal(path_state_name(PATH_FENCING_HEARD), "FENCING_HEARD");
	assert_string_equal(path_state_name(PATH_DOWN), "DOWN");
	assert_string_equal(path_state_name(PATH_STATE_COUNT), "?");
	assert_string_equal(path_event_name(PATH_EV_READY), "READY");
	assert_string_equal(path_event_name(PATH_EV_PEER_FENCED), "PEER_FENCED");
	assert_string_equal(path_event_name(PATH_EVENT_COUNT), "?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_pair),
		cmocka_unit_test(test_apply_is_the_table),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_names),
	};

	log_sink_set(sink);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
