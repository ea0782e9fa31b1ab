/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_PLAN_H
#define BRAID_REPAIR_PLAN_H

#include "repair/path.h"

#include <stdint.h>

/** How a message is cut. Pieces have equal length but for the last one. */
struct plan_cut {
	uint32_t pieces;          /* 1..PIECES_MAX */
	uint64_t piece_len_bytes; /* multiple of PIECE_ALIGN_BYTES when pieces > 1 */
};

/**
 * Cut a message of size_bytes (0 is one empty piece) into pieces of at least piece_min_bytes (a
 * multiple of PIECE_ALIGN_BYTES) so that there are at most PIECES_MAX. Pure.
 */
struct plan_cut plan_cut(uint64_t size_bytes, uint64_t piece_min_bytes);

/** Offset and length of piece i of a message. Pure. */
uint64_t plan_piece_offset_bytes(struct plan_cut cut, uint32_t piece);
uint32_t plan_piece_len_bytes(struct plan_cut cut, uint64_t size_bytes, uint32_t piece);

/** What plan_pick() is asked for. */
struct plan_ask {
	uint32_t key_mask;         /* paths on which both buffers are registered */
	unsigned int active_count; /* paths that share the load, the others stand by */
	uint64_t len_bytes;
	uint64_t weight_full;  /* what no path's weight at its speed is above */
	uint64_t window_bytes; /* outstanding on one path, where there are several */
	uint64_t idle_bytes;   /* a load up to this is none */
};

/**
 * Path that should carry len_bytes more: of the first active_count usable ones (UP, bit set in
 * key_mask, room in the queue, and idle or within window_bytes) the one with the least load
 * for its weight, all comms' together (repair/share.h); ties go to the lower index, the rail
 * nearest to the GPU. Paths beyond the first active_count that are UP are standby: they serve when
 * earlier ones are not UP. Where there is one to choose from the window is none. -1: none can take
 * it now.
 */
int plan_pick(const struct repair_path *paths, unsigned int path_count, const struct plan_ask *ask);

/**
 * Path for a few bytes that someone waits for (clear-to-send entry, acknowledgement): the first one
 * that is UP and has room, however loaded: entries are used in order, and on one path they arrive
 * so. -1: none.
 */
int plan_pick_tiny(const struct repair_path *paths, unsigned int path_count);

/** Paths that are UP and in key_mask: what plan_pick() may choose from sooner or later. */
unsigned int plan_usable_count(const struct repair_path *paths, unsigned int path_count,
			       uint32_t key_mask);

#endif
