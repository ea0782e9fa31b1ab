/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "include/log.h"
#include "plugin/events.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];
static char path[128];
static char host[256];
static char lines[65536]; /* of the file, as read last */
static char logged[LOG_LINE_MAX_BYTES];
static int logged_level;

static void sink(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	va_list args;

	(void)flags;
	(void)file;
	(void)line;
	logged_level = level;
	va_start(args, fmt);
	vsnprintf(logged, sizeof(logged), fmt, args);
	va_end(args);
}

static void quiet_sink(int level, unsigned long flags, const char *file, int line, const char *fmt,
		       ...)
{
	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	(void)fmt;
}

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/braid_events.XXXXXX");
	if (mkdtemp(dir) == NULL || gethostname(host, sizeof(host)) != 0) {
		return -1;
	}
	snprintf(path, sizeof(path), "%s/events", dir);
	logged[0] = '\0';
	log_sink_set(sink);
	return 0;
}

static int teardown(void **state)
{
	DIR *list = opendir(dir);
	struct dirent *entry;
	char name[512];

	(void)state;
	events_close();
	while (list != NULL && (entry = readdir(list)) != NULL) {
		snprintf(name, sizeof(name), "%s/%s", dir, entry->d_name);
		unlink(name);
	}
	if (list != NULL) {
		closedir(list);
	}
	return rmdir(dir);
}

static void file_read(const char *name)
{
	FILE *file = fopen(name, "r");

	assert_non_null(file);
	size_t len = fread(lines, 1, sizeof(lines) - 1, file);

	lines[len] = '\0';
	fclose(file);
}

static unsigned line_count(void)
{
	unsigned count = 0;

	for (const char *c = lines; *c != '\0'; c++) {
		count += *c == '\n';
	}
	return count;
}

static struct event fault(void)
{
	struct event event = EVENT_INIT(EVENT_PATH_FAULT);

	event.local = "mlx5_1:1";
	event.remote = "mlx5_3:1";
	event.peer = "node9/4711";
	event.cause = "port down";
	event.action = "fence, then replay";
	event.old_state = "UP";
	event.new_state = "FENCING";
	event.comm_id = 3;
	event.path_idx = 0;
	event.rail_idx = 1;
	event.epoch = 4;
	event.seq = 17;
	event.bytes_replayed = 65536;
	event.duration_ns = 1200345;
	event.count = 2;
	return event;
}

static void test_log_line(void **state)
{
	struct event event = fault();
	struct event bare = EVENT_INIT(EVENT_LINK_UP);
	char want[LOG_LINE_MAX_BYTES];

	(void)state;
	assert_int_equal(events_open(NULL), 0);
	events_emit(&event);
	snprintf(want, sizeof(want),
		 "NET/Braid path_fault: host %s comm 3 path 0 rail 1 mlx5_1:1 -> mlx5_3:1 peer "
		 "node9/4711 "
		 "epoch 4 was UP now FENCING, cause: port down, action: fence, then replay, seq "
		 "17, bytes "
		 "replayed 65536, count 2, after us 1200",
		 host);
	assert_string_equal(logged, want);
	assert_int_equal(logged_level, LOG_LEVEL_WARN);
	events_emit(&bare);
	snprintf(want, sizeof(want), "NET/Braid link_up: host %s", host);
	assert_string_equal(logged, want);
	assert_int_equal(logged_level, LOG_LEVEL_INFO);
}

static void test_json_line(void **state)
{
	struct event event = fault();
	char want[1024];
	unsigned year;
	unsigned long long mono_ns;
	int used = 0;

	(void)state;
	assert_int_equal(events_open(path), 0);
	events_emit(&event);
	file_read(path);
	assert_int_equal(
		sscanf(lines,
		       "{\"time\":\"%4u-%*2u-%*2uT%*2u:%*2u:%*2u.%*6uZ\",\"mono_ns\":%llu,%n",
		       &year, &mono_ns, &used),
		2);
	assert_in_range(year, 2024, 2200);
	assert_true(mono_ns > 0 && used > 0);
	snprintf(want, sizeof(want),
		 "\"host\":\"%s\",\"pid\":%d,\"event\":\"path_fault\",\"comm\":3,\"path\":0,"
		 "\"rail\":1,"
		 "\"local\":\"mlx5_1:1\",\"remote\":\"mlx5_3:1\",\"peer\":\"node9/"
		 "4711\",\"epoch\":4,"
		 "\"old_state\":\"UP\",\"new_state\":\"FENCING\",\"cause\":\"port down\","
		 "\"action\":\"fence, then replay\",\"seq\":17,\"bytes_replayed\":65536,"
		 "\"duration_ns\":1200345,\"count\":2}\n",
		 host, getpid());
	assert_string_equal(lines + used, want);
}

