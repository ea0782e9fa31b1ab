/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/pace.h"

#include "include/clock.h"
#include "include/log.h"
#include "repair/end.h"
#include "repair/share.h"

enum {
	MEAN_OF = 32,     /* messages: some that were held up are forgiven */
	MEAN_OF_SLOW = 4, /* ... and soon forgotten */
	BELOW_MS = 50,    /* longer than whoever waits for a CPU */
	RETRY_MS = 250,   /* a piece every so often costs a slow rail's users little */
	SAY_AGAIN_S = 10, /* lines about a rail that is slow now and then */
	RATE_SHIFT = 14,  /* rates in bytes per 16 us: 1 MB/s is 16 */
	PIECE_RATES = 6,  /* a piece takes six times that at most */
};

void pace_begin(struct repair_end *end, struct pace *pace)
{
	pace->is_timed = true;
	pace->begun_ns = end->now_ns;
	pace->mask = 0;
	end->timed_count++;
}

void pace_drop(struct repair_end *end, struct pace *pace)
{
	end->timed_count -= pace->is_timed;
	pace->is_timed = false;
}

/* One of all who ask gets it. */
static bool take_turn(struct repair_share *share, uint64_t now_ns)
{
	uint64_t due_ns = atomic_load_explicit(&share->retry_ns, memory_order_relaxed);

	return now_ns >= due_ns && atomic_compare_exchange_strong_explicit(
					   &share->retry_ns, &due_ns, now_ns + RETRY_MS * NS_PER_MS,
					   memory_order_relaxed, memory_order_relaxed);
}

int pace_retry(const struct repair_end *end, const struct pace *pace, uint32_t key_mask)
{
	unsigned int seen = 0;

	for (unsigned int p = 0; !pace->mask && p < end->path_count && seen < end->active_count;
	     p++) {
		const struct repair_path *path = &end->paths[p];

		if (path->state != PATH_UP || !(key_mask >> p & 1)) {
			continue;
		}
		seen++;
		if (path->is_slow && path->inflight_bytes == 0 && wrq_has_room(&path->sq) &&
		    take_turn(path->share, end->now_ns)) {
			return (int)p;
		}
	}
	return -1;
}

