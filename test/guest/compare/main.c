/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_compare DEVICE_A DEVICE_B [stream] - asks a verbs provider how it behaves where the
 * specification or providers differ, one "topic: answer" a line. test/guest/side_by_side lays the
 * answers of two providers beside each other. Statuses are those of enum ibv_wc_status, other
 * numbers errno. With "stream" only the last question is put, four times.
 */
#include "test/guest/compare/probes.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
	STREAM_TIMES = 4
};

void say(const char *topic, const char *fmt, ...)
{
	va_list args;

	printf("%s: ", topic);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static void (*const probes[])(struct end *, struct end *) = {
		probe_states, probe_flush,   probe_late_posts, probe_received,    probe_failed_wc,
		probe_left,   probe_self,    probe_full,       probe_patience,    probe_rnr,
		probe_keys,   probe_numbers, probe_qp_events,  probe_port_events, probe_stream};
	struct end a, b;

	if (argc < 3) {
		fprintf(stderr, "usage: %s DEVICE_A DEVICE_B [stream]\n", argv[0]);
		return 2;
	}
	size_t count = sizeof(probes) / sizeof(probes[0]);
	bool only_stream = argc > 3;

	if (!only_stream) {
		probe_process(argv[1], argv[2]);
	}
	for (size_t n = 0; n < (only_stream ? STREAM_TIMES : count); n++) {
		size_t i = only_stream ? count - 1 : n;
		int err = end_open(&a, argv[1]);
		int err_b = end_open(&b, argv[2]);

		if (err || err_b) {
			fprintf(stderr, "compare: %s: %s\n", err ? argv[1] : argv[2],
				strerror(err ? -err : -err_b));
			return 1;
		}
		probes[i](&a, &b);
		end_close(&a);
		end_close(&b);
	}
	return 0;
}
