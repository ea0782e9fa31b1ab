/* SPDX-License-Identifier: Apache-2.0 */
/* An environment: settings separated by newlines. */
#include "include/config.h"
#include "include/log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
	SETTINGS_MAX = 64
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

static void sink(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	(void)fmt;
}

/* Whatever was given, a number that was accepted is in its range. */
static void check_ranges(const struct braid_config *config)
{
	if (config->paths_max_count < 1 || config->paths_max_count > 16 ||
	    config->ib_retry_count < 0 || config->ib_retry_count > 7 || config->piece_bytes % 128) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	char *text = malloc(len_bytes + 1), *env[SETTINGS_MAX + 1];
	struct braid_config config;
	size_t count = 0;
	char *save = NULL;

	if (!text) {
		return 0;
	}
	log_sink_set(sink);
	memcpy(text, data, len_bytes);
	text[len_bytes] = 0;
	for (char *at = strtok_r(text, "\n", &save); at && count < SETTINGS_MAX;
	     at = strtok_r(NULL, "\n", &save)) {
		env[count++] = at;
	}
	env[count] = NULL;
	if (config_load(env, &config) == 0) {
		check_ranges(&config);
	}
	free(text);
	return 0;
}