/* Since the message began. What takes seconds is slow enough. */
static uint32_t passed_ns(const struct repair_end *end, const struct pace *pace)
{
	uint64_t ns = end->now_ns - pace->begun_ns;

	return ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

static uint32_t lines(uint64_t bytes)
{
	uint64_t count = bytes / PIECE_ALIGN_BYTES;

	return count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
}

void pace_post(struct repair_end *end, struct pace *pace, unsigned int p, uint64_t load_bytes,
	       uint32_t len_bytes)
{
	struct pace_part *part = &pace->parts[p];

	if (!(pace->mask >> p & 1)) {
		pace->mask |= 1u << p;
		pace->out_count[p] = 0;
		*part = (struct pace_part){.ns = passed_ns(end, pace), .lines = lines(load_bytes)};
	} else if (pace->out_count[p] == 0) {
		pace_drop(end, pace); /* the path had nothing of it for a while: no measure */
		return;
	}
	part->lines = lines((uint64_t)part->lines * PIECE_ALIGN_BYTES + len_bytes);
	pace->out_count[p]++;
}

static uint64_t rate_of(const struct pace_part *part)
{
	uint64_t bytes = (uint64_t)part->lines * PIECE_ALIGN_BYTES;

	return (bytes << RATE_SHIFT) / (part->ns ? part->ns : 1) + 1;
}

/* Doubled as often as it fits, so that the last piece of a message is as long as the others. */
static void size_pieces(struct repair_end *end, const struct pace *pace)
{
	uint64_t least = end->limits.piece_min_bytes, sum = 0, mean, len = least;
	unsigned int count = 0;

	for (uint32_t rest = pace->mask; rest; rest &= rest - 1) {
		sum += rate_of(&pace->parts[__builtin_ctz(rest)]);
		count++;
	}
	if (count == 0) {
		return; /* nothing was posted */
	}
	mean = sum / count;
	end->rate = end->rate ? (end->rate * (MEAN_OF - 1) + mean) / MEAN_OF : mean;
	while (len < PACE_GROWTH * least && 2 * len <= PIECE_RATES * end->rate &&
	       8 * len <= end->limits.window_bytes) {
		len *= 2;
	}
	end->piece_bytes = len;
}

/* Rates say how the paths of this message compare, ratings where those paths stand among all: so
 * the rates are stretched to the same sum. Returns those in *marks. */
static void compare(struct repair_end *end, const struct pace *pace, uint64_t *marks)
{
	uint64_t rate_sum = 0, rating_sum = 0;

	for (uint32_t rest = pace->mask; rest; rest &= rest - 1) {
		unsigned int p = (unsigned int)__builtin_ctz(rest);
		struct repair_path *path = &end->paths[p];

		path->rating = path->rating ? path->rating : PACE_UNIT;
		marks[p] = rate_of(&pace->parts[p]);
		rate_sum += marks[p];
		rating_sum += path->rating;
	}
	for (uint32_t rest = pace->mask; rest; rest &= rest - 1) {
		unsigned int p = (unsigned int)__builtin_ctz(rest);

		marks[p] = marks[p] * rating_sum / rate_sum;
	}
}

/* Into the means, and then so that the fastest path has PACE_UNIT again. */
static void rate(struct repair_end *end, const struct pace *pace, const uint64_t *marks)
{
	uint32_t best = 0;

	for (unsigned int p = 0; p < end->path_count; p++) {
		struct repair_path *path = &end->paths[p];
		uint64_t mean_of = path->is_slow ? MEAN_OF_SLOW : MEAN_OF;

		if (pace->mask >> p & 1) {
			path->rating =
				(uint32_t)((path->rating * (mean_of - 1) + marks[p]) / mean_of);
		}
		best = path->rating > best ? path->rating : best;
	}
	for (unsigned int p = 0; p < end->path_count; p++) {
		struct repair_path *path = &end->paths[p];

		if (best > 0 && path->rating > 0) {
			path->rating = (uint32_t)(path->rating * (uint64_t)PACE_UNIT / best);
			path->rating += path->rating == 0; /* 0 is not known */
		}
	}
}

/* The greatest rating for its weight. */
static const struct repair_path *find_soundest(const struct repair_end *end)
{
	const struct repair_path *best = &end->paths[0];

	for (unsigned int p = 1; p < end->path_count; p++) {
		const struct repair_path *path = &end->paths[p];

		if ((uint64_t)path->rating * best->weight > (uint64_t)best->rating * path->weight) {
			best = path;
		}
	}
	return best;
}

static void say(const struct repair_end *end, unsigned int p, enum repair_report_kind kind)
{
	end->ops->report(end->ctx,
			 &(struct repair_report){.kind = kind,
						 .path = p,
						 .epoch = end->paths[p].epoch,
						 .percent = end->paths[p].speed * 100u / PACE_FULL,
						 .up_count = repair_end_up_count(end)});
}

/* One line for a rail, however many comms see it; and not over and over. */
static void turn(const struct repair_end *end, unsigned int p, bool is_slow)
{
	struct repair_share *share = end->paths[p].share;
	uint64_t said_ns = atomic_load_explicit(&share->said_ns, memory_order_relaxed);

	if (is_slow) {
		if (atomic_fetch_add_explicit(&share->slow_count, 1, memory_order_relaxed) == 0 &&
		    (!said_ns || end->now_ns - said_ns >= SAY_AGAIN_S * NS_PER_SEC)) {
			atomic_store_explicit(&share->said_ns, end->now_ns, memory_order_relaxed);
			atomic_store_explicit(&share->is_said, true, memory_order_relaxed);
			say(end, p, REPAIR_REPORT_SLOW);
		}
	} else if (atomic_fetch_sub_explicit(&share->slow_count, 1, memory_order_relaxed) == 1 &&
		   atomic_exchange_explicit(&share->is_said, false, memory_order_relaxed)) {
		say(end, p, REPAIR_REPORT_SOUND);
	}
}

/* Below a half for a while: an engine or a process that gets no CPU is back sooner. */
static bool is_found_slow(const struct repair_end *end, struct repair_path *path, uint64_t level)
{
	if (path->is_slow) {
		return level < PACE_UNIT / 4 * 3;
	}
	if (level >= PACE_UNIT / 2) {
		path->below_ns = 0;
		return false;
	}
	path->below_ns = path->below_ns ? path->below_ns : end->now_ns;
	return end->now_ns - path->below_ns >= BELOW_MS * NS_PER_MS;
}

/*
 * By its rating and for its weight: a card of lower speed is no slow one, and where latency is all,
 * nor is one of higher speed.
 */
static void judge(struct repair_end *end, unsigned int p, const struct repair_path *best)
{
	struct repair_path *path = &end->paths[p];
	uint64_t part = (uint64_t)path->rating * best->weight * PACE_UNIT /
			((uint64_t)best->rating * path->weight);
	uint64_t speed = part * PACE_FULL / PACE_UNIT;
	bool was_slow = path->is_slow;

	path->is_slow = is_found_slow(end, path, part > path->rating ? part : path->rating);
	path->speed = PACE_FULL;
	if (path->is_slow) {
		path->speed = (uint8_t)(speed < 1 ? 1 : speed >= PACE_FULL ? PACE_FULL - 1 : speed);
	}
	if (path->is_slow != was_slow) {
		turn(end, p, path->is_slow);
	}
}

static void conclude(struct repair_end *end, const struct pace *pace)
{
	uint64_t marks[PATHS_MAX];
	const struct repair_path *best;

	size_pieces(end, pace);
	if ((pace->mask & (pace->mask - 1)) == 0) {
		return; /* one path: nothing to compare */
	}
	compare(end, pace, marks);
	rate(end, pace, marks);
	best = find_soundest(end);
	for (uint32_t rest = pace->mask; rest; rest &= rest - 1) {
		unsigned int p = (unsigned int)__builtin_ctz(rest);

		judge(end, p, best);
		if (end->paths[p].is_slow && marks[p] >= PACE_UNIT / 4 * 3) {
			atomic_store_explicit(&end->paths[p].share->retry_ns, 0,
					      memory_order_relaxed);
		}
	}
}

void pace_retire(struct repair_end *end, struct pace *pace, unsigned int p, bool is_last)
{
	struct pace_part *part = &pace->parts[p];

	if (end->paths[p].state != PATH_UP) {
		pace_drop(end, pace);
		return;
	}
	ASSERT(pace->out_count[p] > 0);
	pace->out_count[p]--;
	if (pace->out_count[p] == 0) {
		part->ns = passed_ns(end, pace) - part->ns;
	}
	if (is_last) {
		pace_drop(end, pace);
		conclude(end, pace);
	}
}

void pace_forget(struct repair_path *path)
{
	if (path->is_slow) {
		atomic_fetch_sub_explicit(&path->share->slow_count, 1, memory_order_relaxed);
	}
	path->is_slow = false;
	path->below_ns = 0;
	path->speed = PACE_FULL;
	path->rating = 0;
}
