/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends of one comm: repair/ as it decides, the wire and the link as they may behave. What is
 * modelled by what, what is not, bounds and results: README.md.
 *
 * One process; each step is indivisible, as it is in the code under the comm's lock. A state without
 * a next step has to be one in which all is done (P1). Runs that look for cycles too show that no
 * state is ever reached again, so each run ends there, without any assumption of fairness.
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

/* Bounds: paths, messages, messages in the window, pieces a message, faults, and: */
#ifndef EPOCHS
#define EPOCHS 1 /* last epoch a path may carry traffic in; 1: no rejoin */
#endif
#ifndef DUPS
#define DUPS 0 /* frames that come twice */
#endif
#ifndef REFUSALS
#define REFUSALS 0 /* times that a link has no room for a while */
#endif
#ifndef ABSENT
#define ABSENT 0 /* the last path could not be connected when the comm opened */
#endif
#ifndef ALARMS
#define ALARMS 1 /* a fault may be a false alarm */
#endif
#ifndef HEALS
#define HEALS 0 /* wires that work again */
#endif
#ifndef WAITS
#define WAITS 0 /* pieces may wait although a path is UP: their path's window is full */
#endif

#ifndef SLOW
#define SLOW 0 /* the sender's user is slow: entries wait in the ring */
#endif

#include "path_table.pml"
#include "steps.pml"

#define SND(p)   (p)
#define RCV(p)   (PATHS + (p))
#define NONE     7
#define ALL(msg)   (((1 << PIECES) - 1) << ((msg) * PIECES))
#define MSG(piece)   ((piece) / PIECES)
#define SLOT(msg)  ((msg) % WINDOW)
#define FULL(msg)  ((booked & ALL(msg)) == ALL(msg))
#define BIT(idx)   (1 << (idx))

/*
 * Of a wire, both directions. BAD: nothing is acknowledged any more; what was posted may land as late
 * as it likes, or all that is on its way is lost.
 */
#define WIRE_OK  0
#define WIRE_BAD 1

#define QP_NEW 0 /* replaced by a new one, not connected */
#define QP_RTS 1
#define QP_ERR 2
#define QP_STUCK 3 /* broken variant: fenced in name only */
#define RESPONDS(x) (qp[x] == QP_RTS || qp[x] == QP_STUCK)

/* Items of the receiver's send queues; a probe carries its epoch, an acknowledgement its seq. */
#define ITEM_CTS   0
#define ITEM_ACK   8
#define ITEM_PROBE 16

#define FENCE    0
#define FENCED_  1 /* the frame, not the state */
#define REJOIN   2
#define REJOINED 3
#define PROBED   4
#define HEAD(type, path, epoch) ((type) | (path) << 3 | (epoch) << 5)
#define F_TYPE  (f_head & 7)
#define F_EPOCH (f_head >> 5)

/* The environment. */
byte faults;
byte dups = DUPS;
byte heals = HEALS;
byte wire[PATHS];
chan net[PATHS] = [MESSAGES * PIECES + 1] of { byte };   /* posted by the sender, not yet placed */
chan rnet[PATHS] = [3 * MESSAGES + 1] of { byte };       /* posted by the receiver, not yet placed */
chan cq[PATHS] = [MESSAGES * PIECES] of { byte };        /* placed, not yet taken by the receiver */
chan link[2] = [3 * PATHS + DUPS] of { byte, byte };     /* to sender, to receiver: HEAD, book */

/* Paths, at both ends: SND(p), RCV(p). */
byte st[2 * PATHS];
byte ep[2 * PATHS];
byte qp[2 * PATHS];
byte kept[2 * PATHS]; /* peer_book: at the sender pieces, at the receiver entries */

/* Sender. */
byte entries;       /* bit per message: its clear-to-send entry is in the ring */
byte s_next, s_acked;
byte pending;       /* pieces not posted on any path */
byte sent[PATHS];   /* pieces posted on the path in its present epoch, of messages not acknowledged */
byte s_out[PATHS];  /* pieces posted and not returned */

/* Receiver. A receive is done as soon as the book has all of it: the strictest user there can be. */
byte booked;        /* bit per piece */
byte r_next, r_posted, r_acked;
byte cts_wanted;    /* bit per message */
byte cts_path[MESSAGES];

/* Scratch of one step. */
hidden byte act, from, idx, msg, piece, item, f_head, f_path, f_book;
hidden byte sure;

