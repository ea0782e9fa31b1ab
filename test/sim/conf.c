/* SPDX-License-Identifier: Apache-2.0 */
#include "test/sim/conf.h"

#include "repair/rejoin.h"
#include "test/sim/net.h"

#include <string.h>

enum {
	US = 1000,
	MS = 1000 * US
};

static void draw_paths(struct sim_conf *c, struct rng *rng)
{
	c->path_count = rng_range(rng, 2, 4);
	if (rng_chance(rng, 20)) {
		c->path_count = rng_range(rng, 9, 12);
	}
	c->active_count = c->path_count;
	if (rng_chance(rng, 250)) {
		c->active_count = rng_range(rng, 1, c->path_count);
	}
	for (unsigned int p = 0; p < PATHS_MAX; p++) {
		c->latency_ns[p] = rng_spread(rng, 1 * US, 200 * US);
		c->jitter_ns[p] = rng_spread(rng, 100, 50 * US);
		c->ps_per_byte[p] = (uint32_t)rng_spread(rng, 20, 20000);
		c->weight[p] = rng_range(rng, 1, 4);
	}
}

static void draw_traffic(struct sim_conf *c, struct rng *rng)
{
	static const uint32_t mins[] = {128, 256, 512, 1024};

	c->limits.piece_min_bytes = mins[rng_below(rng, 4)];
	c->limits.small_bytes = rng_chance(rng, 300) ? 0 : rng_below(rng, 1024);
	c->limits.window_bytes = rng_spread(rng, 256, 64 * 1024);
	c->limits.reap_ms = rng_range(rng, 5, 50);
	c->limits.no_path_ms = rng_range(rng, 400, 900);
	c->msg_count = rng_range(rng, 4, 40);
	c->depth = rng_range(rng, 1, 8);
	if (rng_chance(rng, 80)) {
		c->depth = SIM_DEPTH_MAX;
	}
	c->size_max = (uint32_t)rng_spread(rng, 256, 8 * 1024);
	if (rng_chance(rng, 10)) {
		c->size_max = SIM_SIZE_MAX;
		c->msg_count = 6;
	}
	c->first_seq = 1;
	if (rng_chance(rng, 150)) {
		c->first_seq = 65536 - rng_below(rng, 40);
	}
	c->any_order = rng_chance(rng, 200);
	c->rx_closes = rng_chance(rng, 300);
	c->key_hole_permille = rng_chance(rng, 150) ? 300 : 0;
	/* From what is drawn already: the seeds stay what they were. */
	c->limits.alone_bytes = 2ull * c->limits.piece_min_bytes << c->msg_count % 4;
	c->limits.uncut_whole = c->msg_count % 3 != 0;
	c->limits.large_bytes = c->msg_count % 2 ? 256 : 2048;
}

