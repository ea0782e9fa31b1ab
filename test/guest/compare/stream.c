/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/guest/compare/probes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

enum {
	STREAM_BYTES = 65536,
	STREAM_OUT = 24, /**< pairs under way */
	STREAM_MS = 1500
};

/**
 * From a to b, as the plugin does it: a long write and, in the same call, a short numbered one with
 * immediate. What the receiver sees must be those numbers.
 */
struct stream {
	struct end *a, *b;
	uint32_t posted;
	uint32_t sent;     /**< completions at the sender */
	uint32_t expected; /**< number of the next immediate */
	uint32_t repeated;
	uint32_t skipped;
	int status; /**< first error at the sender, or 0 */
};

static void stream_receive(struct stream *stream)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(stream->b->cq, 1, &wc) == 1) {
		uint32_t number = ntohl(wc.imm_data);

		if (wc.status != IBV_WC_SUCCESS) {
			continue;
		}
		if (number < stream->expected) {
			stream->repeated++;
		} else {
			stream->skipped += number - stream->expected;
			stream->expected = number + 1;
		}
		end_post_recv(stream->b, 0, 1);
	}
}

static void stream_send(struct stream *stream)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(stream->a->cq, 1, &wc) == 1) {
		stream->sent++;
		if (wc.status != IBV_WC_SUCCESS && !stream->status) {
			stream->status = (int)wc.status;
		}
	}
	while (!stream->status && stream->posted - stream->sent < STREAM_OUT &&
	       !end_post_pair(stream->a, stream->b, stream->posted, STREAM_BYTES)) {
		stream->posted++;
	}
}

static void stream_run(struct end *a, struct end *b, uint8_t timeout)
{
	struct stream stream = {.a = a, .b = b};
	uint64_t end_ns = clock_mono_ns() + STREAM_MS * NS_PER_MS;
	char topic[64];

	if (pair_connect(a, b, &(struct patience){timeout, 6, 7}) ||
	    end_post_recv(b, 0, PAIR_DEPTH)) {
		return;
	}
	while (!stream.status && clock_mono_ns() < end_ns) {
		stream_send(&stream);
		stream_receive(&stream);
	}
	snprintf(topic, sizeof(topic), "stream, timeout %u, right order", timeout);
	say(topic, "%s, %u repeated, %u skipped, status %d",
	    stream.repeated || stream.skipped ? "NO" : "yes", stream.repeated, stream.skipped,
	    stream.status);
}

void probe_stream(struct end *a, struct end *b)
{
	stream_run(a, b, 8);
	stream_run(a, b, 12);
	stream_run(a, b, 14);
	stream_run(a, b, 18);
}
