/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_gid - which GIDs the plugin chooses, asked line by line on stdin:
 *
 *   open [NAME=VALUE]...   open the rails with these variables
 *   refresh                look at their ports again, as before a rejoin
 *
 * Answers with a line per rail, "rxe_a0: 1 10.77.0.1" or "rxe_a0: out", lines "WARN ..." before it,
 * and a line "." at the end. For test/guest/gids, which knows what the tables hold.
 */
#include "ib/gid.h"
#include "ib/rail.h"
#include "include/config.h"
#include "include/log.h"

#include <stdio.h>
#include <string.h>

enum {
	WORDS_MAX = 16
};

static void sink(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

static void sink(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	va_list args;

	(void)flags;
	(void)file;
	(void)line;
	if (level > LOG_LEVEL_WARN) {
		return;
	}
	printf("WARN ");
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
}

static void rail_print(const struct ib_rail *rail, bool usable)
{
	char text[GID_TEXT_MAX_BYTES];
	struct ib_rail_addr addr;

	ib_rail_addr_get(rail, &addr);
	if (usable) {
		printf("%s: %d %s\n", rail->name, addr.gid_index, ib_gid_text(&addr.gid, text));
	} else {
		printf("%s: out\n", rail->name);
	}
}

/* words: NAME=VALUE..., then NULL. NULL when the configuration or the devices are no good. */
static struct ib_rails *rails_open(char *const *words, struct braid_config *cfg)
{
	struct ib_rails *rails = NULL;

	if (config_load(words, cfg) || ib_rails_open(cfg, &rails)) {
		puts("failed");
		return NULL;
	}
	for (unsigned int i = 0; i < rails->count; i++) {
		rail_print(&rails->rails[i], true);
	}
	return rails;
}

static void rails_refresh(struct ib_rails *rails, const struct braid_config *cfg)
{
	for (unsigned int i = 0; rails && i < rails->count; i++) {
		bool moved;

		rail_print(&rails->rails[i], !ib_rail_refresh(&rails->rails[i], cfg, &moved));
	}
}

int main(void)
{
	struct ib_rails *rails = NULL;
	struct braid_config cfg;
	char line[512];

	log_sink_set(sink);
	while (fgets(line, sizeof(line), stdin)) {
		char *words[WORDS_MAX + 1] = {NULL};
		unsigned int count = 0;

		for (char *word = strtok(line, " \n"); word && count < WORDS_MAX;
		     word = strtok(NULL, " \n")) {
			words[count++] = word;
		}
		if (count && strcmp(words[0], "open") == 0) {
			ib_rails_close(rails);
			rails = rails_open(words + 1, &cfg);
		} else if (count && strcmp(words[0], "refresh") == 0) {
			rails_refresh(rails, &cfg);
		} else {
			puts("open or refresh?");
		}
		puts(".");
		fflush(stdout);
	}
	ib_rails_close(rails);
	return 0;
}
