/* SPDX-License-Identifier: Apache-2.0 */
#include "test/guest/compare/probes.h"

#include "include/clock.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum {
	SURE_MS = 5000, /**< for what is sure to come, on a busy machine too */
	NEXT_MS = 300   /**< for one more */
};

static const struct patience brisk = {.timeout = 8, .retry_cnt = 3, .rnr_retry = 7};

const char *wcs_text(struct end *end, uint32_t wait_ms, char *text, size_t cap)
{
	struct ibv_wc wc;
	size_t len = 0;

	snprintf(text, cap, "none");
	while (end_poll(end, &wc, len && wait_ms > NEXT_MS ? NEXT_MS : wait_ms) == 1 && len < cap) {
		len += (size_t)snprintf(text + len, cap - len, "%s%u:%d", len ? " " : "",
					(unsigned)wc.wr_id, (int)wc.status);
	}
	return text;
}

void probe_states(struct end *a, struct end *b)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	say("RESET to RTR", "%d", end_to_rtr(a, b));
	say("send posted in RESET", "%d", end_post_write(a, b, 1, 8, IBV_SEND_SIGNALED));
	say("receive posted in RESET", "%d", end_post_recv(a, 1, 1));
	say("RESET to INIT", "%d", end_to_init(a));
	say("INIT to RTS", "%d", end_to_rts(a, &brisk));
	say("send posted in INIT", "%d", end_post_write(a, b, 1, 8, IBV_SEND_SIGNALED));
	say("receive posted in INIT", "%d", end_post_recv(a, 1, 1));
	say("INIT to RTR", "%d", end_to_rtr(a, b));
	say("send posted in RTR", "%d", end_post_write(a, b, 1, 8, IBV_SEND_SIGNALED));
	say("RTR to RTS", "%d", end_to_rts(a, &brisk));
	say("RTS to RTR", "%d", end_to_rtr(a, b));
	say("RTS to SQD", "%d", end_to(a, IBV_QPS_SQD));
	say("SQD to RTS", "%d", end_to(a, IBV_QPS_RTS));
	say("RTS to ERR", "%d", end_to(a, IBV_QPS_ERR));
	say("ERR to INIT", "%d", end_to_init(a));
	say("ERR to RESET", "%d", end_to(a, IBV_QPS_RESET));
	if (ibv_query_qp(a->qp, &attr, IBV_QP_STATE, &init) == 0) {
		say("state told at the end", "%d", (int)attr.qp_state);
	}
}

void probe_flush(struct end *a, struct end *b)
{
	char text[256];

	if (pair_connect(a, b, &(struct patience){14, 6, 7})) {
		return;
	}
	end_to(b, IBV_QPS_ERR); /* nothing is answered any more */
	end_post_recv(a, 11, 3);
	end_post_write(a, b, 1, 4096, 0);
	end_post_write(a, b, 2, 4096, IBV_SEND_SIGNALED);
	end_post_write(a, b, 3, 4096, 0);
	end_to(a, IBV_QPS_ERR);
	say("flush of sends 1-3 (1, 3 unsignaled), receives 11-13", "%s",
	    wcs_text(a, SURE_MS, text, sizeof(text)));
}

void probe_late_posts(struct end *a, struct end *b)
{
	char text[256];

	if (pair_connect(a, b, &brisk)) {
		return;
	}
	end_to(a, IBV_QPS_ERR);
	say("send posted in ERR", "%d", end_post_write(a, b, 1, 8, IBV_SEND_SIGNALED));
	say("completion of that send", "%s", wcs_text(a, SURE_MS, text, sizeof(text)));
	say("receive posted in ERR", "%d", end_post_recv(a, 2, 1));
	say("completion of that receive", "%s", wcs_text(a, 300, text, sizeof(text)));
	end_to(a, IBV_QPS_RESET);
	say("completions after RESET", "%s", wcs_text(a, 50, text, sizeof(text)));
}

void probe_failed_wc(struct end *a, struct end *b)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;
	char text[256];

	if (pair_connect(a, b, &brisk)) {
		return;
	}
	end_to(b, IBV_QPS_ERR);
	end_post_write(a, b, 7, 4096, 0);
	end_post_write(a, b, 8, 4096, IBV_SEND_SIGNALED);
	memset(&wc, 0xaa, sizeof(wc));
	if (end_poll(a, &wc, 3000) == 1) {
		say("first failed of 7 (unsignaled), 8", "%u, status %d", (unsigned)wc.wr_id,
		    (int)wc.status);
		say("its qp_num is ours", "%d", wc.qp_num == a->qp->qp_num);
		say("its vendor_err", "%#x", wc.vendor_err);
		say("its opcode, byte_len, wc_flags", "%#x %#x %#x", (unsigned)wc.opcode,
		    wc.byte_len, (unsigned)wc.wc_flags);
	}
	say("then", "%s", wcs_text(a, 100, text, sizeof(text)));
	if (ibv_query_qp(a->qp, &attr, IBV_QP_STATE, &init) == 0) {
		say("state told after it", "%d", (int)attr.qp_state);
	}
}

