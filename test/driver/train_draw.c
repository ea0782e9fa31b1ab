/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/train.h"
#include "test/sim/rng.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	enum train_group group;
	uint32_t weight;
} classes[TRAIN_CLASS_COUNT] = {
#define TRAIN_CLASS_ROW(id, name, group, weight) [TRAIN_##id] = {name, TRAIN_##group, weight},
	TRAIN_CLASS_LIST(TRAIN_CLASS_ROW)
#undef TRAIN_CLASS_ROW
};

const char *train_class_name(enum train_class class)
{
	return classes[class].name;
}

enum train_group train_class_group(enum train_class class)
{
	return classes[class].group;
}

enum train_class train_class_find(const char *name)
{
	uint32_t class = 0;

	while (class < TRAIN_CLASS_COUNT && strcmp(name, classes[class].name) != 0) {
		class ++;
	}
	return (enum train_class) class;
}

/** What drawing an episode takes. */
struct draw {
	struct rng rng;
	struct train_episode *episode;
	const struct train_rails *rails;
	uint64_t mask;
	bool timed;
	uint32_t spared;
};

static bool wants(const struct draw *draw, enum train_class class)
{
	return draw->mask >> class & 1;
}

/** Where in the traffic it strikes; "" is at once. */
static void place_draw(struct draw *draw, bool is_second, char *text, size_t cap)
{
	static const char *const edges[] = {"before", "mid", "after", "acked", "acked_blank"};
	struct rng *rng = &draw->rng;

	switch (draw->timed ? 4 + rng_below(rng, 2) : rng_below(rng, is_second ? 8 : 6)) {
	case 0:
		snprintf(text, cap, " bytes=%u", 1 + rng_below(rng, 300000));
		break;
	case 1: /* around the borders of MTUs and pieces */
		snprintf(text, cap, " bytes=%u",
			 4096 * (1 + rng_below(rng, 64)) + rng_below(rng, 3) - 1);
		break;
	case 2:
		snprintf(text, cap, " writes=%u", 1 + rng_below(rng, 8));
		break;
	case 3:
		snprintf(text, cap, " imms=%u edge=%s", 1 + rng_below(rng, 12),
			 edges[rng_below(rng, 3)]);
		break;
	case 4:
		text[0] = '\0';
		break;
	default: /* a second fault likes to come while the first is repaired */
		snprintf(text, cap, " ms=%u", 1 + rng_below(rng, is_second ? 25 : 5));
		break;
	}
}

/** A device dies after it acknowledged what it did not place, or place visibly. */
static void death_place_draw(struct draw *draw, char *text, size_t cap)
{
	static const char *const edges[] = {"mid", "after", "acked", "acked_blank"};

	if (draw->timed || rng_chance(&draw->rng, 300)) {
		place_draw(draw, false, text, cap);
	} else {
		snprintf(text, cap, " imms=%u edge=%s", 1 + rng_below(&draw->rng, 12),
			 edges[rng_below(&draw->rng, 4)]);
	}
}

static struct train_hit *hit_add(struct draw *draw, enum train_class class, uint32_t host,
				 uint32_t rail)
{
	struct train_episode *episode = draw->episode;
	struct train_hit *hit = &episode->hits[episode->hit_count];

	if (episode->hit_count + 1 < TRAIN_HITS_MAX) {
		episode->hit_count++;
	}
	*hit = (struct train_hit){.class = class, .host = host, .rail = rail};
	return hit;
}

/** What stands between the rule's host and rail, and its trigger. */
static void rule_args_draw(struct draw *draw, const struct train_hit *hit, char *text, size_t cap)
{
	static const char *const dirs[] = {"tx", "rx", "both"};
	static const char *const events[] = {"port_err", "port_active", "gid_change", "lid_change",
					     "client_reregister"};
	struct rng *rng = &draw->rng;
	const char *dir = dirs[rng_below(rng, 3)];

	text[0] = '\0';
	switch ((int)hit->class) {
	case TRAIN_ACK_LOSS:
		snprintf(text, cap, " dir=%s", dir);
		break;
	case TRAIN_LATE:
		snprintf(text, cap, " dir=%s delay_ms=%u", dir, 20 + rng_below(rng, 280));
		break;
	case TRAIN_FLAP:
		snprintf(text, cap, " count=%u down_ms=%u up_ms=%u", 1 + rng_below(rng, 4),
			 1 + rng_below(rng, 30), 1 + rng_below(rng, 60));
		break;
	case TRAIN_QP_FATAL:
		snprintf(text, cap, " nth=%u", 1 + rng_below(rng, 2));
		break;
	case TRAIN_DROP:
		snprintf(text, cap, " dir=%s p=0.%03u", dir,
			 rng_chance(rng, 300) ? 100 + rng_below(rng, 400) : 1 + rng_below(rng, 30));
		break;
	case TRAIN_DELAY:
		snprintf(text, cap, " dir=%s us=%u jitter_us=%u", dir, rng_below(rng, 2000),
			 rng_below(rng, 1000));
		break;
	case TRAIN_RATE:
		snprintf(text, cap, " value=%u", 20 + rng_below(rng, 100));
		break;
	case TRAIN_GID_MOVE:
		snprintf(text, cap, " index=%u", rng_below(rng, 16));
		break;
	case TRAIN_EVENT_ONLY:
		snprintf(text, cap, " type=%s", events[rng_below(rng, 5)]);
		break;
	default:
		break;
	}
}

