/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_REJOIN_H
#define BRAID_REPAIR_REJOIN_H

#include "repair/end.h"

/** How long a probe may take to be right; an HCA gives up after about 0.5 s by default. */
enum {
	PROBE_BOUND_MS = 3000
};

/**
 * A path that is DOWN comes back (P10), without end and by itself:
 *
 *   sender                                         receiver
 *   new QP (rebuild)
 *   REJOIN{path, epoch, QP, rail, key} ---------->
 *                                                  new QP, connect it, PROBING: receives
 *            <------------------------------------ REJOINED{path, epoch, QP, rail, keys}, or err
 *   connect, PROBING: probe
 *   own probe placed: PROBED{path, epoch} ------->  the peer is connected now: probe
 *            <------------------------------------  own probe placed: PROBED{path, epoch}
 *   own probe placed and peer's arrived: UP        the same
 *
 * The receiver's probe comes second, since its QP would give up on a peer that is slow to connect.
 *
 * QPs and PSNs are fresh, the epoch is the one that the last fence raised to: nothing of an older
 * epoch fits. A probe is WIRE_PROBE_BYTES of a pattern that names path and epoch; when the peer
 * says it was placed, the bytes are compared, so a rail that loses long packets does not come back.
 *
 * Keys. Before ops->rebuild has answered, an end may have opened the path's HCA again, and all
 * memory has other keys on it. No work request with a key of the HCA before is posted on the new
 * QP:
 * - of local memory: keys are asked for when a piece is posted, and ops->key says again for each
 *   message that the sender holds whether its buffer is registered there;
 * - of the rings: both frames carry the key anew;
 * - of receive buffers: entries written before the rebuild may name the old key, and an entry never
 *   changes. So REJOINED names the key of every receive that is not complete, read out when it
 *   leaves, and these count for those messages in place of their entries'. Receives that are posted
 *   later have the new key in their entries: reading out and posting exclude each other, and the
 *   HCA is not opened again while the path is PROBING or UP. Complete ones are not written again.
 * Nothing but the REJOINED of its epoch makes the path UP at the sender, and a path that was only
 * repaired goes through the same with the keys it had.
 *
 * Whatever goes wrong while PROBING is a fault like any other: both ends fence the new epoch,
 * nothing is missing, the epoch is raised, and the next attempt comes later. When only one end was
 * PROBING the other answers FENCE from DOWN.
 *
 * Back-off: from rejoin_min_ms doubling to rejoin_max_ms, with a spread of a quarter. A path that
 * fails again soon after it came back starts where it was, one step higher (damping); one that held
 * for QUIET_MS starts again from the bottom. A port that becomes active asks for an attempt at
 * once, unless the path flaps.
 */

/** Result of ops->rebuild for the epoch it was asked for. err 0: side is this end's. */
void repair_rejoin_built(struct repair_end *end, unsigned int path, uint32_t epoch, int err,
			 const struct path_side *side, uint64_t now_ns);

/** Result of ops->join. */
void repair_rejoin_joined(struct repair_end *end, unsigned int path, uint32_t epoch, int err,
			  uint64_t now_ns);

/** REJOIN, REJOINED, REJOIN_HINT, PROBED of the peer. */
void repair_rejoin_on_frame(struct repair_end *end, const struct frame *frame, uint64_t now_ns);

/** The local port of the path is usable again: try soon. */
void repair_rejoin_hint(struct repair_end *end, unsigned int path, uint64_t now_ns);

/* For end.c and fence.c. */
/** A path that begins DOWN. */
void rejoin_begin(struct repair_end *end, unsigned int path);
void rejoin_begin_probe(struct repair_end *end, unsigned int path);
void rejoin_probe_placed(struct repair_end *end, unsigned int path);
void rejoin_went_down(struct repair_end *end, unsigned int path);
void rejoin_went_up(struct repair_end *end, unsigned int path);
void rejoin_tick(struct repair_end *end, unsigned int path);

/** The pattern of a probe. Pure. */
void rejoin_pattern(unsigned int path, uint32_t epoch, uint8_t out[WIRE_PROBE_BYTES]);

#endif
