/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_LIMITS_H
#define BRAID_LIMITS_H

/**
 * Bounds that both ends share. They size fixed arrays, wire structures and queue depths; a change
 * of one of them is a change of the wire protocol (PROTO_VERSION in include/frame.h).
 */
enum {
	/* paths of one comm: pairs (local rail, remote rail) */
	PATHS_MAX = 16,
	/* rails (HCA ports) one process opens */
	RAILS_MAX = 32,
	/* messages of one comm between the oldest unreported and the newest posted; NCCL keeps 8 */
	WINDOW_MSGS = 16,
	/* pieces one message is cut into; one bit each in the book */
	PIECES_MAX = 32,
	/* piece boundaries: LL128 lines stay whole on one path */
	PIECE_ALIGN_BYTES = 128,
	/*
	 * Receives posted on each QP at the receiver. Every piece of an unacknowledged message is
	 * posted at most once per path and epoch, so this many are never exhausted: no credits, no
	 * RNR.
	 */
	RECV_WRS = WINDOW_MSGS * PIECES_MAX,
};

#endif
