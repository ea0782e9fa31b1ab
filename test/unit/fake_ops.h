/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_UNIT_FAKE_OPS_H
#define BRAID_UNIT_FAKE_OPS_H

#include "include/log.h"
#include "repair/fence.h"
#include "repair/rx.h"
#include "repair/tx.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Operations that note what they are asked for and return what the test set. */

enum {
	FAKE_LOG_MAX = 1024,
	MS = 1000000
};

struct fake_post {
	unsigned int path;
	uint64_t wr_id;
	uint64_t value; /* slot, next_seq */
	bool signalled;
};

struct fake {
	struct repair_piece pieces[FAKE_LOG_MAX];
	struct fake_post cts[FAKE_LOG_MAX], acks[FAKE_LOG_MAX], markers[FAKE_LOG_MAX];
	struct frame frames[64];
	struct repair_report reports[64];
	unsigned int piece_count, cts_count, ack_count, marker_count, frame_count, report_count;
	unsigned int fence_count, cut_count, ask_count;
	uint64_t recv_wr_id[PATHS_MAX];
	int rc; /* of posts on rc_path */
	unsigned int rc_path;
	int marker_rc;
	int send_rc, ask_rc;
	uint32_t no_key_mask; /* paths on which nothing is registered */
	uint32_t key_base;    /* added to the cookie: key */
	bool acks_wait;       /* ack_later's answer */
	uint32_t copy_bytes;  /* a whole piece up to this is copied */
	unsigned int later_count;
};

static struct fake fake;

static int fake_rc(unsigned int path)
{
	return path == fake.rc_path ? fake.rc : 0;
}

static int fake_post_piece(void *ctx, const struct repair_piece *piece)
{
	(void)ctx;
	assert_true(fake.piece_count < FAKE_LOG_MAX);
	if (fake_rc(piece->path) != -EAGAIN) {
		fake.pieces[fake.piece_count++] = *piece;
	}
	if (fake_rc(piece->path) == 0 && piece->whole && piece->len_bytes <= fake.copy_bytes) {
		return REPAIR_COPIED;
	}
	return fake_rc(piece->path);
}

static int fake_note(struct fake_post *log, unsigned int *count, struct fake_post post)
{
	assert_true(*count < FAKE_LOG_MAX);
	if (fake_rc(post.path) != -EAGAIN) {
		log[(*count)++] = post;
	}
	return fake_rc(post.path);
}

static int fake_post_cts(void *ctx, unsigned int path, unsigned int slot, uint64_t wr_id,
			 bool signalled)
{
	(void)ctx;
	return fake_note(fake.cts, &fake.cts_count,
			 (struct fake_post){path, wr_id, slot, signalled});
}

static int fake_post_ack(void *ctx, unsigned int path, uint64_t next_seq, uint64_t wr_id,
			 bool signalled)
{
	(void)ctx;
	return fake_note(fake.acks, &fake.ack_count,
			 (struct fake_post){path, wr_id, next_seq, signalled});
}

static bool fake_ack_later(void *ctx)
{
	(void)ctx;
	fake.later_count++;
	return fake.acks_wait;
}

static int fake_post_marker(void *ctx, unsigned int path, uint64_t wr_id)
{
	(void)ctx;
	if (fake.marker_rc) {
		return fake.marker_rc;
	}
	return fake_note(fake.markers, &fake.marker_count,
			 (struct fake_post){path, wr_id, 0, true});
}

static int fake_post_recvs(void *ctx, unsigned int path, uint64_t wr_id, unsigned int count,
			   unsigned int *posted)
{
	(void)ctx;
	fake.recv_wr_id[path] = wr_id;
	*posted = fake_rc(path) ? count / 2 : count;
	return fake_rc(path);
}

static void fake_fence(void *ctx, unsigned int path)
{
	(void)ctx;
	(void)path;
	fake.fence_count++;
}

static void fake_cut(void *ctx, unsigned int path)
{
	(void)ctx;
	(void)path;
	fake.cut_count++;
}

static int fake_send(void *ctx, const struct frame *frame)
{
	(void)ctx;
	assert_true(fake.frame_count < 64);
	if (fake.send_rc == 0) {
		fake.frames[fake.frame_count++] = *frame;
	}
	return fake.send_rc;
}

