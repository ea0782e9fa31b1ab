/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_REPAIR_ACK_H
#define BRAID_REPAIR_ACK_H

#include <stdbool.h>
#include <stdint.h>

struct repair_limits;

/**
 * When the receiver acknowledges. A word of its own for each message is a third write, posted
 * before the receive is reported done: NCCL may not call again, and a send is not done before. But
 * a receiver in a stream posts its next receive at once, whose entry acknowledges as well. So a
 * word may wait for an entry, until
 *
 *   - ACK_MSGS_MAX messages or a large one are to be acknowledged: their sender may need the room,
 *   - NCCL has looked ACK_POLLS_MAX times for something else: it calls, but posts no receive,
 *   - it has waited a whole round of the caller's timer (repair_rx_ack_round()): nobody calls.
 *
 * The last one may have cost the sender's user a millisecond or two, thousands of times what a word
 * costs, so it has to be rare. A comm acknowledges at once until it has received eager_min messages
 * in a row. After a wait that was in vain it does so again for twice as many each time, up to
 * eager_max, unless ACK_WORTH entries had carried one meanwhile. So a job in which every message is
 * followed by silence loses next to nothing, and a stream gets rid of nearly all words.
 */
struct ack_pace {
	bool is_due;         /* something large has come: do not wait */
	bool is_listed;      /* the caller's timer will call repair_rx_ack_round() */
	uint32_t polls;      /* since something waits */
	uint32_t eager_left; /* messages to be acknowledged at once */
	uint32_t eager_next; /* the same, after the next wait that is in vain */
	uint32_t carried;    /* messages that entries acknowledged since the last one */
	uint64_t round_seq;  /* acked_seq in the last round in which something waited */
};

enum {
	ACK_MSGS_MAX = 8,   /* half the window: the sender goes on with the rest */
	ACK_POLLS_MAX = 64, /* some ten microseconds */
	ACK_WORTH = 4096,   /* what these save is about what a wait in vain costs */
};

enum ack_carrier {
	ACK_BY_WORD,
	ACK_BY_ENTRY
};

void ack_init(struct ack_pace *pace, const struct repair_limits *limits);

/** A round of the timer has found that something waits since the last one. */
void ack_was_in_vain(struct ack_pace *pace, const struct repair_limits *limits);

/* Inline: for each message. */

/** May a word for `count` messages wait once more? */
static inline bool ack_may_wait(struct ack_pace *pace, uint64_t count)
{
	return pace->eager_left == 0 && !pace->is_due && count < ACK_MSGS_MAX &&
	       ++pace->polls < ACK_POLLS_MAX;
}

/** `count` more messages are acknowledged. */
static inline void ack_told(struct ack_pace *pace, uint64_t count, enum ack_carrier carrier)
{
	pace->polls = 0;
	if (pace->eager_left > 0) {
		pace->eager_left -= count < pace->eager_left ? (uint32_t)count : pace->eager_left;
	} else if (carrier == ACK_BY_ENTRY) {
		pace->carried += (uint32_t)count;
	}
	if (carrier == ACK_BY_WORD) {
		pace->is_due = false;
	}
}

#endif