static void draw_machines(struct sim_conf *c, struct rng *rng)
{
	c->place_lag_ns = rng_chance(rng, 350) ? rng_spread(rng, 1 * US, 3 * MS) : 0;
	c->wc_lag_ns = rng_chance(rng, 400) ? rng_spread(rng, 1 * US, 3 * MS) : 0;
	c->told = rng_chance(rng, 500);
	c->rto_ns = rng_range(rng, 3, 20) * (uint64_t)MS;
	/* Three blips, each met by the packet sent again after the last one, are no stall. */
	c->limits.stall_ms = rng_range(rng, 20, 100) + 3 * (uint32_t)(c->rto_ns / MS);
	c->retry_count = rng_chance(rng, 150) ? 0 : rng_range(rng, 2, 4);
	c->chunk_bytes = 32u << rng_below(rng, 5);
	c->tx_window_wrs = rng_range(rng, 4, 24);
	c->sq_depth_wrs = rng_chance(rng, 200) ? rng_range(rng, 20, 40) : 512;
	c->link_delay_ns = rng_spread(rng, 20 * US, 5 * MS);
	c->link_slow_permille = rng_chance(rng, 200) ? 200 : 0;
	c->link_dup_permille = rng_chance(rng, 400) ? 400 : 0;
	c->fence_delay_ns = rng_spread(rng, 10 * US, 200 * MS);
	c->heals = rng_chance(rng, 500);
	if (c->heals) {
		c->pace_ns = rng_chance(rng, 500) ? rng_spread(rng, 100 * US, 60 * MS) : 0;
		c->limits.rejoin_min_ms = rng_range(rng, 1, 60);
		c->limits.rejoin_max_ms = rng_range(rng, 100, 1000);
		c->limits.salt = (uint32_t)rng_next(rng);
	}
	c->no_flush_permille = rng_chance(rng, 200) ? 500 : 0;
	c->poll_delay_ns = rng_spread(rng, 200, 50 * US);
	c->wcs_per_poll = (uint32_t)rng_spread(rng, 1, 64);
	if (rng_chance(rng, 30)) { /* software that lags behind its worker */
		c->wcs_per_poll = 1;
		c->poll_delay_ns = rng_spread(rng, 100 * US, 2 * MS);
		c->fence_delay_ns = 20 * US;
	}
	if (c->heals && rng_chance(rng, 60)) { /* memory that lags behind its HCA */
		c->place_lag_ns = rng_spread(rng, 2 * MS, 8 * MS);
		c->link_delay_ns = 50 * US;
		c->pace_ns = c->place_lag_ns;
		c->msg_count = SIM_MSGS_MAX;
		c->size_max = 256;
		c->fence_delay_ns = 200 * US;
		c->poll_delay_ns = 10 * US;
		c->limits.rejoin_min_ms = 2;
		c->limits.rejoin_max_ms = 10;
	}
}

/* Whether acknowledgements wait, and small writes are copied. */
static void draw_small(struct sim_conf *c)
{
	struct rng rng = {rng_mix(c->seed + 0x632be59bd9b4e019ull)};

	c->limits.ack_large_bytes = rng_spread(&rng, 64, 8 * 1024);
	c->no_rounds_permille = rng_chance(&rng, 300) ? 1000 : rng_chance(&rng, 300) ? 200 : 0;
	c->copy_bytes = rng_chance(&rng, 300) ? 0 : rng_range(&rng, 1, NET_INLINE_BYTES);
}

static void draw_when(struct fault *f, struct rng *rng, unsigned int idx)
{
	f->when = WHEN_BYTES;
	f->value = rng_below(rng, 1000);
	if (idx > 0 && rng_chance(rng, 600)) {
		f->when = (enum fault_when)rng_range(rng, WHEN_AFTER, FAULT_WHEN_COUNT - 1);
		f->value = rng_range(rng, 1, 1 + idx * 3);
		f->delay_ns = rng_chance(rng, 300) ? 0 : rng_spread(rng, 1 * US, 30 * MS);
	}
	f->side = (uint8_t)rng_below(rng, 2);
	f->draw = (uint32_t)rng_next(rng);
}

static void add_fault(struct sim_conf *c, struct rng *rng, enum fault_kind kind, unsigned int path)
{
	struct fault *f = &c->faults[c->fault_count];

	*f = (struct fault){.kind = kind, .path = (uint8_t)path};
	draw_when(f, rng, c->fault_count);
	c->fault_count++;
}

static void draw_faults(struct sim_conf *c, struct rng *rng)
{
	unsigned int spare = c->goal == GOAL_NO_PATH ? PATHS_MAX : rng_below(rng, c->path_count);
	unsigned int first = rng_below(rng, c->path_count);

	for (unsigned int i = 0; i < c->path_count; i++) {
		unsigned int p = (first + i) % c->path_count;

		if (p == spare || (c->goal != GOAL_NO_PATH && rng_chance(rng, 200))) {
			continue;
		}
		c->dies_mask |= 1u << p;
		add_fault(c, rng, (enum fault_kind)rng_below(rng, FAULT_GARBLE), p);
		if (rng_chance(rng, 250)) { /* and something else on top */
			add_fault(c, rng, (enum fault_kind)rng_below(rng, FAULT_GARBLE), p);
		}
		while (c->heals && rng_chance(rng, 500) && c->fault_count < SIM_FAULTS_MAX / 2) {
			add_fault(c, rng, (enum fault_kind)rng_below(rng, FAULT_GARBLE), p);
		}
	}
	for (unsigned int kind = FAULT_GARBLE; kind < FAULT_CLOSE; kind++) {
		for (unsigned int i = 0; i < 3 && rng_chance(rng, 250); i++) {
			add_fault(c, rng, (enum fault_kind)kind, rng_below(rng, c->path_count));
		}
	}
	if (c->goal == GOAL_LEAVE) {
		c->rx_closes = false;
		add_fault(c, rng, rng_chance(rng, 600) ? FAULT_CLOSE : FAULT_KILL, 0);
	}
	if (c->heals && rng_chance(rng, 300)) { /* while a path tries to rejoin */
		struct fault *f = &c->faults[c->fault_count];

		add_fault(c, rng, rng_chance(rng, 700) ? FAULT_LINK_FULL : FAULT_GARBLE,
			  rng_below(rng, c->path_count));
		f->when = WHEN_JOIN;
		f->value = rng_range(rng, 1, 4);
	}
}

