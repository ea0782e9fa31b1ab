/* SPDX-License-Identifier: Apache-2.0 */
#include "test/demo/facts.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
	STEP_NS = 5000000,
	ITERATIONS = 6,
	CUT_ITERATION = 2
};

static struct timeline timeline;
static struct incidents incidents;
static struct demo demo;

static void take(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void take(const char *fmt, ...)
{
	char line[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	assert_int_equal(timeline_line(&timeline, line), 0);
}

/** What a run may look like: bytes the cut rail carries in the iteration of the cut and after. */
struct shape {
	uint64_t carried_bytes;
	uint64_t later_bytes;
	uint64_t cut_ms;    /**< 0: never */
	uint64_t healed_ms; /**< 0: never */
	uint64_t back_bytes;
	bool has_replay;
	const char *driver;
};

static const struct shape good = {.carried_bytes = 400,
				  .cut_ms = 250,
				  .has_replay = true,
				  .driver = "{\n  \"verdict\": \"pass\",\n"};

/* Iterations start every 100 ms and take 30 ms, 40 after the cut; rail 1 of host 1 is cut. */
static void run_build(const struct shape *shape)
{
	static struct incident told[2];
	uint64_t bytes = 0;

	timeline_clear(&timeline);
	demo = (struct demo){.rule = "cut host=1 rail=1 bytes=3", .driver = shape->driver};
	demo.rate_mbps = 0.05;
	assert_int_equal(demo_rule_read(&demo), 0);
	for (unsigned i = 0; i < ITERATIONS; i++) {
		uint64_t start_ms = 50 + i * 100ull;

		for (unsigned host = 0; host < 2; host++) {
			take("sample,%llu,%u,0,0,0,", (unsigned long long)start_ms * 1000000, host);
			take("sample,%llu,%u,1,%llu,%llu,", (unsigned long long)start_ms * 1000000,
			     host, (unsigned long long)bytes, (unsigned long long)bytes);
		}
		take("mark,%llu,,,,,start %u allreduce simple 3000",
		     (unsigned long long)start_ms * 1000000, i);
		take("mark,%llu,,,,,end %u",
		     (unsigned long long)(start_ms + (i > CUT_ITERATION ? 40 : 30)) * 1000000, i);
		bytes += i < CUT_ITERATION    ? 500
			 : i == CUT_ITERATION ? shape->carried_bytes / 2
					      : shape->later_bytes / 2;
		bytes += shape->healed_ms && start_ms > shape->healed_ms ? shape->back_bytes : 0;
		take("sample,%llu,1,1,%llu,%llu,", (unsigned long long)(start_ms + 41) * 1000000,
		     (unsigned long long)bytes, (unsigned long long)bytes);
	}
	if (shape->cut_ms) {
		take("mark,%llu,,,,,%s", (unsigned long long)shape->cut_ms * 1000000, demo.rule);
	}
	if (shape->healed_ms) {
		demo.is_healed = true;
		take("mark,%llu,,,,,heal host=1 rail=1",
		     (unsigned long long)shape->healed_ms * 1000000);
	}
	told[0] = (struct incident){.time_ns = 255000000,
				    .bytes_replayed = -1,
				    .count = -1,
				    .name = "path_fault",
				    .cause = "no progress (seen by the peer)"};
	told[1] = (struct incident){
		.time_ns = 258000000, .bytes_replayed = 64, .count = 2, .name = "path_down"};
	incidents = (struct incidents){.list = told, .count = shape->has_replay ? 2 : 1};
}

static const char *missing_of(const struct shape *shape)
{
	static struct facts facts;

	run_build(shape);
	facts_find(&facts, &demo, &timeline, &incidents);
	return facts.missing ? facts.missing : "";
}

static void test_good(void **state)
{
	struct facts facts;

	(void)state;
	run_build(&good);
	facts_find(&facts, &demo, &timeline, &incidents);
	assert_null(facts.missing);
	assert_ptr_equal(facts.iteration, &timeline.iterations[CUT_ITERATION]);
	assert_int_equal(facts.cut_ns, 250000000);
	assert_int_equal(facts.noticed_ns, 255000000);
	assert_int_equal(facts.replayed_ns, 258000000);
	assert_int_equal(facts.share_bytes, 1000);
	assert_int_equal(facts.carried_bytes, 400);
	assert_int_equal(facts.replayed_bytes, 64);
	assert_int_equal(facts.replayed_pieces, 2);
	assert_string_equal(facts.cause, "no progress");
	assert_true(fabs(facts.ratio - 40.0 / 30) < 1e-9);
	assert_true(fabs(facts.ideal - 2) < 1e-9);
	/* Two hosts send 3000 bytes each over two rails of 0.05 MB/s: 30 ms. */
	assert_true(fabs(facts.healthy_share - 1) < 1e-9);
	assert_true(fabs(facts.degraded_share - 1.5) < 1e-9);
}

/* Each guard alone must turn a good run into a bad one. */
static void test_missing(void **state)
{
	struct shape shape = good;

	(void)state;
	shape.driver = "{\n  \"verdict\": \"fail\",\n  \"reason\": \"checks failed\",\n";
	assert_string_equal(missing_of(&shape), "the run failed: checks failed");
	shape.driver = "";
	assert_string_equal(missing_of(&shape), "the run came to no end");
	shape = good;
	shape.cut_ms = 0;
	assert_non_null(strstr(missing_of(&shape), "never came true"));
	shape.cut_ms = 300; /* between two iterations */
	assert_non_null(strstr(missing_of(&shape), "no all-reduce was running"));
	shape.cut_ms = 2000; /* after the job */
	assert_non_null(strstr(missing_of(&shape), "no all-reduce was running"));
	shape = good;
	shape.carried_bytes = 0;
	assert_non_null(strstr(missing_of(&shape), "a part of its usual share"));
	shape.carried_bytes = 1000;
	assert_non_null(strstr(missing_of(&shape), "a part of its usual share"));
	shape = good;
	shape.later_bytes = 2;
	assert_non_null(strstr(missing_of(&shape), "after the cut"));
	shape = good;
	shape.has_replay = false;
	assert_non_null(strstr(missing_of(&shape), "nothing was sent again"));
}

static void test_healed(void **state)
{
	struct shape shape = good;
	struct facts facts;

	(void)state;
	shape.healed_ms = 440;
	assert_non_null(strstr(missing_of(&shape), "not used again"));
	shape.back_bytes = 500;
	run_build(&shape);
	facts_find(&facts, &demo, &timeline, &incidents);
	assert_null(facts.missing);
	assert_int_equal(facts.cut_ns, 250000000);
	assert_int_equal(facts.healed_ns, 440000000);
	assert_int_equal(facts.back_ns, 491000000);
	assert_int_equal(facts.later_bytes, 0);
	assert_true(fabs(facts.degraded_ms - 40) < 1e-9);
	assert_true(fabs(facts.recovered_ms - 40) < 1e-9);
	shape.later_bytes = 2; /* between the cut and the mending */
	assert_non_null(strstr(missing_of(&shape), "after the cut"));
}

static void test_nothing(void **state)
{
	struct facts facts;

	(void)state;
	run_build(&good);
	timeline_clear(&timeline);
	facts_find(&facts, &demo, &timeline, &incidents);
	assert_non_null(facts.missing);
	assert_null(facts.iteration);
	assert_true(facts.ratio == 0 && facts.ideal == 0 && facts.healthy_ms == 0);
}

static void test_rule(void **state)
{
	(void)state;
	demo = (struct demo){.rule = "cut host=3 rail=15 dir=tx bytes=9"};
	assert_int_equal(demo_rule_read(&demo), 0);
	assert_int_equal(demo.host, 3);
	assert_int_equal(demo.rail, 15);
	assert_true(demo.is_cut && demo.has_tx && !demo.has_rx);
	demo = (struct demo){.rule = "rate host=0 rail=1 value=5 dir=rx"};
	assert_int_equal(demo_rule_read(&demo), 0);
	assert_true(!demo.is_cut && !demo.has_tx && demo.has_rx);
	static const char *const bad[] = {"",
					  "cut",
					  "cut host=1",
					  "cut rail=1",
					  "cut host=16 rail=1",
					  "cut host=1 rail=16",
					  "cut host=x rail=1",
					  "cut host=1x rail=1",
					  "cut host= rail=1"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		demo = (struct demo){.rule = bad[i]};
		assert_int_equal(demo_rule_read(&demo), -EINVAL);
	}
}

static void test_incident(void **state)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{",
		"{}",
		"{\"event\":\"x\"}",
		"{\"mono_ns\":5}",
		"{\"mono_ns\":5,\"event\":\"x\"",
		"{\"mono_ns\":5,\"event\":\"x\"} y",
		"{\"mono_ns\":,\"event\":\"x\"}",
		"{\"mono_ns\":5,\"event\":\"x}",
		"{\"mono_ns\":5 \"event\":\"x\"}",
	};
	struct incident incident = {0};

	(void)state;
	assert_int_equal(
		incident_read(" { \"time\":\"t\", \"mono_ns\" : 812, \"event\":\"path_down\","
			      "\"cause\":\"a \\\"b\\\" \\\\\", \"bytes_replayed\":65536,"
			      "\"action\":\"\\\"count\\\":9\",\"local\":\"fab2:1\"}\n",
			      &incident),
		0);
	assert_int_equal(incident.time_ns, 812);
	assert_int_equal(incident.bytes_replayed, 65536);
	assert_int_equal(incident.count, -1);
	assert_string_equal(incident.name, "path_down");
	assert_string_equal(incident.cause, "a \"b\" \\");
	assert_string_equal(incident.local, "fab2:1");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (incident_read(bad[i], &incident) != -EINVAL) {
			fail_msg("taken: %s", bad[i]);
		}
	}
	assert_int_equal(incident.time_ns, 812);
}