/* Told later than it happened: both clocks say when it did. */
static void test_json_time(void **state)
{
	struct event event = EVENT_INIT(EVENT_PATH_FAULT);
	int64_t mono_ns = (int64_t)clock_mono_ns();
	/* An hour ago, but after this machine started. */
	int64_t ago_ns =
		mono_ns / 2 < 3600 * (int64_t)NS_PER_SEC ? mono_ns / 2 : 3600 * (int64_t)NS_PER_SEC;
	char want[64];
	struct tm utc;
	time_t now;

	(void)state;
	event.mono_ns = mono_ns - ago_ns;
	assert_int_equal(events_open(path), 0);
	now = time(NULL);
	events_emit(&event);
	file_read(path);
	memset(&utc, 0, sizeof(utc));
	assert_non_null(strptime(lines, "{\"time\":\"%Y-%m-%dT%H:%M:%S", &utc));
	assert_in_range(now - timegm(&utc), ago_ns / (int64_t)NS_PER_SEC - 2,
			ago_ns / (int64_t)NS_PER_SEC + 2);
	snprintf(want, sizeof(want), "\"mono_ns\":%lld,", (long long)event.mono_ns);
	assert_non_null(strstr(lines, want));
}

static void test_json_unknown_left_out(void **state)
{
	struct event event = EVENT_INIT(EVENT_PEER_GONE);
	char want[512];

	(void)state;
	assert_int_equal(events_open(path), 0);
	events_emit(&event);
	file_read(path);
	snprintf(want, sizeof(want), "\"host\":\"%s\",\"pid\":%d,\"event\":\"peer_gone\"}\n", host,
		 getpid());
	assert_non_null(strstr(lines, want));
}

static void test_json_escapes(void **state)
{
	struct event event = EVENT_INIT(EVENT_RAIL_DOWN);

	(void)state;
	event.cause = "a\"b\\c\nd\x01\x7f\xc3\xa9";
	assert_int_equal(events_open(path), 0);
	events_emit(&event);
	file_read(path);
	assert_non_null(
		strstr(lines, "\"cause\":\"a\\\"b\\\\c\\u000ad\\u0001\\ufffd\\ufffd\\ufffd\"}\n"));
	assert_int_equal(line_count(), 1);
}

/* Every text at its longest and worst: cut, and still one whole line. */
static void test_json_longest(void **state)
{
	struct event event = EVENT_INIT(EVENT_COMM_RESUMED);
	char worst[3000];

	(void)state;
	memset(worst, '\x01', sizeof(worst) - 1);
	worst[sizeof(worst) - 1] = '\0';
	event.local = event.remote = event.peer = event.old_state = event.new_state = worst;
	event.cause = event.action = worst;
	event.comm_id = event.path_idx = event.rail_idx = event.epoch = event.seq = INT64_MAX;
	event.bytes_replayed = event.duration_ns = event.count = INT64_MAX;
	assert_int_equal(events_open(path), 0);
	events_emit(&event);
	file_read(path);
	assert_int_equal(line_count(), 1);
	assert_non_null(strstr(lines, "\\u0001\",\"seq\":9223372036854775807,"));
	assert_string_equal(lines + strlen(lines) - 2, "}\n");
}

