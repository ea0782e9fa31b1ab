/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/logger.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum level {
	LEVEL_NONE,
	LEVEL_VERSION,
	LEVEL_WARN,
	LEVEL_INFO,
	LEVEL_ABORT,
	LEVEL_TRACE,
	LEVEL_COUNT
};

static const char *const level_names[LEVEL_COUNT] = {
	"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE",
};

/* NCCL's logger gets no context either, so this is the process's. Written once by logger_init. */
static struct {
	struct tally *tally;
	int rank;
	int level;
} logger;

void logger_init(struct tally *tally, int rank)
{
	const char *want = getenv("NCCL_DEBUG");

	logger.tally = tally;
	logger.rank = rank;
	logger.level = LEVEL_NONE;
	for (int level = 0; want && level < LEVEL_COUNT; level++) {
		if (!strcasecmp(want, level_names[level])) {
			logger.level = level;
		}
	}
}

void logger_write(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[1024];
	char out[1400];
	struct timespec now;
	va_list args;

	(void)flags;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (level == LEVEL_WARN) {
		tally_add(logger.tally, logger.rank, TALLY_WARN, 1, "%.180s", text);
	}
	if (level > logger.level || level < 0 || level >= LEVEL_COUNT) {
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	int len = snprintf(out, sizeof(out), "%ld.%06ld rank %d: NCCL %s %s:%d %s\n",
			   (long)now.tv_sec, now.tv_nsec / 1000, logger.rank, level_names[level],
			   file ? file : "?", line, text);

	/* One write a line, so that the lines of different ranks do not mix. */
	if (len > 0 && write(STDERR_FILENO, out, (size_t)len) < 0) {
		return;
	}
}
