/* SPDX-License-Identifier: Apache-2.0 */
/* Messages, pieces, book, clear-to-send entries and acknowledgements; the wires below them. */

/* Clear-to-send entries go out at once when there is a path (rx_pump). */
inline r_pump()
{
	ctl = NONE;
	for (idx : 0 .. PATHS - 1) {
		if
		:: ctl == NONE && st[RCV(idx)] == UP -> ctl = idx
		:: else
		fi
	}
	if
	:: ctl != NONE && cts_wanted ->
		for (msg : 0 .. MESSAGES - 1) {
			if
			:: cts_wanted & BIT(msg) ->
				if
				:: cts_again & BIT(msg) ->
					put_r(ctl, ITEM_RECTS + msg);
#ifndef V_CTS_SLOT_NOT_HELD
					again[ctl] = again[ctl] | BIT(SLOT(msg))
#endif
				:: else ->
					put_r(ctl, ITEM_CTS + msg)
				fi;
				cts_path[msg] = ctl
			:: else
			fi
		}
		cts_wanted = 0
	:: else
	fi
}

/* What is posted to a peer whose QP is in ERR, or over a dead wire, never lands. */
inline put_r(p, what)
{
	if
	:: qp[SND(p)] == QP_RTS && wire[p] != WIRE_DEAD -> rnet[p]!what
	:: else
	fi
}

/*
 * Users are as fast as can be: a buffer is given away in the very step in which it may be, which
 * gives late writes the most to spoil.
 */
inline recv()
{
	do
	:: r_posted < MESSAGES && r_posted - r_next < WINDOW && !HELD(SLOT(r_posted)) ->
		cts_wanted = cts_wanted | BIT(r_posted);
		r_posted++
	:: else -> break
	od;
	r_pump()
}

inline send()
{
	do
	:: s_next < MESSAGES && ring[SLOT(s_next)] == s_next + 1 ->
		pending = pending | ALL(s_next);
		s_next++
	:: else -> break
	od
}

/*
 * Paths 1 and 2 are alike until one of them is used or fails: that one is called 1. The receiver uses
 * them only when path 0 is not UP.
 */
#if PATHS == 3 && EPOCHS == 1
#define IN_TURN(p)                                                                                 \
	((p) != 2 || sent[1] || wire[1] != WIRE_OK || st[SND(1)] != UP || st[RCV(1)] != UP ||      \
	 st[RCV(0)] != UP)
#else
#define IN_TURN(p) true
#endif

/* Oldest pending piece; which path takes it is the planner's business, so any. */
inline post(p)
{
	d_step {
		pending && st[SND(p)] == UP && IN_TURN(p) ->
		piece = 0;
		do
		:: pending & BIT(piece) -> break
		:: else -> piece++
		od;
		pending = pending & ~BIT(piece);
		sent[p] = sent[p] | BIT(piece);
		s_out[p] = s_out[p] | BIT(piece);
		if
		:: RESPONDS(RCV(p)) && wire[p] != WIRE_DEAD -> net[p]!piece
		:: else
		fi
	}
}

#define IS_RECEIVING(p)                                                                            \
	(st[RCV(p)] == UP || st[RCV(p)] == PROBING || st[RCV(p)] == FENCING ||                     \
	 st[RCV(p)] == FENCING_HEARD)

#if defined(V_LATE_COMPLETION) || defined(V_BOOK_BEFORE_REAP)
#define IS_AWAITED(p) true
#else
#define IS_AWAITED(p) IS_RECEIVING(p)
#endif

/*
 * The oldest piece is placed. On a good wire its sender-side completion comes with it; a completion
 * that is lost is what WIRE_LATE gives. Data without its record is the same to every property.
 */
inline land(p)
{
	d_step {
		nempty(net[p]) && wire[p] != WIRE_DEAD && RESPONDS(RCV(p)) ->
		net[p]?piece;
		if
		:: piece < ITEM_PROBE ->
			P2(!FULL(MSG(piece)));
			if
			:: IS_RECEIVING(p) -> cq[p]!piece
			:: else
			fi;
			if
			:: wire[p] == WIRE_OK && qp[SND(p)] == QP_RTS ->
				s_out[p] = s_out[p] & ~BIT(piece);
				P3(SENDS_COVERED)
			:: else
			fi
		:: else ->
			probe_in[RCV(p)] = piece - ITEM_PROBE;
			if
			:: wire[p] == WIRE_OK && qp[SND(p)] == QP_RTS && st[SND(p)] == PROBING ->
				s_probe_placed(p)
			:: else
			fi
		fi
	}
}