/*
 * Chance alone hardly ever gets here: clear-to-send entries are repeated on a path whose packets
 * are then held, the path is given up at the receiver first, and traffic on the last path is quick
 * enough to come round to the same slots before the sender fences.
 */
static void draw_repeated_cts(struct sim_conf *c, struct rng *rng)
{
	c->goal = GOAL_FINISH;
	c->path_count = c->active_count = 3;
	c->dies_mask = 3;
	c->fault_count = 0;
	c->depth = SIM_DEPTH_MAX;
	c->msg_count = 60;
	c->key_hole_permille = 0;
	c->size_max = 256;
	c->told = true;
	c->link_slow_permille = 0;
	c->link_delay_ns = rng_spread(rng, 100 * US, 10 * MS);
	add_fault(c, rng, rng_chance(rng, 500) ? FAULT_PORT_DOWN : FAULT_ACKLOSS, 0);
	add_fault(c, rng, FAULT_HOLD, 1);
	add_fault(c, rng, FAULT_PORT_GLITCH, 1);
	c->faults[0].when = WHEN_BYTES;
	c->faults[0].side = SIDE_TX;
	c->faults[1].when = WHEN_DOWN;
	c->faults[1].value = rng_range(rng, 1, 2);
	c->faults[1].delay_ns = 0;
	c->faults[1].draw = 1; /* towards the sender */
	c->faults[2].when = WHEN_AFTER;
	c->faults[2].delay_ns = rng_spread(rng, 10 * US, 10 * MS);
	c->faults[2].side = SIDE_RX;
}

/*
 * The last path is lost while the peer's process stands still for longer than a comm is held: it
 * has to be waited for, and then everything goes on.
 */
static void draw_held(struct sim_conf *c, struct rng *rng)
{
	uint8_t side = (uint8_t)rng_below(rng, 2);

	c->goal = GOAL_FINISH;
	c->path_count = c->active_count = 2;
	c->dies_mask = 3;
	c->fault_count = 0;
	c->key_hole_permille = 0;
	c->no_flush_permille = 0;
	c->heals = true;
	c->pace_ns = 0;
	c->limits.no_path_ms = 100;
	c->limits.rejoin_min_ms = 2;
	c->limits.rejoin_max_ms = 10;
	c->link_delay_ns = 50 * US;
	c->link_slow_permille = 0;
	c->fence_delay_ns = 100 * US;
	c->poll_delay_ns = 10 * US;
	add_fault(c, rng, FAULT_STOP, 0);
	add_fault(c, rng, FAULT_PORT_GLITCH, 0);
	add_fault(c, rng, FAULT_PORT_GLITCH, 1);
	c->faults[0].when = WHEN_BYTES;
	c->faults[0].side = side;
	c->faults[0].draw |= 1;
	for (unsigned int i = 1; i < 3; i++) {
		c->faults[i].when = WHEN_AFTER;
		c->faults[i].side = !side;
		c->faults[i].delay_ns = rng_spread(rng, 1 * US, 5 * MS);
	}
}

/* A probe that came changed is waited for as long as memory may lag behind its HCA; who counts on
 * that path must have more time than that to find one. */
