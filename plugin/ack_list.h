/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_ACK_LIST_H
#define BRAID_PLUGIN_ACK_LIST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct comm;

/**
 * The comms with an acknowledgement that waits (repair/ack.h). What drives their rounds are NCCL's
 * own calls, of whatever comm: its threads ask for each open request again and again, so while one
 * is open in the process the next call is less than a microsecond away. When none is open any more,
 * the call that ended the last one posts what waits; and what a user leaves who has requests open
 * but does not call goes with the next tick of the loop thread. No timer, and nobody is woken.
 *
 * Threads of the process share the list, but a call only looks at a few words until a round is
 * over. Lock order: a comm's lock, then the list's own.
 */

/*
 * For the functions below. Requests that are open in the process; comms on the list; calls while
 * some are (one that is lost between two threads is no harm); the call that ends the first's round.
 */
extern _Atomic uint32_t ack_list_open_count;
extern _Atomic uint32_t ack_list_count;
extern _Atomic uint32_t ack_list_calls;
extern _Atomic uint32_t ack_list_due;

/** A request is open: calls will come. Any thread. */
static inline void ack_list_expect(void)
{
	atomic_fetch_add_explicit(&ack_list_open_count, 1, memory_order_relaxed);
}

/**
 * It is no more. Release, and acquire in ack_list_turn(): whoever ends the last one finds on the
 * list what was put there while others were open.
 */
static inline void ack_list_unexpect(void)
{
	atomic_fetch_sub_explicit(&ack_list_open_count, 1, memory_order_acq_rel);
}

/**
 * Put the comm, which is not there, on the list; the list holds a reference until it is off. False:
 * but for the request that is being asked for none is open, so nobody may call. Comm's lock held;
 * the data path.
 */
bool ack_list_add(struct comm *comm);

/** For ack_list_turn(): the first round is over, or no request is open any more. */
void ack_list_run(void);

/** At the end of each call of the data path, no lock held. */
static inline void ack_list_turn(void)
{
	uint32_t call;

	/* Relaxed: what others put there while this one looks is found by their own calls, or by
	 * the tick. For what was there before see ack_list_unexpect(). */
	if (__builtin_expect(atomic_load_explicit(&ack_list_count, memory_order_relaxed) == 0, 1)) {
		return;
	}
	call = atomic_load_explicit(&ack_list_calls, memory_order_relaxed) + 1;
	atomic_store_explicit(&ack_list_calls, call, memory_order_relaxed);
	if ((int32_t)(call - atomic_load_explicit(&ack_list_due, memory_order_relaxed)) >= 0 ||
	    atomic_load_explicit(&ack_list_open_count, memory_order_acquire) == 0) {
		ack_list_run();
	}
}

/** Post all that waits, and let go of what is closed. Any thread, no lock held. */
void ack_list_flush(void);

#endif