static void rule_draw(struct draw *draw, struct train_hit *hit, bool is_second)
{
	const char *action = train_class_name(hit->class);
	char args[64];
	char place[64];

	rule_args_draw(draw, hit, args, sizeof(args));
	if (hit->class == TRAIN_NIC_DEATH) {
		death_place_draw(draw, place, sizeof(place));
	} else {
		place_draw(draw, is_second, place, sizeof(place));
	}
	if (hit->class == TRAIN_CUT_TX || hit->class == TRAIN_CUT_RX) {
		action = "cut";
		snprintf(args, sizeof(args), " dir=%s", hit->class == TRAIN_CUT_TX ? "tx" : "rx");
	}
	if (strstr(place, "acked") && hit->class != TRAIN_NIC_DEATH) {
		place[0] = '\0';
	}
	snprintf(hit->rule, sizeof(hit->rule), "%s host=%u rail=%u%s%s", action, hit->host,
		 hit->rail, args, place);
}

static enum train_class class_draw(struct draw *draw)
{
	uint32_t sum = 0;
	uint32_t class = 0;

	for (class = 0; class < TRAIN_CLASS_COUNT; class ++) {
		sum += wants(draw, (enum train_class) class) ? classes[class].weight : 0;
	}
	if (!sum) {
		return TRAIN_CLASS_COUNT;
	}
	sum = rng_below(&draw->rng, sum);
	for (class = 0; class < TRAIN_CLASS_COUNT; class ++) {
		uint32_t weight = wants(draw, (enum train_class) class) ? classes[class].weight : 0;

		if (sum < weight) {
			break;
		}
		sum -= weight;
	}
	return (enum train_class) class;
}

/** A rail that may be struck. */
static uint32_t rail_draw(struct draw *draw)
{
	uint32_t rail;

	do {
		rail = rng_below(&draw->rng, draw->rails->rail_count);
	} while (rail == draw->spared);
	return rail;
}

/** Some come when paths are about to be used again. */
static void at_mend_draw(struct draw *draw, struct train_hit *hit, uint32_t permille)
{
	if (rng_chance(&draw->rng, permille)) {
		hit->at_mend = true;
		hit->after_ms = rng_below(&draw->rng, 300);
	}
}

static void mains_draw(struct draw *draw)
{
	static const uint32_t counts[] = {1, 1, 1, 1, 2, 2, 2, 3, 3, 4};
	uint32_t count = counts[rng_below(&draw->rng, 10)];

	for (uint32_t i = 0; i < count; i++) {
		uint32_t host = rng_below(&draw->rng, draw->rails->host_count);
		enum train_class class = class_draw(draw);

		if (class < TRAIN_CLASS_COUNT) {
			struct train_hit *hit = hit_add(draw, class, host, rail_draw(draw));

			rule_draw(draw, hit, i > 0);
			at_mend_draw(draw, hit, i > 0 ? 200 : 0);
		}
	}
}

/** Something in the way of the repair of a fault that was drawn. */
static void hinder_draw(struct draw *draw)
{
	static const char *const blocked[] = {"modify_qp", "create_qp", "destroy_qp", "query_port",
					      "create_cq"};
	static const char *const refused[] = {"create_qp", "create_cq", "query_port"};
	struct rng *rng = &draw->rng;
	enum train_class class = (enum train_class)(TRAIN_ENOMEM + rng_below(rng, 4));
	struct train_episode *episode = draw->episode;

	if (!episode->hit_count || !wants(draw, class)) {
		return;
	}
	struct train_hit *of = &episode->hits[rng_below(rng, episode->hit_count)];
	struct train_hit *hit = hit_add(draw, class, of->host, of->rail);
	char args[64] = "";

	if (class == TRAIN_ENOMEM) {
		snprintf(args, sizeof(args), " call=%s nth=%u", refused[rng_below(rng, 3)],
			 1 + rng_below(rng, 3));
	} else if (class == TRAIN_BLOCK) {
		snprintf(args, sizeof(args), " call=%s delay_ms=%u", blocked[rng_below(rng, 5)],
			 rng_chance(rng, 100) ? 500 : 5 + rng_below(rng, 100));
	} else if (class == TRAIN_EVENT_LATE) {
		snprintf(args, sizeof(args), " delay_ms=%u", 1 + rng_below(rng, 100));
	}
	snprintf(hit->rule, sizeof(hit->rule), "%s host=%u rail=%u%s", train_class_name(class),
		 hit->host, hit->rail, args);
}

