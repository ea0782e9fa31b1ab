/* SPDX-License-Identifier: Apache-2.0 */
#include "test/guest/compare/probes.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	FIRST_MS = 10000, /**< for the first event that is sure to come */
	NEXT_MS = 300     /**< for one more, or for one that may not come */
};

/**
 * Numbers of the events (enum ibv_event_type), in their order, the same one twice in a row once;
 * "none" if the first does not come in first_ms.
 */
static const char *events_text(struct end *end, int first_ms, char *text, size_t cap)
{
	struct pollfd fd = {.fd = end->ctx->async_fd, .events = POLLIN};
	struct ibv_async_event event;
	size_t len = 0;
	int last = -1;

	snprintf(text, cap, "none");
	while (len < cap && poll(&fd, 1, len ? NEXT_MS : first_ms) == 1) {
		if (ibv_get_async_event(end->ctx, &event)) {
			break;
		}
		if ((int)event.event_type != last) {
			last = (int)event.event_type;
			len += (size_t)snprintf(text + len, cap - len, "%s%d", len ? " " : "",
						last);
		}
		ibv_ack_async_event(&event);
	}
	return text;
}

void probe_qp_events(struct end *a, struct end *b)
{
	static const struct patience brisk = {.timeout = 10, .retry_cnt = 3, .rnr_retry = 7};
	struct ibv_mr mr = *b->mr;
	struct end wrong = *b;
	char text[256];

	mr.rkey ^= 0x55;
	wrong.mr = &mr;
	if (pair_connect(a, b, &brisk)) {
		return;
	}
	wrong.qp = b->qp;
	say("events of a connection", "%s", events_text(b, NEXT_MS, text, sizeof(text)));
	end_post_write(a, &wrong, 1, 4096, IBV_SEND_SIGNALED);
	wcs_text(a, FIRST_MS, text, sizeof(text));
	say("events of a wrong rkey, requester", "%s", events_text(a, NEXT_MS, text, sizeof(text)));
	say("events of a wrong rkey, responder", "%s", events_text(b, NEXT_MS, text, sizeof(text)));
	if (pair_connect(a, b, &brisk)) {
		return;
	}
	end_to(b, IBV_QPS_ERR);
	end_post_write(a, b, 1, 4096, IBV_SEND_SIGNALED);
	wcs_text(a, FIRST_MS, text, sizeof(text));
	say("events of retries exceeded", "%s", events_text(a, NEXT_MS, text, sizeof(text)));
}

/** Run the shell command in a variable. Returns its status, or -1. */
static int command_run(const char *variable)
{
	const char *command = getenv(variable);

	return command ? system(command) : -1;
}

static void port_say(struct end *end, const char *topic)
{
	struct ibv_port_attr attr;
	char text[256];

	events_text(end, FIRST_MS, text, sizeof(text));
	say(topic, "%s, port state %d", text,
	    ibv_query_port(end->ctx, 1, &attr) ? -1 : (int)attr.state);
}

void probe_port_events(struct end *a, struct end *b)
{
	char text[256];

	if (pair_connect(a, b, &(struct patience){10, 3, 7}) || command_run("COMPARE_CUT")) {
		return;
	}
	port_say(a, "events of a cable pulled, its own end");
	say("events of it, the other end", "%s", events_text(b, NEXT_MS, text, sizeof(text)));
	end_post_write(a, b, 1, 4096, IBV_SEND_SIGNALED);
	say("write over it", "%s", wcs_text(a, FIRST_MS, text, sizeof(text)));
	if (command_run("COMPARE_MEND")) {
		return;
	}
	port_say(a, "events of the cable plugged in again");
	if (command_run("COMPARE_UNNAME")) {
		return;
	}
	port_say(a, "events of the address removed");
	if (command_run("COMPARE_NAME")) {
		return;
	}
	port_say(a, "events of it there again");
}
