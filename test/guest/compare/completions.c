/* SPDX-License-Identifier: Apache-2.0 */
#include "test/guest/compare/probes.h"

#include <arpa/inet.h>
#include <stdio.h>

static const struct patience steady = {.timeout = 14, .retry_cnt = 6, .rnr_retry = 7};

static void received_say(struct end *a, struct end *b, uint32_t bytes)
{
	struct ibv_wc wc;
	char topic[64];

	if (pair_connect(a, b, &steady)) {
		return;
	}
	end_post_recv(b, 21, 1);
	end_post_write(a, b, 5, bytes, IBV_SEND_SIGNALED);
	snprintf(topic, sizeof(topic), "write with immediate of %u, at the sender", bytes);
	if (end_poll(a, &wc, 5000) == 1) {
		say(topic, "%u: status %d, opcode %#x", (unsigned)wc.wr_id, (int)wc.status,
		    (unsigned)wc.opcode);
	}
	snprintf(topic, sizeof(topic), "write with immediate of %u, received", bytes);
	if (end_poll(b, &wc, 5000) == 1) {
		say(topic, "%u: %#x, len %u, imm %u, flags %#x, own qp_num %d", (unsigned)wc.wr_id,
		    (unsigned)wc.opcode, wc.byte_len, ntohl(wc.imm_data), (unsigned)wc.wc_flags,
		    wc.qp_num == b->qp->qp_num);
	}
}

void probe_received(struct end *a, struct end *b)
{
	received_say(a, b, 4096);
	received_say(a, b, 0);
}

/** Have a completion wait in a's CQ; the receiver's tells when it is sure to be there. */
static int completion_leave(struct end *a, struct end *b)
{
	struct ibv_wc wc;
	int err = pair_connect(a, b, &steady);

	err = err ? err : end_post_recv(b, 1, 2);
	err = err ? err : end_post_write(a, b, 1, 8, IBV_SEND_SIGNALED);
	err = err ? err : end_post_write(a, b, 2, 8, 0);
	if (err || end_poll(b, &wc, 5000) != 1 || end_poll(b, &wc, 5000) != 1) {
		return -1;
	}
	/* The second is there, so the first is acknowledged soon. */
	return end_poll(b, &wc, 50) == 0 ? 0 : -1;
}

void probe_left(struct end *a, struct end *b)
{
	char text[256];

	if (completion_leave(a, b)) {
		return;
	}
	end_to(a, IBV_QPS_RESET);
	say("completion left there, after RESET", "%s", wcs_text(a, 50, text, sizeof(text)));
	if (completion_leave(a, b)) {
		return;
	}
	ibv_destroy_qp(a->qp);
	a->qp = NULL;
	say("completion left there, after destroy", "%s", wcs_text(a, 50, text, sizeof(text)));
}

/** A queue pair connected to itself, as the plugin's flush has it. */
void probe_self(struct end *a, struct end *b)
{
	char text[256];

	(void)b;
	if (end_to_init(a) || end_to_rtr(a, a) || end_to_rts(a, &steady)) {
		say("connected to itself", "no");
		return;
	}
	end_post_read(a, a, 1);
	say("connected to itself, read", "%s", wcs_text(a, 5000, text, sizeof(text)));
}

void probe_full(struct end *a, struct end *b)
{
	uint32_t count = 0;
	int err = 0;

	if (pair_connect(a, b, &(struct patience){18, 6, 7})) {
		return;
	}
	end_to(b, IBV_QPS_ERR);
	while (!err && count < 8 * PAIR_DEPTH) {
		err = end_post_write(a, b, count, 8, 0);
		count += err == 0;
	}
	say("one send more than the queue holds", "%d, %s", err,
	    count < PAIR_DEPTH ? "too early" : "not before");
}
