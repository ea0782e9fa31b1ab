/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_OOB_RIG_H
#define BRAID_TEST_OOB_RIG_H

#include "include/clock.h"
#include "oob/link.h"
#include "oob/loop.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/**
 * One end for link tests: a loop, a net on the loopback interface, and a record of everything its
 * handlers were told. Waiting is always for a recorded event, with a bound.
 *
 * Frames with data are PING-like counters carried in CLOSE frames: dst_comm names the stream,
 * next_seq is the number within it; each stream must arrive as 1, 2, 3, ...
 */
enum {
	RIG_STREAMS = 16,
	RIG_WAIT_MS = 20000
};

struct rig {
	struct oob_loop *loop;
	struct oob_net *net;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* under lock */
	unsigned up_count, lost_count, gone_count;
	int gone_err;
	char gone_why[256];
	uint64_t gone_at_ns;
	struct oob_link *link; /* last one that came up */
	uint64_t stream_next[RIG_STREAMS];
	unsigned disorder_count;
	struct frame last;
	unsigned other_count; /* frames that are not of a stream */
	/* set before use */
	_Atomic unsigned echo; /* answer each stream frame with the same one */
};

static inline void rig_frame(void *arg, struct oob_link *link, const struct frame *frame)
{
	struct rig *rig = arg;

	if (rig->echo != 0 && frame->type == FRAME_FENCED) {
		assert_int_equal(oob_link_send(link, frame), 0);
	}
	pthread_mutex_lock(&rig->lock);
	if (frame->type == FRAME_FENCED && frame->dst_comm < RIG_STREAMS) {
		uint64_t *next = &rig->stream_next[frame->dst_comm];

		if (frame->fenced.next_seq != *next + 1) {
			rig->disorder_count++;
		}
		*next = frame->fenced.next_seq;
	} else {
		rig->last = *frame;
		rig->other_count++;
	}
	pthread_cond_broadcast(&rig->cond);
	pthread_mutex_unlock(&rig->lock);
}

static inline void rig_up(void *arg, struct oob_link *link)
{
	struct rig *rig = arg;

	pthread_mutex_lock(&rig->lock);
	rig->up_count++;
	rig->link = link;
	pthread_cond_broadcast(&rig->cond);
	pthread_mutex_unlock(&rig->lock);
}

static inline void rig_lost(void *arg, struct oob_link *link, int err)
{
	struct rig *rig = arg;

	(void)link;
	assert_true(err < 0);
	pthread_mutex_lock(&rig->lock);
	rig->lost_count++;
	pthread_cond_broadcast(&rig->cond);
	pthread_mutex_unlock(&rig->lock);
}

static inline void rig_gone(void *arg, struct oob_link *link, int err, const char *why)
{
	struct rig *rig = arg;

	(void)link;
	pthread_mutex_lock(&rig->lock);
	rig->gone_count++;
	rig->gone_err = err;
	rig->gone_at_ns = clock_mono_ns();
	snprintf(rig->gone_why, sizeof(rig->gone_why), "%s", why);
	pthread_cond_broadcast(&rig->cond);
	pthread_mutex_unlock(&rig->lock);
}

static inline void rig_open_family(struct rig *rig, int family, uint32_t connect_timeout_ms,
				   uint32_t peer_timeout_ms)
{
	static const struct oob_handlers handlers = {
		.frame = rig_frame,
		.link_up = rig_up,
		.link_lost = rig_lost,
		.peer_gone = rig_gone,
	};
	const struct oob_net_opts opts = {
		.ifname = "lo",
		.family = family,
		.connect_timeout_ms = connect_timeout_ms,
		.peer_timeout_ms = peer_timeout_ms,
	};
	pthread_condattr_t attr;

	memset(rig, 0, sizeof(*rig));
	pthread_mutex_init(&rig->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&rig->cond, &attr);
	pthread_condattr_destroy(&attr);
	assert_int_equal(oob_loop_start(&rig->loop), 0);
	assert_int_equal(oob_net_open(rig->loop, &opts, &handlers, rig, &rig->net), 0);
}

static inline void rig_open_with(struct rig *rig, uint32_t connect_timeout_ms,
				 uint32_t peer_timeout_ms)
{
	rig_open_family(rig, AF_INET, connect_timeout_ms, peer_timeout_ms);
}

static inline void rig_open(struct rig *rig)
{
	rig_open_with(rig, 0, 0);
}

static inline void rig_close(struct rig *rig)
{
	oob_net_close(rig->net);
	oob_loop_stop(rig->loop);
	pthread_cond_destroy(&rig->cond);
	pthread_mutex_destroy(&rig->lock);
}

/** Wait until *counter, which a handler changes, is at least `least`. Returns 0 at the bound. */
static inline int rig_wait_ms(struct rig *rig, const unsigned *counter, unsigned least,
			      unsigned bound_ms)
{
	uint64_t until_ns = clock_mono_ns() + bound_ms * NS_PER_MS;
	struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_SEC),
				 .tv_nsec = (long)(until_ns % NS_PER_SEC)};
	int rc = 0;

	pthread_mutex_lock(&rig->lock);
	while (*counter < least && rc == 0) {
		rc = pthread_cond_timedwait(&rig->cond, &rig->lock, &until);
	}
	rc = *counter >= least;
	pthread_mutex_unlock(&rig->lock);
	return rc;
}

#define rig_wait(rig, field, least)                                                                \
	assert_true(rig_wait_ms((rig), &(rig)->field, (least), RIG_WAIT_MS))

/** Wait until stream `stream` has reached number `least`, or RIG_WAIT_MS pass without progress. */
static inline void rig_wait_stream(struct rig *rig, unsigned stream, uint64_t least)
{
	uint64_t next;
	unsigned disorder_count;
	int rc = 0;

	pthread_mutex_lock(&rig->lock);
	do {
		uint64_t until_ns = clock_mono_ns() + RIG_WAIT_MS * NS_PER_MS;
		struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_SEC),
					 .tv_nsec = (long)(until_ns % NS_PER_SEC)};

		next = rig->stream_next[stream];
		while (next < least && rig->stream_next[stream] == next && rc == 0) {
			rc = pthread_cond_timedwait(&rig->cond, &rig->lock, &until);
		}
	} while (next < least && rc == 0);
	next = rig->stream_next[stream];
	disorder_count = rig->disorder_count;
	/* a failed assertion goes on in the teardown, which needs the lock free */
	pthread_mutex_unlock(&rig->lock);
	assert_int_equal(next, least);
	assert_int_equal(disorder_count, 0);
}

/** Send number `number` of stream `stream`. */
static inline int rig_send(struct oob_link *link, unsigned stream, uint64_t number)
{
	struct frame frame = {.type = FRAME_FENCED, .dst_comm = stream};

	frame.fenced.next_seq = number;
	return oob_link_send(link, &frame);
}

static inline struct oob_link *rig_get(struct rig *rig, const struct rig *peer)
{
	struct oob_link *link = NULL;
	struct oob_addr addr;

	oob_net_addr(peer->net, &addr);
	assert_int_equal(oob_link_get(rig->net, &addr, &link), 0);
	return link;
}

#endif