static void allow_for_garbled(struct sim_conf *c)
{
	for (unsigned int i = 0; i < c->fault_count; i++) {
		if (c->faults[i].kind == FAULT_GARBLE && c->goal == GOAL_FINISH) {
			c->limits.no_path_ms += PROBE_BOUND_MS;
			return;
		}
	}
}

void conf_draw(struct sim_conf *c, uint64_t seed)
{
	struct rng rng = {rng_mix(seed + 0x5851f42d4c957f2dull)};
	uint32_t goal = rng_below(&rng, 1000);

	memset(c, 0, sizeof(*c));
	c->seed = seed;
	c->goal = goal < 60    ? GOAL_NO_PATH
		  : goal < 80  ? GOAL_UNFENCED
		  : goal < 180 ? GOAL_LEAVE
			       : GOAL_FINISH;
	draw_paths(c, &rng);
	draw_traffic(c, &rng);
	draw_machines(c, &rng);
	draw_small(c);
	draw_faults(c, &rng);
	allow_for_garbled(c);
	if (rng_chance(&rng, 30)) {
		draw_repeated_cts(c, &rng);
	} else if (rng_chance(&rng, 20)) {
		draw_held(c, &rng);
	} else {
		/* What one comm takes for a dead pair of rails may be a closed peer: the other
		 * one's paths are all fenced then, and have to come back. */
		c->has_sibling = c->goal == GOAL_FINISH && c->heals && rng_chance(&rng, 160);
	}
	if (c->heals && c->goal == GOAL_FINISH && rng_chance(&rng, 150)) {
		c->absent_mask = c->dies_mask & rng_below(&rng, 1u << c->path_count);
	}
	c->odd_is_cut = rng_chance(&rng, 500);
	c->odd_side = (uint8_t)rng_below(&rng, 2);
	c->odd_path = (uint8_t)(c->dies_mask ? __builtin_ctz(c->dies_mask) : 0);
	if (c->goal == GOAL_UNFENCED && c->odd_is_cut) {
		c->no_flush_permille = 1000;
	}
}

void conf_draw_sibling(struct sim_conf *c, const struct sim_conf *first)
{
	struct rng rng = {rng_mix(first->seed + 0x2545f4914f6cdd1dull)};

	*c = *first;
	c->seed = rng_next(&rng);
	draw_traffic(c, &rng);
	draw_small(c);
	c->limits.salt = (uint32_t)c->seed;
	c->has_sibling = false;
	c->fault_count = 0;
}

uint32_t conf_send_bytes(const struct sim_conf *c, uint64_t seq)
{
	uint64_t draw = rng_mix(c->seed * 3 + seq * 0x9e3779b97f4a7c15ull);
	uint32_t kind = (uint32_t)(draw >> 32) % 16;
	uint32_t size = (uint32_t)draw % (c->size_max + 1);

	if (kind == 0) {
		return 0;
	}
	return kind < 5 ? size % 512 : size; /* many small ones */
}

uint32_t conf_recv_bytes(const struct sim_conf *c, uint64_t seq)
{
	uint64_t draw = rng_mix(c->seed * 5 + seq * 0x9e3779b97f4a7c15ull);
	uint32_t size = conf_send_bytes(c, seq);
	uint32_t kind = (uint32_t)(draw >> 32) % 16;

	if (kind == 0) {
		return size ? (uint32_t)draw % size : 0;
	}
	return kind < 4 ? c->size_max : size;
}

uint32_t conf_key_mask(const struct sim_conf *c, enum sim_side side, uint64_t seq, uint32_t gen)
{
	uint64_t draw = rng_mix(c->seed * 7 + seq * 2 + side + gen * 0x10001ull);
	uint32_t all = (1u << c->path_count) - 1;

	if ((uint32_t)(draw >> 32) % 1000 >= c->key_hole_permille) {
		return all;
	}
	/* Paths that stay keep their keys, so that the message can always go. */
	return c->goal == GOAL_NO_PATH ? all : all & ~((uint32_t)draw & c->dies_mask);
}

bool conf_is_replaced(const struct sim_conf *c, enum sim_side side, unsigned int path,
		      uint32_t epoch)
{
	return rng_mix(c->seed * 11 + epoch * 64 + path * 2 + side) % 3 == 0;
}