static void patience_say(struct end *a, struct end *b, uint8_t timeout, uint8_t retry_cnt)
{
	struct ibv_wc wc;
	char topic[64];

	if (pair_connect(a, b, &(struct patience){timeout, retry_cnt, 7})) {
		return;
	}
	end_to(b, IBV_QPS_ERR);
	uint64_t start_ns = clock_mono_ns();

	end_post_write(a, b, 1, 4096, IBV_SEND_SIGNALED);
	snprintf(topic, sizeof(topic), "timeout %u, retry_cnt %u, ms to the error", timeout,
		 retry_cnt);
	if (end_poll(a, &wc, 4000) == 1) {
		say(topic, "%llu, status %d",
		    (unsigned long long)((clock_mono_ns() - start_ns) / NS_PER_MS), (int)wc.status);
	} else {
		say(topic, "none in 4 s");
	}
}

void probe_patience(struct end *a, struct end *b)
{
	patience_say(a, b, 8, 3);
	patience_say(a, b, 14, 1);
	patience_say(a, b, 14, 6);
	patience_say(a, b, 18, 1);
	patience_say(a, b, 10, 7);
}

/** Nothing is posted at the responder; its timer (12) asks for pauses of 0.64 ms. */
static void rnr_say(struct end *a, struct end *b, uint8_t rnr_retry)
{
	struct ibv_wc wc;
	char topic[64];

	if (pair_connect(a, b, &(struct patience){14, 6, rnr_retry})) {
		return;
	}
	uint64_t start_ns = clock_mono_ns();

	end_post_write(a, b, 1, 4096, IBV_SEND_SIGNALED);
	snprintf(topic, sizeof(topic), "no receive, rnr_retry %u, ms to the error", rnr_retry);
	if (end_poll(a, &wc, 2000) == 1) {
		say(topic, "%llu, status %d",
		    (unsigned long long)((clock_mono_ns() - start_ns) / NS_PER_MS), (int)wc.status);
	} else {
		say(topic, "none in 2 s");
	}
}

void probe_rnr(struct end *a, struct end *b)
{
	char text[256];

	rnr_say(a, b, 0);
	rnr_say(a, b, 1);
	rnr_say(a, b, 6);
	if (pair_connect(a, b, &(struct patience){14, 6, 7})) {
		return;
	}
	end_post_write(a, b, 1, 4096, IBV_SEND_SIGNALED);
	say("the same, rnr_retry 7, 300 ms", "%s", wcs_text(a, 300, text, sizeof(text)));
	end_post_recv(b, 11, 1);
	say("then one is posted", "%s", wcs_text(a, SURE_MS, text, sizeof(text)));
}

void probe_keys(struct end *a, struct end *b)
{
	struct end wrong = *b;
	struct ibv_mr mr = *b->mr;
	char text[256];

	mr.rkey ^= 0x55;
	wrong.mr = &mr;
	if (pair_connect(a, b, &brisk)) {
		return;
	}
	end_post_recv(b, 11, 2);
	end_post_write(a, &wrong, 1, 4096, IBV_SEND_SIGNALED);
	say("wrong rkey, at the requester", "%s", wcs_text(a, SURE_MS, text, sizeof(text)));
	say("wrong rkey, at the responder", "%s", wcs_text(b, SURE_MS, text, sizeof(text)));
	if (pair_connect(a, b, &brisk)) {
		return;
	}
	wrong = *b;
	wrong.buf = b->buf + PAIR_BYTES - 100;
	end_post_recv(b, 11, 2);
	end_post_write(a, &wrong, 1, 4096, IBV_SEND_SIGNALED);
	say("write past the region, requester", "%s", wcs_text(a, SURE_MS, text, sizeof(text)));
	say("write past the region, responder", "%s", wcs_text(b, SURE_MS, text, sizeof(text)));
}

void probe_numbers(struct end *a, struct end *b)
{
	uint32_t first = a->qp->qp_num;
	uint32_t again = 0;

	(void)b;
	for (uint32_t i = 1; i <= 100 && !again; i++) {
		if (end_renew(a)) {
			return;
		}
		again = a->qp->qp_num == first ? i : 0;
	}
	say("a QP number comes again within 100", again ? "after %u" : "no", again);
}
