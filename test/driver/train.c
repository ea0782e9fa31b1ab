/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/train.h"

#include "include/clock.h"
#include "test/driver/run.h"
#include "test/driver/train_state.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	STRIKE_MS = 1000, /**< a rule that found no traffic by then has to wait for mended rails */
	SETTLE_MS = 20000 /**< all paths must be back by then */
};

static bool is_process_hit(const struct train_hit *hit)
{
	return !hit->rule[0];
}

static enum link_order link_order_of(enum train_class class)
{
	switch ((int)class) {
	case TRAIN_LINK_FIN:
		return LINK_FIN;
	case TRAIN_LINK_RST:
		return LINK_RST;
	case TRAIN_LINK_MUTE:
		return LINK_MUTE;
	default:
		return LINK_NOTHING;
	}
}

static void hit_install(struct train *train, struct train_hit *hit)
{
	struct run *run = train->run;

	hit->installed_ns = clock_mono_ns();
	hit->installed = true;
	if (!is_process_hit(hit)) {
		if (rails_fault(run->rails, hit->rule, &hit->rule_idx)) {
			run_fail(run, "the fabric refused '%s'", hit->rule);
		}
		return;
	}
	if (hit->class == TRAIN_PAUSE) {
		children_signal(&run->children, hit->host, SIGSTOP);
	} else {
		shared_link_order(run->shared, hit->host, link_order_of(hit->class));
	}
	hit->fired = true;
	hit->fired_ns = hit->installed_ns;
}

/** A pause or a mute link ends. */
static void hit_end(struct train *train, struct train_hit *hit)
{
	hit->ended = true;
	if (hit->class == TRAIN_PAUSE) {
		children_signal(&train->run->children, hit->host, SIGCONT);
	} else {
		shared_link_order(train->run->shared, hit->host, LINK_UNMUTE);
	}
}

static void due_install(struct train *train)
{
	struct train_episode *episode = &train->episode;
	uint64_t now_ns = clock_mono_ns();

	for (uint32_t i = 0; i < episode->hit_count; i++) {
		struct train_hit *hit = &episode->hits[i];
		uint64_t from_ns = hit->at_mend ? train->mend_ns : train->start_ns;

		if (!hit->installed && from_ns && now_ns >= from_ns + hit->after_ms * NS_PER_MS) {
			hit_install(train, hit);
		}
		if (hit->for_ms && hit->installed && !hit->ended &&
		    now_ns >= hit->installed_ns + hit->for_ms * NS_PER_MS) {
			hit_end(train, hit);
		}
	}
}

void train_on_end(struct train *train)
{
	for (uint32_t i = 0; i < train->episode.hit_count; i++) {
		struct train_hit *hit = &train->episode.hits[i];

		if (hit->for_ms && hit->installed && !hit->ended) {
			hit_end(train, hit);
		}
	}
}

