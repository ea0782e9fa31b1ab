/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/plan.h"

#include "include/log.h"
#include "repair/share.h"

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

struct plan_cut plan_cut(uint64_t size_bytes, uint64_t piece_min_bytes)
{
	uint64_t len = round_up((size_bytes + PIECES_MAX - 1) / PIECES_MAX, PIECE_ALIGN_BYTES);

	ASSERT(piece_min_bytes >= PIECE_ALIGN_BYTES && piece_min_bytes % PIECE_ALIGN_BYTES == 0);
	if (len < piece_min_bytes) {
		len = piece_min_bytes;
	}
	if (size_bytes <= len) {
		return (struct plan_cut){.pieces = 1, .piece_len_bytes = size_bytes};
	}
	return (struct plan_cut){.pieces = (uint32_t)((size_bytes + len - 1) / len),
				 .piece_len_bytes = len};
}

uint64_t plan_piece_offset_bytes(struct plan_cut cut, uint32_t piece)
{
	ASSERT(piece < cut.pieces);
	return cut.piece_len_bytes * piece;
}

uint32_t plan_piece_len_bytes(struct plan_cut cut, uint64_t size_bytes, uint32_t piece)
{
	uint64_t offset = plan_piece_offset_bytes(cut, piece);

	return (uint32_t)(piece + 1 == cut.pieces ? size_bytes - offset : cut.piece_len_bytes);
}

static bool usable(const struct repair_path *path, const struct plan_ask *ask)
{
	if (!wrq_has_room(&path->sq)) {
		return false;
	}
	return path->inflight_bytes == 0 ||
	       path->inflight_bytes + ask->len_bytes <= ask->window_bytes;
}

static uint64_t load_with(const struct repair_path *path, const struct plan_ask *ask)
{
	uint64_t load_bytes = share_load_bytes(path);

	return (load_bytes > ask->idle_bytes ? load_bytes : ask->idle_bytes) + ask->len_bytes;
}

int plan_pick(const struct repair_path *paths, unsigned int path_count, const struct plan_ask *ask)
{
	unsigned int seen = 0, last = 0;
	uint64_t best_bytes = 0, best_weight = 0;
	int best = -1;

	for (unsigned int i = 0; i < path_count && seen < ask->active_count; i++) {
		uint64_t bytes, weight;

		if (paths[i].state != PATH_UP || !(ask->key_mask >> i & 1)) {
			continue;
		}
		seen++;
		last = i;
		if (!usable(&paths[i], ask)) {
			continue;
		}
		bytes = load_with(&paths[i], ask);
		weight = (uint64_t)paths[i].weight * paths[i].speed;
		if (bytes == ask->idle_bytes + ask->len_bytes && weight == ask->weight_full) {
			return (int)i; /* none is better, and most times it is the first */
		}
		if (best < 0 || bytes * best_weight < best_bytes * weight) {
			best = (int)i;
			best_bytes = bytes;
			best_weight = weight;
		}
	}
	/* A window leaves work for others; there are none. */
	if (seen == 1) {
		return wrq_has_room(&paths[last].sq) ? (int)last : -1;
	}
	return best;
}

int plan_pick_tiny(const struct repair_path *paths, unsigned int path_count)
{
	for (unsigned int i = 0; i < path_count; i++) {
		if (paths[i].state == PATH_UP && wrq_has_room(&paths[i].sq)) {
			return (int)i;
		}
	}
	return -1;
}

unsigned int plan_usable_count(const struct repair_path *paths, unsigned int path_count,
			       uint32_t key_mask)
{
	unsigned int count = 0;

	for (unsigned int i = 0; i < path_count; i++) {
		count += paths[i].state == PATH_UP && (key_mask >> i & 1);
	}
	return count;
}
