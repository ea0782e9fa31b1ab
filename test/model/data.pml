/* SPDX-License-Identifier: Apache-2.0 */
/* Messages, pieces, book, clear-to-send entries and acknowledgements; the wires below them. */

/* What is posted to a peer whose QP is in ERR never lands. */
inline put_r(p, what)
{
	if
	:: qp[SND(p)] == QP_RTS -> rnet[p]!what
	:: else
	fi
}

#ifdef V_ACK_BEFORE_BOOK
byte placed;
inline note_placed()
{
	placed = placed | BIT(piece);
	do
	:: claim < r_posted && (placed & ALL(claim)) == ALL(claim) -> claim++
	:: else -> break
	od
}
#else
#define note_placed() skip
#endif

/*
 * rx_pump: the oldest entry that is wanted, else the acknowledgement word. control_path takes the
 * first path that has room, so it may be any.
 */
inline r_post(p)
{
	d_step {
		(cts_wanted || ACK_DUE) && st[RCV(p)] == UP && IN_TURN(p) ->
		if
		:: cts_wanted ->
			msg = 0;
			do
			:: cts_wanted & BIT(msg) -> break
			:: else -> msg++
			od;
			cts_wanted = cts_wanted & ~BIT(msg);
			put_r(p, ITEM_CTS + msg);
			cts_path[msg] = p
		:: else ->
			put_r(p, ITEM_ACK + ACK_VALUE);
			r_acked = ACK_VALUE
		fi
	}
}

/*
 * Users are as fast as can be: a buffer is given away in the very step in which it may be, which
 * gives late writes the most to spoil.
 */
inline recv()
{
	do
	:: r_posted < MESSAGES && r_posted - r_next < WINDOW ->
		cts_wanted = cts_wanted | BIT(r_posted);
		r_posted++
	:: else -> break
	od;
	skip /* a d_step may not end in a jump */
}

inline send()
{
	do
	:: s_next < MESSAGES && (entries & BIT(s_next)) ->
		entries = entries & ~BIT(s_next);
		pending = pending | ALL(s_next);
		s_next++
	:: else -> break
	od;
	skip
}

/* A user who is slow leaves entries in the ring. */
inline s_send()
{
	d_step {
		s_next < MESSAGES && (entries & BIT(s_next)) && CALM ->
		send()
	}
}

/* Oldest pending piece; which path takes it is the planner's business, so any. */
inline post(p)
{
	d_step {
		pending && !R_DUE && st[SND(p)] == UP && IN_TURN(p) ->
		piece = 0;
		do
		:: pending & BIT(piece) -> break
		:: else -> piece++
		od;
		pending = pending & ~BIT(piece);
		sent[p] = sent[p] | BIT(piece);
		s_out[p] = s_out[p] | BIT(piece);
		if
		:: RESPONDS(RCV(p)) -> net[p]!piece
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
 * that is lost is what a broken wire gives. Data without its record is the same to every property.
 */
inline land(p)
{
	d_step {
		(len(net[p]) > 0) && CALM && RESPONDS(RCV(p)) ->
		net[p]?piece;
		if
		:: piece < ITEM_PROBE ->
			P2(!FULL(MSG(piece)));
			if
			:: IS_RECEIVING(p) ->
				cq[p]!piece;
				note_placed()
			:: else
			fi;
			if
			:: wire[p] == WIRE_OK && qp[SND(p)] == QP_RTS ->
				s_out[p] = s_out[p] & ~BIT(piece);
				P3(SENDS_COVERED)
			:: else
			fi
		:: else ->
			r_probe_arrived(p, piece - ITEM_PROBE);
			if
			:: wire[p] == WIRE_OK && qp[SND(p)] == QP_RTS && IS_TO_PROBE(SND(p)) ->
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
		(len(cq[p]) > 0) && CALM && IS_AWAITED(p) ->
		cq[p]?piece;
		P2(!(booked & BIT(piece)));
		P2(MSG(piece) >= r_next && MSG(piece) < r_posted);
		booked = booked | BIT(piece);
		do
		:: r_next < r_posted && FULL(r_next) ->
			cts_path[r_next] = NONE; /* of no interest any more */
			r_next++
		:: else -> break
		od;
		recv()
	}
}

/*
 * What the receiver has of all messages below next, said by an acknowledgement word or by FENCED.
 * A piece of theirs that is on no path was never sent (note_acked).
 */
inline note_acked(next)
{
	P1(next <= s_next);
	do
	:: s_acked < next ->
		P1(!(pending & ALL(s_acked)));
		for (idx : 0 .. PATHS - 1) {
			sent[idx] = sent[idx] & ~ALL(s_acked) /* of no interest any more */
		}
		s_acked++
	:: else -> break
	od;
	P3(SENDS_COVERED)
}

/*
 * An item of the receiver is placed at the sender. A slot of the ring holds the last entry that
 * landed there; one that the sender has taken already is none.
 */
inline r_land(p)
{
	d_step {
		(len(rnet[p]) > 0) && CALM && qp[SND(p)] == QP_RTS ->
		rnet[p]?item;
		sure = (wire[p] == WIRE_OK && qp[RCV(p)] == QP_RTS);
		if
		:: item < ITEM_ACK ->
			for (msg : 0 .. MESSAGES - 1) {
				if
				:: SLOT(msg) == SLOT(item) -> entries = entries & ~BIT(msg)
				:: else
				fi
			}
			if
			:: item >= s_next -> entries = entries | BIT(item)
			:: else
			fi;
#if !SLOW
			send()
#endif
		:: item >= ITEM_ACK && item < ITEM_PROBE ->
			note_acked(item - ITEM_ACK)
		:: else ->
			s_probe_arrived(p, item - ITEM_PROBE);
			if
			:: sure && IS_TO_PROBE(RCV(p)) -> r_probe_placed(p)
			:: else
			fi
		fi
	}
}

#define IN_FLIGHT(p) (len(net[p]) > 0 || len(rnet[p]) > 0)

/*
 * A path that rests and breaks is one that breaks as soon as something is on its way; only when it
 * is to come back does it matter earlier.
 */
inline wire_breaks(p)
{
	d_step {
		faults > 0 && wire[p] == WIRE_OK && CALM && (EPOCHS > 1 || IN_FLIGHT(p)) && IN_TURN(p) ->
		faults--;
		wire[p] = WIRE_BAD
	}
}

inline clear(c)
{
	do
	:: len(c) > 0 -> c?item
	:: else -> break
	od;
	skip
}

inline lose(p)
{
	clear(net[p]);
	clear(rnet[p])
}

inline wire_loses(p)
{
	d_step {
		wire[p] == WIRE_BAD && IN_FLIGHT(p) && CALM ->
		lose(p)
	}
}

/* The receiver's HCA acknowledges the oldest piece and never places it, nor anything behind it. */
inline wire_lies(p)
{
	d_step {
		wire[p] == WIRE_BAD && len(net[p]) > 0 && qp[SND(p)] == QP_RTS && CALM ->
		net[p]?piece;
		if
		:: piece < ITEM_PROBE -> s_out[p] = s_out[p] & ~BIT(piece)
		:: piece >= ITEM_PROBE && IS_TO_PROBE(SND(p)) -> s_probe_placed(p)
		:: else
		fi;
		P3(SENDS_COVERED);
		lose(p)
	}
}