static void test_load(void **state)
{
	struct incidents list = {0};
	char path[] = "/tmp/braid_incidents.XXXXXX";
	int fd = mkstemp(path);
	FILE *file = fdopen(fd, "w");

	(void)state;
	assert_non_null(file);
	assert_int_equal(incidents_load(&list, "/nonexistent/*"), 0);
	assert_int_equal(list.count, 0);
	fputs("{\"mono_ns\":1,\"event\":\"a\"}\n{\"mono_ns\":2,\"event\":\"b\"}\n{\"mono_n", file);
	fflush(file);
	assert_int_equal(incidents_load(&list, path), 0);
	assert_int_equal(list.count, 2); /* the unfinished line is for later */
	fputs("s\":3,\"event\":\"c\"}\n", file);
	fflush(file);
	assert_int_equal(incidents_load(&list, path), 0);
	assert_int_equal(list.count, 3);
	fputs("nonsense\n", file);
	fclose(file);
	assert_int_equal(incidents_load(&list, path), -EINVAL);
	unlink(path);
	incidents_clear(&list);
}

static int teardown(void **state)
{
	(void)state;
	timeline_clear(&timeline);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),   cmocka_unit_test(test_missing),
		cmocka_unit_test(test_healed), cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_rule),   cmocka_unit_test(test_incident),
		cmocka_unit_test(test_load),
	};

	return cmocka_run_group_tests(tests, NULL, teardown);
}
