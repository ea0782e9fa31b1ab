/* SPDX-License-Identifier: Apache-2.0 */
#include "include/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic(log_sink_fn) log_sink;

void log_sink_set(log_sink_fn sink)
{
	atomic_store_explicit(&log_sink, sink, memory_order_release);
}

/* Append to the line of *len bytes; marks a cut line by "..." and never writes past its end. */
static void line_append(char line[LOG_LINE_MAX_BYTES], size_t *len, const char *fmt, va_list args)
{
	size_t room = LOG_LINE_MAX_BYTES - *len;
	int want = vsnprintf(line + *len, room, fmt, args);

	if (want < 0) {
		line[*len] = '\0';
		return;
	}
	if ((size_t)want < room) {
		*len += (size_t)want;
		return;
	}
	*len = LOG_LINE_MAX_BYTES - 1;
	memcpy(line + *len - 3, "...", 3);
}

static void line_clean(char *line)
{
	for (char *c = line; *c != '\0'; c++) {
		if ((unsigned char)*c < 0x20 || (unsigned char)*c == 0x7f) {
			*c = '?';
		}
	}
}

/* stderr may be full or closed; a line lost there has nowhere else to go. */
static void line_to_stderr(char line[LOG_LINE_MAX_BYTES], size_t len)
{
	if (len == LOG_LINE_MAX_BYTES - 1) {
		len--;
	}
	line[len] = '\n';
	ssize_t done = write(STDERR_FILENO, line, len + 1);

	(void)done;
}

static void line_emit(enum log_level level, unsigned long flags, const char *file, int line_number,
		      char line[LOG_LINE_MAX_BYTES])
{
	log_sink_fn sink = atomic_load_explicit(&log_sink, memory_order_acquire);
	const char *slash = strrchr(file, '/');

	line_clean(line);
	if (sink != NULL) {
		sink((int)level, flags, slash != NULL ? slash + 1 : file, line_number, "%s", line);
	} else if (level == LOG_LEVEL_WARN) {
		line_to_stderr(line, strlen(line));
	}
}

void log_write(enum log_level level, unsigned long flags, const char *file, int line,
	       const char *fmt, ...)
{
	int saved_errno = errno;
	char text[LOG_LINE_MAX_BYTES] = LOG_PREFIX;
	size_t len = sizeof(LOG_PREFIX) - 1;
	va_list args;

	va_start(args, fmt);
	line_append(text, &len, fmt, args);
	va_end(args);
	line_emit(level, flags, file, line, text);
	errno = saved_errno;
}

bool log_limit_pass(struct log_limit *limit, uint64_t now_ns, unsigned *held_count)
{
	uint64_t start_ns = atomic_load_explicit(&limit->window_start_ns, memory_order_relaxed);

	/* Of the threads that find the window over, the one that wins the exchange renews it. */
	if (start_ns == 0 || now_ns - start_ns >= LOG_LIMIT_WINDOW_NS) {
		if (atomic_compare_exchange_strong_explicit(&limit->window_start_ns, &start_ns,
							    now_ns, memory_order_relaxed,
							    memory_order_relaxed)) {
			atomic_store_explicit(&limit->pass_count, 0, memory_order_relaxed);
		}
	}
	if (atomic_fetch_add_explicit(&limit->pass_count, 1, memory_order_relaxed) >=
	    LOG_LIMIT_PASS_COUNT) {
		atomic_fetch_add_explicit(&limit->held_count, 1, memory_order_relaxed);
		return false;
	}
	*held_count = atomic_exchange_explicit(&limit->held_count, 0, memory_order_relaxed);
	return true;
}

static uint64_t now_ns_read(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec + 1;
}

void log_write_limited(struct log_limit *limit, const char *file, int line, const char *fmt, ...)
{
	int saved_errno = errno;
	char text[LOG_LINE_MAX_BYTES] = LOG_PREFIX;
	size_t len = sizeof(LOG_PREFIX) - 1;
	unsigned held_count = 0;
	va_list args;

	if (!log_limit_pass(limit, now_ns_read(), &held_count)) {
		errno = saved_errno;
		return;
	}
	errno = saved_errno;
	if (held_count > 0) {
		int head = snprintf(text + len, sizeof(text) - len, "(after %u like it held back) ",
				    held_count);

		len += head > 0 ? (size_t)head : 0;
	}
	va_start(args, fmt);
	line_append(text, &len, fmt, args);
	va_end(args);
	line_emit(LOG_LEVEL_WARN, LOG_FLAGS_ALL, file, line, text);
	errno = saved_errno;
}

void log_invariant(const char *file, int line, const char *function, const char *condition)
{
	log_write(LOG_LEVEL_WARN, LOG_FLAGS_ALL, file, line, "invariant broken in %s: %s", function,
		  condition);
}

void log_panic(const char *file, int line, const char *fmt, ...)
{
	char text[LOG_LINE_MAX_BYTES] = LOG_PREFIX;
	size_t len = sizeof(LOG_PREFIX) - 1;
	va_list args;

	va_start(args, fmt);
	line_append(text, &len, fmt, args);
	va_end(args);
	line_emit(LOG_LEVEL_WARN, LOG_FLAGS_ALL, file, line, text);
	abort();
}
