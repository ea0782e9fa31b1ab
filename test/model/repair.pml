/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends of one comm: repair/ as it decides, the wire and the link as they may behave. What is
 * modelled, what is not, bounds and results: README.md.
 *
 * One process; each step is indivisible, as it is in the code under the comm's lock. No step leads
 * back to a state that was there before (checked: run_model acyclic), so "no state without a next step but those
 * where all is done" means that everything gets done, without any assumption of fairness.
 *
 * P1() .. P4(): the promises. A run checks those that are switched on.
 */
#ifdef CHECK_P1
#define P1(c) assert(c)
#else
#define P1(c) skip
#endif
#ifdef CHECK_P2
#define P2(c) assert(c)
#else
#define P2(c) skip
#endif
#ifdef CHECK_P3
#define P3(c) assert(c)
#else
#define P3(c) skip
#endif
#ifdef CHECK_P4
#define P4(c) assert(c)
#else
#define P4(c) skip
#endif

#include "path_table.pml"

/* Bounds: paths, messages, messages in the window, pieces a message, faults, frames that come twice, last epoch. */
#ifndef EPOCHS
#define EPOCHS 1 /* no rejoin */
#endif
#ifndef DUPS
#define DUPS 0
#endif
#ifndef ALARMS
#define ALARMS 1 /* a fault may be a false alarm */
#endif
#ifndef HEALS
#define HEALS 0
#endif

#define SND(p)   (p)
#define RCV(p)   (PATHS + (p))
#define NONE     7
#define ALL(msg)   (((1 << PIECES) - 1) << ((msg) * PIECES))
#define MSG(piece)   ((piece) / PIECES)
#define SLOT(msg)  ((msg) % WINDOW)
#define FULL(msg)  ((booked & ALL(msg)) == ALL(msg))
#define BIT(idx)   (1 << (idx))

/* Of a wire, both directions. */
#define WIRE_OK   0
#define WIRE_LATE 1 /* what was posted may land yet, nothing is acknowledged any more */
#define WIRE_DEAD 2 /* nothing lands any more */

#define QP_NEW 0 /* replaced by a new one, not connected */
#define QP_RTS 1
#define QP_ERR 2
#define QP_STUCK 3 /* broken variant: fenced in name only */
#define RESPONDS(x) (qp[x] == QP_RTS || qp[x] == QP_STUCK)

/* Items of the receiver's send queues; a probe carries its epoch, an acknowledgement its seq. */
#define ITEM_CTS   0
#define ITEM_RECTS 8
#define ITEM_ACK   16
#define ITEM_PROBE 24

#define FENCE    0
#define FENCED_  1 /* the frame, not the state */
#define REJOIN   2
#define REJOINED 3
#define PROBED   4

/* The environment. */
byte faults;
byte dups = DUPS;
byte heals = HEALS;
byte wire[PATHS];
chan net[PATHS] = [MESSAGES * PIECES + 2] of { byte };  /* posted by the sender, not yet placed */
chan rnet[PATHS] = [3 * MESSAGES + 2] of { byte };      /* posted by the receiver, not yet placed */
chan cq[PATHS] = [MESSAGES * PIECES + 2] of { byte };   /* placed, completion not yet taken by the receiver */
chan link[2] = [10] of { byte, byte, byte, byte };      /* to sender, to receiver: type, path, epoch, book */

/* Paths, at both ends: SND(p), RCV(p). */
byte st[2 * PATHS];
byte ep[2 * PATHS];
byte qp[2 * PATHS];
byte kept[PATHS]; /* peer_book at the sender */

/* Sender. */
byte ring[WINDOW]; /* clear-to-send entries: seq, 0 none */
byte s_next, s_acked;
byte pending;       /* pieces not posted on any path */
byte sent[PATHS];   /* pieces posted on the path in its present epoch */
byte s_out[PATHS];  /* pieces posted and not returned */

/* Receiver. A receive is done as soon as the book has all of it: the strictest user there can be. */
byte booked;        /* bit per piece */
byte r_next, r_posted, r_acked;
byte ack_path = NONE;
byte cts_wanted, cts_again; /* bit per message */
byte cts_path[MESSAGES];
byte again[PATHS];  /* bit per slot: repeated entry that may land yet */

/* Scratch of one step. */
hidden byte act, idx, msg, piece, item, ctl, f_path, f_epoch, f_book, f_type;
hidden byte sure;

#ifdef V_DONE_ON_COMPLETION
#define SEND_DONE(msg) ((msg) < s_next && !(pending & ALL(msg)) && !(ANY_OUT & ALL(msg)))
#else
#define SEND_DONE(msg) ((msg) < s_acked && !(ANY_OUT & ALL(msg)))
#endif
#if PATHS == 2
#define ANY_OUT (s_out[0] | s_out[1])
#define HELD(slot) ((again[0] | again[1]) & BIT(slot))
#else
#define ANY_OUT (s_out[0] | s_out[1] | s_out[2])
#define HELD(slot) ((again[0] | again[1] | again[2]) & BIT(slot))
#endif
#if MESSAGES == 1
#define SENDS_COVERED (!SEND_DONE(0) || FULL(0))
#elif MESSAGES == 2
#define SENDS_COVERED ((!SEND_DONE(0) || FULL(0)) && (!SEND_DONE(1) || FULL(1)))
#else
#define SENDS_COVERED ((!SEND_DONE(0) || FULL(0)) && (!SEND_DONE(1) || FULL(1)) && (!SEND_DONE(2) || FULL(2)))
#endif
#define ALL_DONE (r_next == MESSAGES && s_acked == MESSAGES && !ANY_OUT)

#include "data.pml"
#include "fence.pml"
#include "rejoin.pml"

#if PATHS == 2
#define EACH(step) step(0) :: step(1)
#else
#define EACH(step) step(0) :: step(1) :: step(2)
#endif

active proctype model()
{
	d_step {
		for (idx : 0 .. PATHS - 1) {
			st[SND(idx)] = UP;
			st[RCV(idx)] = UP;
			ep[SND(idx)] = 1;
			ep[RCV(idx)] = 1;
			qp[SND(idx)] = QP_RTS;
			qp[RCV(idx)] = QP_RTS;
		}
		for (idx : 0 .. MESSAGES - 1) {
			cts_path[idx] = NONE;
		}
		recv()
	}
	if
	:: faults = 0
	:: faults = 1
#if FAULTS > 1
	:: faults = 2
#endif
#if FAULTS > 2
	:: faults = 3
#endif
	fi;
	do
	:: ack()
	:: EACH(post)
	:: EACH(land)
	:: EACH(arrive)
	:: EACH(r_land)
	:: EACH(wire_breaks)
	:: EACH(wire_dies)
	:: EACH(wire_lies)
	:: EACH(s_fault)
	:: EACH(r_fault)
	:: EACH(s_false_alarm)
	:: EACH(r_false_alarm)
	:: EACH(s_reap)
	:: EACH(r_errored)
	:: EACH(r_reap)
	:: EACH(r_drop)
	:: to_sender()
	:: to_receiver()
#if DUPS > 0
	:: to_sender_twice()
	:: to_receiver_twice()
#endif
#if EPOCHS > 1
	:: EACH(s_offer)
	:: EACH(s_joined)
	:: EACH(s_join_fails)
	:: EACH(r_joined)
	:: EACH(wire_heals)
#endif
	:: NO_PATH_WORKS -> break
	:: ALL_DONE -> break
	od
}