#ifdef V_DONE_ON_COMPLETION
#define SEND_DONE(msg) ((msg) < s_next && !(pending & ALL(msg)) && !(ANY_OUT & ALL(msg)))
#else
#define SEND_DONE(msg) ((msg) < s_acked && !(ANY_OUT & ALL(msg)))
#endif
#if PATHS == 2
#define ANY_OUT (s_out[0] | s_out[1])
#define ANY_UP(of) (st[of(0)] == UP || st[of(1)] == UP)
#else
#define ANY_OUT (s_out[0] | s_out[1] | s_out[2])
#define ANY_UP(of) (st[of(0)] == UP || st[of(1)] == UP || st[of(2)] == UP)
#endif
#if MESSAGES == 1
#define SENDS_COVERED (!SEND_DONE(0) || FULL(0))
#elif MESSAGES == 2
#define SENDS_COVERED ((!SEND_DONE(0) || FULL(0)) && (!SEND_DONE(1) || FULL(1)))
#else
#define SENDS_COVERED ((!SEND_DONE(0) || FULL(0)) && (!SEND_DONE(1) || FULL(1)) && (!SEND_DONE(2) || FULL(2)))
#endif
#define ALL_DONE (r_next == MESSAGES && s_acked == MESSAGES && !ANY_OUT)

#ifdef V_ACK_BEFORE_BOOK
byte claim; /* says what was placed, entered in the book or not */
#define ACK_VALUE claim
#else
#define ACK_VALUE r_next
#endif
#define ACK_DUE (ACK_VALUE > r_acked)

/*
 * What the pumps post (tx_pump, rx_pump), they post in the step that makes it possible. They are
 * steps of their own here, for which path takes it is left open, so all others wait for them.
 */
#define R_DUE  ((cts_wanted || ACK_DUE) && ANY_UP(RCV))
#define S_DUE  (!WAITS && pending && ANY_UP(SND))
#define CALM   (!R_DUE && !S_DUE)

/*
 * Paths on which nothing has happened yet are alike: only the first of them may be the next one to
 * be used or to fail.
 */
#define IS_FRESH(p)                                                                                \
	(ep[SND(p)] == 1 && ep[RCV(p)] == 1 && st[SND(p)] == UP && st[RCV(p)] == UP &&             \
	 wire[p] == WIRE_OK && !sent[p] && !s_out[p] && !HAS_ENTRIES(p) &&      \
	 (len(rnet[p]) == 0) && (len(cq[p]) == 0))
#if MESSAGES == 1
#define HAS_ENTRIES(p) (cts_path[0] == (p))
#elif MESSAGES == 2
#define HAS_ENTRIES(p) (cts_path[0] == (p) || cts_path[1] == (p))
#else
#define HAS_ENTRIES(p) (cts_path[0] == (p) || cts_path[1] == (p) || cts_path[2] == (p))
#endif
#define IN_TURN(p)                                                                                 \
	((p) == 0 || !IS_FRESH(p) || (!IS_FRESH(0) && ((p) == 1 || !IS_FRESH(1))))

#include "notice.pml"
#include "rejoin.pml"
#include "data.pml"
#include "fence.pml"

#if PATHS == 2
#define EACH(step) step(0) :: step(1)
#else
#define EACH(step) step(0) :: step(1) :: step(2)
#endif

active proctype model()
{
	d_step {
		for (idx : 0 .. PATHS - 1) {
			st[SND(idx)] = PARKED;
			st[RCV(idx)] = PARKED;
			if
			:: ABSENT && idx == PATHS - 1 ->
				ep[SND(idx)] = 1;
				on_FAULT(SND(idx));
				ep[RCV(idx)] = 1;
				on_FAULT(RCV(idx));
				qp[SND(idx)] = QP_ERR;
				qp[RCV(idx)] = QP_ERR
			:: else ->
				ep[SND(idx)] = 1;
				on_READY(SND(idx));
				ep[RCV(idx)] = 1;
				on_READY(RCV(idx));
				qp[SND(idx)] = QP_RTS;
				qp[RCV(idx)] = QP_RTS
			fi
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
	:: EACH(r_post)
	:: EACH(post)
#if SLOW
	:: s_send()
#endif
	:: EACH(land)
	:: EACH(arrive)
	:: EACH(r_land)
	:: EACH(wire_breaks)
	:: EACH(wire_loses)
	:: EACH(wire_lies)
	:: EACH(s_fault)
	:: EACH(r_fault)
	:: EACH(s_false_alarm)
	:: EACH(r_false_alarm)
	:: EACH(s_fenced)
	:: EACH(r_fenced)
	:: EACH(r_dropped)
	:: to_sender()
	:: to_receiver()
#if DUPS > 0
	:: to_sender_twice()
	:: to_receiver_twice()
#endif
#if REFUSALS > 0
	:: link_fills(0)
	:: link_fills(1)
	:: to_sender_has_room()
	:: to_receiver_has_room()
#endif
#if EPOCHS > 1
	:: EACH(s_offer)
	:: EACH(s_joined)
	:: EACH(s_join_fails)
	:: EACH(r_joined)
	:: EACH(r_join_fails)
	:: EACH(s_probe_acked)
	:: EACH(r_probe_acked)
	:: EACH(wire_heals)
#endif
	:: CALM && (ALL_DONE || NO_PATH_WORKS) -> break
	:: else -> P1(false); break
	od
}