/** Trouble with the links of a process, before, during or after the repair. */
static void link_draw(struct draw *draw)
{
	enum train_class class = (enum train_class)(TRAIN_LINK_FIN + rng_below(&draw->rng, 3));

	if (!wants(draw, class)) {
		return;
	}
	struct train_hit *hit =
		hit_add(draw, class, rng_below(&draw->rng, draw->rails->host_count), 0);

	hit->after_ms = rng_below(&draw->rng, 3) * rng_below(&draw->rng, 20);
	hit->for_ms = class == TRAIN_LINK_MUTE ? 10 + rng_below(&draw->rng, 200) : 0;
	at_mend_draw(draw, hit, 350);
}

static void pause_draw(struct draw *draw)
{
	if (wants(draw, TRAIN_PAUSE)) {
		struct train_hit *hit = hit_add(draw, TRAIN_PAUSE,
						rng_below(&draw->rng, draw->rails->host_count), 0);

		hit->after_ms = rng_below(&draw->rng, 20);
		hit->for_ms = 100 + rng_below(&draw->rng, 700);
	}
}

/** Every rail of a host goes; after a while one is mended. */
static void blackout_draw(struct draw *draw)
{
	uint32_t host = rng_below(&draw->rng, draw->rails->host_count);

	for (uint32_t i = 0; i < draw->rails->rail_count; i++) {
		struct train_hit *hit = hit_add(draw, TRAIN_BLACKOUT, host, i);

		hit->after_ms = rng_below(&draw->rng, 30);
		snprintf(hit->rule, sizeof(hit->rule), "%s host=%u rail=%u",
			 rng_chance(&draw->rng, 500) ? "cut" : "port_down", host, hit->rail);
	}
	draw->episode->relief = rng_below(&draw->rng, draw->rails->rail_count);
	draw->episode->blackout_ms = 60 + rng_below(&draw->rng, 300);
}

static bool is_clear_of(const struct train_hit *hit, const struct train_hit *other)
{
	enum train_group group = train_class_group(other->class);

	return group != TRAIN_OTHER && other->rail != hit->rail;
}

static void alone_find(struct train_episode *episode)
{
	for (uint32_t i = 0; i < episode->hit_count; i++) {
		episode->hits[i].is_alone = episode->hits[i].class != TRAIN_BLACKOUT;
		for (uint32_t k = 0; k < episode->hit_count; k++) {
			if (k != i && !is_clear_of(&episode->hits[i], &episode->hits[k])) {
				episode->hits[i].is_alone = false;
			}
		}
	}
}

static void draw_begin(struct draw *draw, struct train_episode *episode,
		       const struct opt_train *opt, uint32_t number)
{
	*episode = (struct train_episode){.number = number, .waits = true};
	draw->episode = episode;
	draw->mask = opt->class_mask;
	draw->timed = opt->timed;
	draw->rng.state = rng_mix(opt->seed * 1000003 + number);
	draw->spared = rng_below(&draw->rng, draw->rails->rail_count);
	if (draw->rails->keep_spared) {
		draw->spared = draw->rails->spared;
	}
	episode->spared = draw->spared;
}

void train_draw(struct train_episode *episode, const struct opt_train *opt, uint32_t number,
		const struct train_rails *rails)
{
	struct draw draw = {.rails = rails};

	draw_begin(&draw, episode, opt, number);
	if (wants(&draw, TRAIN_BLACKOUT) && !rails->keep_spared && rng_chance(&draw.rng, 25)) {
		blackout_draw(&draw);
	} else {
		mains_draw(&draw);
		episode->limp_count = rng_below(&draw.rng, 3);
		if (rng_chance(&draw.rng, 250)) {
			hinder_draw(&draw);
		}
		if (rng_chance(&draw.rng, 150)) {
			link_draw(&draw);
		}
		if (rng_chance(&draw.rng, 20)) {
			pause_draw(&draw);
		}
		episode->waits = !rng_chance(&draw.rng, 200);
	}
	alone_find(episode);
}

void train_draw_last(struct train_episode *episode, const struct opt_train *opt, uint32_t number,
		     const struct train_rails *rails)
{
	static const char *const calls[] = {"destroy_qp", "dereg_mr", "modify_qp"};
	struct draw draw = {.rails = rails};

	draw_begin(&draw, episode, opt, number);
	episode->is_last = true;
	if (rng_chance(&draw.rng, 600)) {
		mains_draw(&draw);
	}
	if (rng_chance(&draw.rng, 500) && wants(&draw, TRAIN_BLOCK)) {
		struct train_hit *hit =
			hit_add(&draw, TRAIN_BLOCK, rng_below(&draw.rng, rails->host_count),
				rng_below(&draw.rng, rails->rail_count));

		snprintf(hit->rule, sizeof(hit->rule), "block host=%u rail=%u call=%s delay_ms=%u",
			 hit->host, hit->rail, calls[rng_below(&draw.rng, 3)],
			 50 + rng_below(&draw.rng, 500));
	}
	if (rng_chance(&draw.rng, 300)) {
		link_draw(&draw);
	}
	for (uint32_t i = 0; i < episode->hit_count; i++) {
		episode->hits[i].at_mend = false; /* nothing is mended any more */
	}
}