static bool fake_key(void *ctx, unsigned int path, void *cookie, uint32_t *rkey)
{
	(void)ctx;
	if (!cookie || fake.no_key_mask >> path & 1) {
		return false;
	}
	*rkey = fake.key_base + (uint32_t)(uintptr_t)cookie;
	return true;
}

static int fake_ask(void *ctx)
{
	(void)ctx;
	fake.ask_count += fake.ask_rc == 0;
	return fake.ask_rc;
}

static void fake_report(void *ctx, const struct repair_report *report)
{
	(void)ctx;
	assert_true(fake.report_count < 64);
	fake.reports[fake.report_count++] = *report;
}

static const struct repair_ops fake_ops = {
	.post_piece = fake_post_piece,
	.post_cts = fake_post_cts,
	.post_ack = fake_post_ack,
	.ack_later = fake_ack_later,
	.post_marker = fake_post_marker,
	.post_recvs = fake_post_recvs,
	.fence = fake_fence,
	.cut = fake_cut,
	.key = fake_key,
	.send = fake_send,
	.ask = fake_ask,
	.report = fake_report,
};

static const struct repair_limits fake_limits = {.small_bytes = 1024,
						 .piece_min_bytes = 1024,
						 .window_bytes = 1 << 20,
						 .alone_bytes = 16 * 1024,
						 .ack_large_bytes = 2048,
						 .reap_ms = 100,
						 .no_path_ms = 1000,
						 .stall_ms = 200};

/* Paths 0..count-1 of an end that was just initialised are UP, all of them active. */
static inline void fake_paths_up(struct repair_end *end, unsigned int count)
{
	end->path_count = count;
	end->active_count = count;
	for (unsigned int p = 0; p < count; p++) {
		repair_end_ready(end, p, 1, 1);
	}
}

static inline void fake_complete(struct repair_end *end, uint64_t wr_id, enum cause cause,
				 uint64_t now_ns)
{
	struct repair_wc wc = {.wr_id = wr_id, .cause = cause};

	repair_end_completed(end, &wc, now_ns);
}

static inline void fake_flush_recvs(struct repair_end *end, unsigned int path, uint64_t now_ns)
{
	while (end->paths[path].recvs_out > 0 && !end->failed) {
		fake_complete(end, fake.recv_wr_id[path], CAUSE_FLUSH, now_ns);
	}
}

static inline void fake_peer_fence(struct repair_end *end, unsigned int path, uint32_t epoch,
				   uint64_t now_ns)
{
	struct frame_fence frame = {
		.path = (uint8_t)path, .cause = CAUSE_PORT_DOWN, .epoch = epoch};

	repair_end_on_fence(end, &frame, now_ns);
}

static inline void fake_peer_fenced(struct repair_end *end, unsigned int path, uint32_t epoch,
				    uint64_t next_seq)
{
	struct frame_fenced frame = {.path = (uint8_t)path,
				     .cause = CAUSE_PORT_DOWN,
				     .epoch = epoch,
				     .next_seq = next_seq};

	repair_end_on_fenced(end, &frame, end->now_ns + 1);
}

/* Time passes, and the peer's process answers whatever it is asked. */
static inline void fake_pass(struct repair_end *end, uint64_t from_ms, uint64_t to_ms)
{
	for (uint64_t ms = from_ms; ms <= to_ms; ms += 10) {
		unsigned int asked = fake.ask_count;

		repair_end_tick(end, ms * MS);
		if (fake.ask_count > asked) {
			repair_end_answered(end, ms * MS);
		}
	}
}

static inline const struct repair_report *fake_last_report(enum repair_report_kind kind)
{
	for (unsigned int i = fake.report_count; i-- > 0;) {
		if (fake.reports[i].kind == kind) {
			return &fake.reports[i];
		}
	}
	return NULL;
}

static inline const struct frame *fake_last_frame(enum frame_type type)
{
	for (unsigned int i = fake.frame_count; i-- > 0;) {
		if (fake.frames[i].type == type) {
			return &fake.frames[i];
		}
	}
	return NULL;
}

/* Lines of the code under test are expected here and would only clutter the output. */
static inline void fake_sink(int level, unsigned long flags, const char *file, int line,
			     const char *fmt, ...)
{
	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	(void)fmt;
}

#endif
