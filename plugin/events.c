/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/events.h"

#include "include/clock.h"
#include "include/log.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES  8192
#define FIELD_MAX_BYTES 768  /* of one text as written; longer ones are cut */
#define FIELD_COUNT     9    /* texts in a line of JSON */
#define REST_MAX_BYTES  1024 /* keys, numbers and punctuation of a line of JSON */

static_assert(FIELD_COUNT * FIELD_MAX_BYTES + REST_MAX_BYTES <= LINE_MAX_BYTES, "any event fits");

struct event_spec {
	const char *name;
	enum log_level level;
};

static const struct event_spec specs[] = {
#define EVENT_SPEC(name_, text_, level_)                                                           \
	[EVENT_##name_] = {.name = (text_), .level = LOG_LEVEL_##level_},
	EVENT_LIST(EVENT_SPEC)
#undef EVENT_SPEC
};

static_assert(sizeof(specs) / sizeof(specs[0]) == EVENT_COUNT, "a spec per kind");

static _Atomic int file_fd = -1;  /* written at init, read by any thread */
static _Atomic bool file_is_torn; /* the last line in the file lacks its end */
static char host_name[HOST_NAME_MAX + 1];

/* A line under construction; full once something did not fit, and then not changed any more. */
struct line {
	char text[LINE_MAX_BYTES];
	size_t len;
	bool is_full;
};

static void line_bytes(struct line *line, const char *bytes, size_t len)
{
	if (line->is_full || len >= sizeof(line->text) - line->len) {
		line->is_full = true;
		return;
	}
	memcpy(line->text + line->len, bytes, len);
	line->len += len;
	line->text[line->len] = '\0';
}

static void line_text(struct line *line, const char *text)
{
	line_bytes(line, text, strlen(text));
}

static void line_number(struct line *line, int64_t value)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%" PRId64, value);
	line_text(line, digits);
}

/* RFC 8259, section 7. Bytes outside ASCII become U+FFFD each, so that the line is always JSON. */
static void line_escaped(struct line *line, const char *text)
{
	size_t end = line->len + FIELD_MAX_BYTES - 6; /* the longest escape still fits */

	for (; *text != '\0' && line->len <= end; text++) {
		unsigned char c = (unsigned char)*text;
		char escape[8];

		if (c == '"' || c == '\\') {
			snprintf(escape, sizeof(escape), "\\%c", c);
			line_text(line, escape);
		} else if (c < 0x20 || c >= 0x7f) {
			snprintf(escape, sizeof(escape), "\\u%04x", c < 0x20 ? c : 0xfffdU);
			line_text(line, escape);
		} else {
			line_bytes(line, text, 1);
		}
	}
}

static void json_text(struct line *line, const char *key, const char *value)
{
	if (value == NULL) {
		return;
	}
	line_text(line, ",\"");
	line_text(line, key);
	line_text(line, "\":\"");
	line_escaped(line, value);
	line_text(line, "\"");
}

static void json_number(struct line *line, const char *key, int64_t value)
{
	if (value < 0) {
		return;
	}
	line_text(line, ",\"");
	line_text(line, key);
	line_text(line, "\":");
	line_number(line, value);
}

static void json_build(struct line *line, const struct event *event)
{
	uint64_t mono_ns = clock_mono_ns();
	struct timespec then;
	struct tm utc;
	char stamp[64];

	clock_gettime(CLOCK_REALTIME, &then);
	if (event->mono_ns >= 0) { /* told later than it happened */
		int64_t real_ns = then.tv_sec * (int64_t)NS_PER_SEC + then.tv_nsec -
				  ((int64_t)mono_ns - event->mono_ns);

		then.tv_sec = real_ns / (int64_t)NS_PER_SEC;
		then.tv_nsec = real_ns % (int64_t)NS_PER_SEC;
		mono_ns = (uint64_t)event->mono_ns;
	}
	gmtime_r(&then.tv_sec, &utc);
	size_t len = strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &utc);

	snprintf(stamp + len, sizeof(stamp) - len, ".%06ldZ", then.tv_nsec / 1000);
	line_text(line, "{\"time\":\"");
	line_text(line, stamp);
	line_text(line, "\"");
	json_number(line, "mono_ns", (int64_t)mono_ns);
	json_text(line, "host", host_name);
	json_number(line, "pid", getpid());
	json_text(line, "event", event_name(event->kind));
	json_number(line, "comm", event->comm_id);
	json_number(line, "path", event->path_idx);
	json_number(line, "rail", event->rail_idx);
	json_text(line, "local", event->local);
	json_text(line, "remote", event->remote);
	json_text(line, "peer", event->peer);
	json_number(line, "epoch", event->epoch);
	json_text(line, "old_state", event->old_state);
	json_text(line, "new_state", event->new_state);
	json_text(line, "cause", event->cause);
	json_text(line, "action", event->action);
	json_number(line, "seq", event->seq);
	json_number(line, "bytes_replayed", event->bytes_replayed);
	json_number(line, "duration_ns", event->duration_ns);
	json_number(line, "count", event->count);
	line_text(line, "}\n");
}