static void test_pattern(void **state)
{
	struct event event = EVENT_INIT(EVENT_LINK_UP);
	char pattern[128];
	char name[512];

	(void)state;
	snprintf(pattern, sizeof(pattern), "%s/%%h.%%p%%%%", dir);
	snprintf(name, sizeof(name), "%s/%s.%d%%", dir, host, getpid());
	assert_int_equal(events_open(pattern), 0);
	events_emit(&event);
	file_read(name);
	assert_int_equal(line_count(), 1);
	assert_int_equal(events_open("/tmp/x%d"), -EINVAL);
	assert_non_null(
		strstr(logged, "BRAID_EVENT_FILE='/tmp/x%d': only %h, %p and %% are known"));
	assert_int_equal(events_open("/tmp/x%"), -EINVAL);
}

static void test_appends(void **state)
{
	struct event event = EVENT_INIT(EVENT_LINK_UP);

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(events_open(path), 0);
		events_emit(&event);
		events_close();
		events_emit(&event);
	}
	file_read(path);
	assert_int_equal(line_count(), 3);
}

/* A pipe would raise SIGPIPE in the host process once its reader leaves. */
static void test_refused_kinds(void **state)
{
	char name[160];
	char long_name[5000];

	(void)state;
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(events_open(path), -ENXIO);
	int reader = open(path, O_RDONLY | O_NONBLOCK);

	assert_true(reader >= 0);
	assert_int_equal(events_open(path), -ENOTSUP);
	assert_non_null(strstr(logged, "neither a regular file nor a character device"));
	close(reader);
	assert_int_equal(events_open(dir), -EISDIR);
	snprintf(name, sizeof(name), "%s/none/events", dir);
	assert_int_equal(events_open(name), -ENOENT);
	memset(long_name, 'n', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = '\0';
	assert_int_equal(events_open(long_name), -ENAMETOOLONG);
}

static void test_full_disk(void **state)
{
	struct event event = EVENT_INIT(EVENT_LINK_UP);

	(void)state;
	if (access("/dev/full", W_OK) != 0) {
		skip();
	}
	assert_int_equal(events_open("/dev/full"), 0);
	errno = EXDEV;
	events_emit(&event);
	assert_int_equal(errno, EXDEV);
	/* The log has the event all the same, after the complaint. */
	assert_non_null(strstr(logged, "link_up"));
}

/* A line cut short by a limit must not swallow the next one. */
static void test_torn_line(void **state)
{
	struct event event = EVENT_INIT(EVENT_LINK_UP);
	struct rlimit before;
	struct rlimit tight;

	(void)state;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(events_open(path), 0);
	events_emit(&event);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	tight = before;
	file_read(path);
	tight.rlim_cur = strlen(lines) + 10;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
	events_emit(&event);
	events_emit(&event);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	events_emit(&event);
	file_read(path);
	assert_int_equal(line_count(), 3);
	assert_non_null(strstr(lines, "}\n{\"time\":\"2\n{\"time\":\"20"));
}

static void *emit_many(void *arg)
{
	for (int i = 0; i < 50; i++) {
		events_emit(arg);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct event event = EVENT_INIT(EVENT_REPLAY);
	pthread_t threads[4];
	const char *line = lines;

	(void)state;
	log_sink_set(quiet_sink);
	assert_int_equal(events_open(path), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, emit_many, &event), 0);
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	}
	file_read(path);
	assert_int_equal(line_count(), 200);
	while (*line != '\0') {
		const char *end = strchr(line, '\n');

		assert_true(strncmp(line, "{\"time\":\"", 9) == 0 && end[-1] == '}');
		line = end + 1;
	}
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(event_name(EVENT_RAIL_TABLE), "rail_table");
	assert_string_equal(event_name(EVENT_PEER_GONE), "peer_gone");
	assert_string_equal(event_name(EVENT_COUNT), "unknown");
	assert_string_equal(event_name((enum event_kind) - 1), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_log_line, setup, teardown),
		cmocka_unit_test_setup_teardown(test_json_line, setup, teardown),
		cmocka_unit_test_setup_teardown(test_json_time, setup, teardown),
		cmocka_unit_test_setup_teardown(test_json_unknown_left_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_json_escapes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_json_longest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pattern, setup, teardown),
		cmocka_unit_test_setup_teardown(test_appends, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refused_kinds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
		cmocka_unit_test_setup_teardown(test_torn_line, setup, teardown),
		cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
