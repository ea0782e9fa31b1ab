/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_ACK_H
#define BRAID_REPAIR_ACK_H

#include <stdbool.h>
#include <stdint.h>

/**
 * When the receiver acknowledges. A word of its own for each message is a third write, posted
 * before the receive is reported done. But a receiver in a stream soon posts its next receive,
 * whose entry acknowledges as well. So a word waits for an entry, as long as somebody calls
 * (ops->ack_later()), until
 *
 *   - count_max messages are to be acknowledged: their sender may need the room, and sooner where
 *     they are large,
 *   - none was carried since the caller's last round (repair_rx_ack_round()): what waits has then
 *     waited for a whole one.
 *
 * A round is some microseconds of a process that polls, so a wait that was in vain costs the
 * sender's user next to nothing, and the word leaves after the receive was reported, not before.
 */
struct ack_pace {
	bool is_listed;     /* the caller will call repair_rx_ack_round() */
	uint8_t count_max;  /* messages that may be unacknowledged */
	uint64_t round_seq; /* acked_seq in the last round, or when it was listed */
};

enum {
	ACK_MSGS_MAX = 8,  /* half the window: the sender goes on with the rest */
	ACK_LARGE_MAX = 2, /* of large ones NCCL has few under way */
};

#endif