/* The whole line or nothing, by one write: O_APPEND keeps lines of several processes apart. */
static void file_write(int fd, const struct line *line)
{
	ASSERT(!line->is_full);
	if (atomic_exchange_explicit(&file_is_torn, false, memory_order_relaxed) &&
	    write(fd, "\n", 1) != 1) {
		atomic_store_explicit(&file_is_torn, true, memory_order_relaxed);
	}
	ssize_t done = write(fd, line->text, line->len);

	if (done == (ssize_t)line->len) {
		return;
	}
	if (done >= 0) {
		errno = ENOSPC;
		atomic_store_explicit(&file_is_torn, done > 0, memory_order_relaxed);
	}
	LOG_WARN_LIMITED("event file: a line was dropped: %m");
}

static void log_text(struct line *line, const char *before, const char *text, const char *after)
{
	if (text != NULL) {
		line_text(line, before);
		line_bytes(line, text, strnlen(text, FIELD_MAX_BYTES));
		line_text(line, after);
	}
}

static void log_number(struct line *line, const char *before, int64_t value)
{
	if (value >= 0) {
		line_text(line, before);
		line_number(line, value);
	}
}

/* host, where, between whom, then what and why. */
static void log_emit(const struct event *event)
{
	struct line line = {.len = 0};
	const struct event_spec *spec = &specs[event->kind];

	line_text(&line, spec->name);
	log_text(&line, ": host ", host_name[0] != '\0' ? host_name : NULL, "");
	log_number(&line, " comm ", event->comm_id);
	log_number(&line, " path ", event->path_idx);
	log_number(&line, " rail ", event->rail_idx);
	log_text(&line, " ", event->local, "");
	log_text(&line, " -> ", event->remote, "");
	log_text(&line, " peer ", event->peer, "");
	log_number(&line, " epoch ", event->epoch);
	log_text(&line, " was ", event->old_state, "");
	log_text(&line, " now ", event->new_state, "");
	log_text(&line, ", cause: ", event->cause, "");
	log_text(&line, ", action: ", event->action, "");
	log_number(&line, ", seq ", event->seq);
	log_number(&line, ", bytes replayed ", event->bytes_replayed);
	log_number(&line, ", count ", event->count);
	log_number(&line, ", after us ", event->duration_ns < 0 ? -1 : event->duration_ns / 1000);
	if (spec->level == LOG_LEVEL_WARN) {
		LOG_WARN("%s", line.text);
	} else {
		LOG_INFO("%s", line.text);
	}
}

const char *event_name(enum event_kind kind)
{
	return (unsigned)kind < EVENT_COUNT ? specs[kind].name : "unknown";
}

static_assert(LINE_MAX_BYTES > PATH_MAX + HOST_NAME_MAX, "what is cut is too long for open(2)");

/* Expand %h, %p and %%; anything else after a percent sign is refused. */
static int pattern_expand(const char *pattern, struct line *path)
{
	for (const char *at = pattern; *at != '\0'; at++) {
		if (*at != '%') {
			line_bytes(path, at, 1);
			continue;
		}
		at++;
		if (*at == 'h') {
			line_text(path, host_name);
		} else if (*at == 'p') {
			line_number(path, getpid());
		} else if (*at == '%') {
			line_text(path, "%");
		} else {
			return -EINVAL;
		}
	}
	return 0;
}

static int file_open(const char *path, int *out)
{
	struct stat info;
	int fd =
		open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644);

	if (fd < 0) {
		return -errno;
	}
	if (fstat(fd, &info) != 0 || (!S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode))) {
		close(fd);
		return -ENOTSUP;
	}
	*out = fd;
	return 0;
}

static void host_name_read(void)
{
	if (gethostname(host_name, sizeof(host_name)) != 0) {
		snprintf(host_name, sizeof(host_name), "unknown");
	}
	host_name[sizeof(host_name) - 1] = '\0';
}

int events_open(const char *pattern)
{
	struct line path = {.len = 0};
	int fd = -1;

	events_close();
	host_name_read();
	if (pattern == NULL || pattern[0] == '\0') {
		return 0;
	}
	int rc = pattern_expand(pattern, &path);

	if (rc == 0) {
		rc = file_open(path.text, &fd);
	}
	if (rc != 0) {
		errno = -rc;
		LOG_WARN("BRAID_EVENT_FILE='%s': %s; no event file is written", pattern,
			 rc == -EINVAL    ? "only %h, %p and %% are known"
			 : rc == -ENOTSUP ? "neither a regular file nor a character device"
					  : strerror(-rc));
		return rc;
	}
	atomic_store_explicit(&file_is_torn, false, memory_order_relaxed);
	atomic_store_explicit(&file_fd, fd, memory_order_release);
	return 0;
}

void events_close(void)
{
	int fd = atomic_exchange_explicit(&file_fd, -1, memory_order_acq_rel);

	if (fd >= 0) {
		close(fd);
	}
}

void events_emit(const struct event *event)
{
	int saved_errno = errno;
	int fd = atomic_load_explicit(&file_fd, memory_order_acquire);

	ASSERT((unsigned)event->kind < EVENT_COUNT);
	if ((unsigned)event->kind >= EVENT_COUNT) {
		return;
	}
	if (fd >= 0) {
		struct line line = {.len = 0};

		json_build(&line, event);
		file_write(fd, &line);
	}
	log_emit(event);
	errno = saved_errno;
}
