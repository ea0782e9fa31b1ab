/* SPDX-License-Identifier: Apache-2.0 */
#include "include/log.h"
#include "include/nccl_net.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct {
	int count;
	int level;
	unsigned long flags;
	char file[64];
	char text[2 * LOG_LINE_MAX_BYTES];
} seen;

static void sink(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	va_list args;

	(void)line;
	seen.count++;
	seen.level = level;
	seen.flags = flags;
	snprintf(seen.file, sizeof(seen.file), "%s", file);
	va_start(args, fmt);
	vsnprintf(seen.text, sizeof(seen.text), fmt, args);
	va_end(args);
	errno = EDOM; /* a sink may well do so */
}

static int setup(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	log_sink_set(sink);
	return 0;
}

/* NCCL's logger must fit the sink as it is. */
static void test_sink_type(void **state)
{
	nccl_logger_fn logger = sink;
	log_sink_fn same = logger;

	(void)state;
	assert_true(same == sink);
}

static void test_levels_and_flags(void **state)
{
	(void)state;
	LOG_WARN("rail %d down", 3);
	assert_string_equal(seen.text, "NET/Braid rail 3 down");
	assert_string_equal(seen.file, "test_log.c");
	assert_int_equal(seen.level, 2);
	assert_true(seen.flags == ~0UL);
	LOG_INFO("x");
	assert_int_equal(seen.level, 3);
	assert_int_equal(seen.flags, 0x11);
	LOG_ENV("x");
	assert_int_equal(seen.flags, 0x81);
	assert_int_equal(seen.count, 3);
	LOG_TRACE("x %d", 1);
#ifndef BRAID_TRACE
	assert_int_equal(seen.count, 3);
#endif
}

static void test_errno_kept(void **state)
{
	(void)state;
	errno = ENOENT;
	LOG_WARN("open: %m");
	assert_int_equal(errno, ENOENT);
	assert_string_equal(seen.text, "NET/Braid open: No such file or directory");
	LOG_WARN_LIMITED("open: %m");
	assert_int_equal(errno, ENOENT);
	assert_string_equal(seen.text, "NET/Braid open: No such file or directory");
}

static void test_control_characters(void **state)
{
	(void)state;
	LOG_WARN("peer says '%s'", "a\nFAKE\x1b[2J\x7f");
	assert_string_equal(seen.text, "NET/Braid peer says 'a?FAKE?[2J?'");
}

static void test_long_line(void **state)
{
	char big[3 * LOG_LINE_MAX_BYTES];

	(void)state;
	memset(big, 'y', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	LOG_WARN("%s", big);
	assert_int_equal(strlen(seen.text), LOG_LINE_MAX_BYTES - 1);
	assert_string_equal(seen.text + LOG_LINE_MAX_BYTES - 5, "y...");
	/* The longest that fits is not cut. */
	big[LOG_LINE_MAX_BYTES - 1 - strlen(LOG_PREFIX)] = '\0';
	LOG_WARN("%s", big);
	assert_int_equal(strlen(seen.text), LOG_LINE_MAX_BYTES - 1);
	assert_string_equal(seen.text + LOG_LINE_MAX_BYTES - 5, "yyyy");
}

static void test_limit(void **state)
{
	struct log_limit limit = {0};
	const uint64_t start_ns = 77;
	unsigned held = 99;

	(void)state;
	for (unsigned i = 0; i < LOG_LIMIT_PASS_COUNT; i++) {
		assert_true(log_limit_pass(&limit, start_ns + i, &held));
		assert_int_equal(held, 0);
	}
	for (unsigned i = 0; i < 7; i++) {
		assert_false(log_limit_pass(&limit, start_ns + LOG_LIMIT_WINDOW_NS - 1, &held));
	}
	assert_true(log_limit_pass(&limit, start_ns + LOG_LIMIT_WINDOW_NS, &held));
	assert_int_equal(held, 7);
	assert_true(log_limit_pass(&limit, start_ns + LOG_LIMIT_WINDOW_NS, &held));
	assert_int_equal(held, 0);
}

static void test_limited_line_says_held(void **state)
{
	struct log_limit limit = {0};

	(void)state;
	for (int i = 0; i < 8; i++) {
		log_write_limited(&limit, "f", 1, "again");
	}
	assert_int_equal(seen.count, LOG_LIMIT_PASS_COUNT);
	atomic_store_explicit(&limit.window_start_ns, 0, memory_order_relaxed);
	log_write_limited(&limit, "f", 1, "again");
	assert_string_equal(seen.text, "NET/Braid (after 3 like it held back) again");
}

static int broken_invariant(int value)
{
	INVARIANT(value == 1);
	return 0;
}

static void test_invariant(void **state)
{
	(void)state;
	assert_int_equal(broken_invariant(1), 0);
	assert_int_equal(seen.count, 0);
	assert_int_equal(broken_invariant(2), -EIO);
	assert_string_equal(seen.text,
			    "NET/Braid invariant broken in broken_invariant: value == 1");
}

/* Run `body` in a child whose stderr is a pipe; returns its wait status and what it wrote. */
static int in_child(void (*body)(void), char *out, size_t room)
{
	int fds[2];
	int status;

	assert_int_equal(pipe(fds), 0);
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		signal(SIGABRT, SIG_DFL);
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		log_sink_set(NULL);
		body();
		_exit(0);
	}
	close(fds[1]);
	ssize_t len = read(fds[0], out, room - 1);

	out[len > 0 ? len : 0] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void body_levels(void)
{
	LOG_INFO("not shown");
	LOG_WARN("shown");
}

static void body_panic(void)
{
	PANIC("bytes of seq %d", 4);
}

static void body_assert(void)
{
	ASSERT(1 + 1 == 2);
	ASSERT(1 + 1 == 3);
}

static void test_without_sink(void **state)
{
	char out[256];

	(void)state;
	assert_int_equal(in_child(body_levels, out, sizeof(out)), 0);
	assert_string_equal(out, "NET/Braid shown\n");
}

static void test_panic_and_assert(void **state)
{
	char out[256];

	(void)state;
	int status = in_child(body_panic, out, sizeof(out));

	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_string_equal(out, "NET/Braid bytes of seq 4\n");
	status = in_child(body_assert, out, sizeof(out));
#ifdef NDEBUG
	assert_int_equal(status, 0);
#else
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_string_equal(out, "NET/Braid assertion failed in body_assert: 1 + 1 == 3\n");
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_sink_type, setup),
		cmocka_unit_test_setup(test_levels_and_flags, setup),
		cmocka_unit_test_setup(test_errno_kept, setup),
		cmocka_unit_test_setup(test_control_characters, setup),
		cmocka_unit_test_setup(test_long_line, setup),
		cmocka_unit_test_setup(test_limit, setup),
		cmocka_unit_test_setup(test_limited_line_says_held, setup),
		cmocka_unit_test_setup(test_invariant, setup),
		cmocka_unit_test_setup(test_without_sink, setup),
		cmocka_unit_test_setup(test_panic_and_assert, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