static void rule_now(struct train *train, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void rule_now(struct train *train, const char *fmt, ...)
{
	char rule[OPT_TEXT_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(rule, sizeof(rule), fmt, args);
	va_end(args);
	if (rails_fault(train->run->rails, rule, NULL)) {
		run_fail(train->run, "the fabric refused '%s'", rule);
	}
}

static void hit_mend(struct train *train, const struct train_hit *hit)
{
	const char *rate = train->run->opt->rate_mbps;

	if (is_process_hit(hit) || !hit->installed) {
		return;
	}
	if (hit->class == TRAIN_GID_CLEAR) {
		rule_now(train, "gid_move host=%u rail=%u index=0", hit->host, hit->rail);
	} else if (hit->class == TRAIN_RATE) {
		rule_now(train, "rate host=%u rail=%u value=%s", hit->host, hit->rail,
			 *rate ? rate : "0");
	}
	rule_now(train, "%s host=%u rail=%u", hit->class == TRAIN_PORT_DOWN ? "port_up" : "heal",
		 hit->host, hit->rail);
}

static void fired_note(struct train *train, const struct rail_fired *fired)
{
	for (uint32_t i = 0; i < train->episode.hit_count; i++) {
		struct train_hit *hit = &train->episode.hits[i];

		if (hit->installed && !hit->fired && hit->rule_idx == fired->rule_idx &&
		    fired->at_ns >= hit->installed_ns) {
			hit->fired = true;
			hit->fired_ns = fired->at_ns;
			train->is_mended = false;
		}
	}
}

/** A rule fired long after its episode: undo it. */
static void stale_note(struct train *train, const struct rail_fired *fired)
{
	for (uint32_t i = 0; i < train->stale_count; i++) {
		struct train_hit *hit = &train->stale[i];

		if (hit->rule_idx == fired->rule_idx && fired->at_ns >= hit->installed_ns) {
			hit_mend(train, hit);
			*hit = train->stale[--train->stale_count];
			return;
		}
	}
}

static void fired_poll(struct train *train)
{
	struct rail_fired fired;

	while (rails_fired_at(train->run->rails, train->fired_seen, &fired) == 0) {
		train->fired_seen++;
		fired_note(train, &fired);
		stale_note(train, &fired);
	}
}

static void event_note(void *arg, uint32_t rank, const char *line)
{
	struct train *train = arg;
	struct watch_event event = watch_line(&train->watch, rank, line);

	fired_poll(train); /* a line is about a fault that is known to have fired */
	if (event.kind == WATCH_UP) {
		train->back_ns = event.mono_ns;
	}
	for (uint32_t i = 0; event.path && i < train->episode.hit_count; i++) {
		struct train_hit *hit = &train->episode.hits[i];
		bool is_its = (hit->host == event.path->rank && hit->rail == event.path->local) ||
			      (hit->host == event.path->peer && hit->rail == event.path->remote);

		if (is_process_hit(hit) || !hit->fired || !is_its ||
		    event.mono_ns < hit->fired_ns) {
			continue;
		}
		if (event.kind == WATCH_FAULT &&
		    (!hit->noticed_ns || event.mono_ns < hit->noticed_ns)) {
			hit->noticed_ns = event.mono_ns;
		}
		if (event.kind == WATCH_DOWN && event.replayed_bytes) {
			hit->replayed_bytes += event.replayed_bytes;
			if (!hit->replayed_ns || event.mono_ns < hit->replayed_ns) {
				hit->replayed_ns = event.mono_ns;
			}
		}
	}
}

/** Undo what the episode's faults did. */
static void mend(struct train *train)
{
	for (uint32_t i = 0; i < train->episode.hit_count; i++) {
		hit_mend(train, &train->episode.hits[i]);
	}
	train->is_mended = true;
}

static bool all_fired(const struct train *train)
{
	for (uint32_t i = 0; i < train->episode.hit_count; i++) {
		const struct train_hit *hit = &train->episode.hits[i];

		if (hit->at_mend && !train->mend_ns) {
			continue;
		}
		if (!hit->fired || (hit->for_ms && !hit->ended)) {
			return false;
		}
	}
	return true;
}

/** A path that is not in use; NULL when there is none. */
static const struct watch_path *missing_path(const struct train *train)
{
	for (uint32_t i = 0; i < train->watch.count; i++) {
		const struct watch_path *path = &train->watch.paths[i];

		if (!path->is_up) {
			return path;
		}
	}
	return NULL;
}

static void episode_begin(struct train *train)
{
	const struct opt_train *opt = &train->run->opt->train;
	/* An episode takes few of the iterations that are left, however long it lasts. */
	bool is_last = train->struck_count >= opt->fault_count ||
		       train->iter_count > job_count(train->run->opt) / 2;

	(is_last ? train_draw_last : train_draw)(&train->episode, opt, train->next_number++,
						 &train->rails);
	for (uint32_t i = 0; train->rails.keep_spared && i < train->episode.hit_count; i++) {
		train->episode.hits[i].is_alone = false;
	}
	train->rails.spared = train->episode.spared;
	train->start_ns = clock_mono_ns();
	train->back_ns = 0;
	train->mend_ns = 0;
	train->is_mended = false;
	train->is_relieved = false;
	train->phase = is_last ? TRAIN_LAST : TRAIN_STRIKE;
	due_install(train);
}

static void episode_end(struct train *train)
{
	train->rails.keep_spared = missing_path(train) != NULL;
	train_log_episode(train);
	for (uint32_t i = 0; i < train->episode.hit_count; i++) {
		const struct train_hit *hit = &train->episode.hits[i];

		train->struck_count += hit->fired;
		if (!hit->fired && hit->installed && train->stale_count < TRAIN_STALE_MAX) {
			train->stale[train->stale_count++] = *hit;
		}
	}
	episode_begin(train);
}

static void settle(struct train *train)
{
	const struct watch_path *missing = missing_path(train);

	if (!train->is_mended) {
		mend(train);
	}
	if (all_fired(train) && (!missing || !train->episode.waits)) {
		episode_end(train);
	} else if (clock_mono_ns() > train->mend_ns + SETTLE_MS * NS_PER_MS) {
		if (missing) {
			run_fail(train->run,
				 "rank %u: path %u of comm %" PRIu64 ", rail %u to rail "
				 "%u of rank %u, is not back %d ms after it was mended",
				 missing->rank, missing->path, missing->comm, missing->local,
				 missing->remote, missing->peer, SETTLE_MS);
		} else {
			run_fail(train->run, "a fault of the episode never fired");
		}
	}
}

void train_step(struct train *train)
{
	train->iter_count++;
	fired_poll(train);
	if (run_failures(train->run)) {
		run_fail(train->run, "a check failed");
		return;
	}
	if (train->phase == TRAIN_BEGIN) {
		episode_begin(train);
		return;
	}
	if (train->phase == TRAIN_STRIKE &&
	    (all_fired(train) || clock_mono_ns() > train->start_ns + STRIKE_MS * NS_PER_MS)) {
		train->limped_count = 0;
		train->phase = TRAIN_LIMP;
	}
	if (train->phase == TRAIN_LIMP && train->limped_count++ >= train->episode.limp_count) {
		train->mend_ns = clock_mono_ns();
		train->phase = TRAIN_SETTLE;
	}
	due_install(train);
	if (train->phase == TRAIN_SETTLE) {
		settle(train);
	}
}

/** In a blackout no iteration ends before a rail is mended. */
static void blackout_tick(struct train *train)
{
	const struct train_episode *episode = &train->episode;

	if (episode->blackout_ms && !train->is_relieved &&
	    clock_mono_ns() > train->start_ns + episode->blackout_ms * NS_PER_MS) {
		hit_mend(train, &episode->hits[episode->relief]);
		train->is_relieved = true;
	}
}

void train_tick(struct train *train)
{
	due_install(train);
	blackout_tick(train);
}

void train_on_close(struct train *train)
{
	for (uint32_t i = 0; i < train->episode.hit_count; i++) {
		if (!train->episode.hits[i].installed) {
			hit_install(train, &train->episode.hits[i]);
		}
	}
}

bool train_is_over(const struct train *train)
{
	return train->phase == TRAIN_LAST;
}

int train_create(struct train **out, struct run *run)
{
	const struct options *opt = run->opt;
	struct train *train = calloc(1, sizeof(*train));
	int err;

	if (!train) {
		return -ENOMEM;
	}
	train->run = run;
	train->watch.children = &run->children;
	train->rails.host_count = opt->rank_count;
	train->rails.rail_count = opt->rail_count;
	train->next_number = opt->train.first;
	err = train_log_open(train);
	if (err) {
		free(train);
		return err;
	}
	run->events.on_line = event_note;
	run->events.on_line_arg = train;
	*out = train;
	return 0;
}

void train_destroy(struct train *train)
{
	if (train) {
		train->run->events.on_line = NULL;
		train_log_close(train);
		free(train);
	}
}

void train_finish(struct train *train)
{
	fired_poll(train);
	events_poll(&train->run->events, train->run->opt->rank_count);
	if (train->phase != TRAIN_BEGIN) {
		train_log_episode(train);
	}
	train_log_end(train);
}