/* The receiver takes a completion and enters it in the book. */
inline arrive(p)
{
	d_step {
		nempty(cq[p]) && IS_AWAITED(p) ->
		cq[p]?piece;
		P2(!(booked & BIT(piece)));
		P2(MSG(piece) >= r_next && MSG(piece) < r_posted);
		booked = booked | BIT(piece);
		do
		:: r_next < r_posted && FULL(r_next) -> r_next++
		:: else -> break
		od;
		recv()
	}
}

#ifdef V_ACK_BEFORE_BOOK
/* Says what has been placed, entered in the book or not. */
inline ack_value()
{
	item = booked;
	for (idx : 0 .. PATHS - 1) {
		for (piece : 0 .. MESSAGES * PIECES - 1) {
			if
			:: cq[idx]??[eval(piece)] -> item = item | BIT(piece)
			:: else
			fi
		}
	}
	msg = r_next;
	do
	:: msg < r_posted && (item & ALL(msg)) == ALL(msg) -> msg++
	:: else -> break
	od
}
#define ACK_DUE (r_posted > r_acked)
#else
inline ack_value()
{
	msg = r_next
}
#define ACK_DUE (r_next > r_acked || (ack_path == NONE && r_next > 0))
#endif

#if PATHS == 2
#define R_ANY_UP (st[RCV(0)] == UP || st[RCV(1)] == UP)
#else
#define R_ANY_UP (st[RCV(0)] == UP || st[RCV(1)] == UP || st[RCV(2)] == UP)
#endif

/* Acknowledgement word, coalesced over any number of arrivals. */
inline ack()
{
	d_step {
		ACK_DUE && R_ANY_UP ->
		ctl = 0;
		do
		:: st[RCV(ctl)] == UP -> break
		:: else -> ctl++
		od;
		ack_value();
		if
		:: msg > r_acked || ack_path == NONE ->
			put_r(ctl, ITEM_ACK + msg);
			r_acked = msg;
			ack_path = ctl
		:: else
		fi
	}
}

/* An item of the receiver is placed at the sender; a repeated entry completes with it. */
inline r_land(p)
{
	d_step {
		nempty(rnet[p]) && wire[p] != WIRE_DEAD && qp[SND(p)] == QP_RTS ->
		rnet[p]?item;
		sure = (wire[p] == WIRE_OK && qp[RCV(p)] == QP_RTS);
		if
		:: item < ITEM_RECTS ->
			ring[SLOT(item)] = item + 1;
			send()
		:: item >= ITEM_RECTS && item < ITEM_ACK ->
			msg = item - ITEM_RECTS;
			ring[SLOT(msg)] = msg + 1;
			if
			:: sure && st[RCV(p)] == UP ->
				again[p] = again[p] & ~BIT(SLOT(msg));
				recv()
			:: else
			fi;
			send()
		:: item >= ITEM_ACK && item < ITEM_PROBE ->
			msg = item - ITEM_ACK;
			if
			:: msg > s_acked -> s_acked = msg
			:: else
			fi;
			P3(SENDS_COVERED)
		:: else ->
			probe_in[SND(p)] = item - ITEM_PROBE;
			if
			:: sure && st[RCV(p)] == PROBING -> r_probe_placed(p)
			:: else
			fi
		fi
	}
}

inline wire_breaks(p)
{
	d_step {
		faults > 0 && wire[p] == WIRE_OK && IN_TURN(p) ->
		faults--;
		wire[p] = WIRE_LATE
	}
}

inline clear(c)
{
	do
	:: len(c) > 0 -> c?item
	:: else -> break
	od;
	skip /* a d_step may not end in a jump */
}

inline wire_dies(p)
{
	d_step {
		wire[p] == WIRE_LATE ->
		wire[p] = WIRE_DEAD;
		clear(net[p]);
		clear(rnet[p])
	}
}

/* The receiver's HCA acknowledges the oldest piece and dies before it places it. */
inline wire_lies(p)
{
	d_step {
		wire[p] == WIRE_LATE && nempty(net[p]) && qp[SND(p)] == QP_RTS ->
		net[p]?piece;
		if
		:: piece < ITEM_PROBE -> s_out[p] = s_out[p] & ~BIT(piece)
		:: st[SND(p)] == PROBING && piece >= ITEM_PROBE -> s_probe_placed(p)
		:: else
		fi;
		P3(SENDS_COVERED);
		wire[p] = WIRE_DEAD;
		clear(net[p]);
		clear(rnet[p])
	}
}
