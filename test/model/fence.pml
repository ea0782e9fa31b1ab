/* SPDX-License-Identifier: Apache-2.0 */
/* repair/fence.c, and reconcile of repair/tx.c and repair/rx.c. */

#ifdef V_EPOCH_NOT_RAISED
#define RAISE(x) skip
#else
#define RAISE(x) ep[x]++
#endif

/* PATH_ACT_* of path p at the sender; f_book: the peer's book where there is one. */
inline s_actions(p)
{
	if
	:: act & ACT_BEGIN -> link[1]!FENCE(p, ep[SND(p)], 0)
	:: else
	fi;
	if
	:: act & ACT_KEEP -> kept[p] = f_book
	:: else
	fi;
	if
	:: act & ACT_ANNOUNCE -> link[1]!FENCED_(p, ep[SND(p)], 0)
	:: else
	fi;
	if
	:: act & ACT_RECONCILE ->
		/* Nothing of this epoch can land at the receiver or be read here. */
		P4(!RESPONDS(RCV(p)) && empty(cq[p]) && s_out[p] == 0);
		P4(qp[SND(p)] == QP_ERR || sent[p] == 0);
		for (msg : 0 .. MESSAGES - 1) {
			if
			:: msg < s_acked -> sent[p] = sent[p] & ~ALL(msg)
			:: else
			fi
		}
		pending = pending | (sent[p] & ~kept[p]);
		sent[p] = 0;
		kept[p] = 0;
		RAISE(SND(p));
		s_went_down(p)
	:: else
	fi;
	if
	:: act & ACT_PROBE -> s_begin_probe(p)
	:: else
	fi
	/* ACT_RESUME: the planner finds the path UP by itself */
}

inline r_actions(p)
{
	if
	:: act & ACT_BEGIN -> link[0]!FENCE(p, ep[RCV(p)], 0)
	:: else
	fi;
	if
	:: act & ACT_ANNOUNCE -> link[0]!FENCED_(p, ep[RCV(p)], booked)
	:: else
	fi;
	if
	:: act & ACT_RECONCILE ->
		/* No entry of this epoch can land at the sender; a probe may. */
		P4(!RESPONDS(SND(p)) || empty(rnet[p]) || rnet[p]?[eval(ITEM_PROBE + ep[RCV(p)])]);
		again[p] = 0;
		for (msg : 0 .. MESSAGES - 1) {
			if
			:: msg >= r_next && msg < r_posted && cts_path[msg] == p && !FULL(msg) ->
#ifndef V_CTS_NOT_REPEATED
				cts_wanted = cts_wanted | BIT(msg);
				cts_again = cts_again | BIT(msg);
#endif
				cts_path[msg] = NONE
			:: else
			fi
		}
#ifndef V_ACK_NOT_REPEATED
		if
		:: ack_path == p -> ack_path = NONE
		:: else
		fi;
#endif
		RAISE(RCV(p));
		r_went_down(p);
		recv()
	:: else
	fi;
	if
	:: act & ACT_PROBE -> r_begin_probe(p)
	:: else
	fi;
	if
	:: act & ACT_RESUME -> r_pump()
	:: else
	fi
}

/* Error completion, port event, stall clock: something is out or owed and the path gives no sign. */
#define S_NOTICES(p) (s_out[p] || s_acked < s_next || st[SND(p)] == PROBING)
#define R_NOTICES(p) (nempty(rnet[p]) || again[p] || r_next < r_posted || st[RCV(p)] == PROBING)
#define IS_BAD(p)    (wire[p] != WIRE_OK || is_lone[p])

inline s_fault(p)
{
	d_step {
		(st[SND(p)] == UP || st[SND(p)] == PROBING) && S_NOTICES(p) &&
			(IS_BAD(p) || qp[RCV(p)] != QP_RTS) ->
		on_FAULT(SND(p));
		s_actions(p)
	}
}

inline r_fault(p)
{
	d_step {
		(st[RCV(p)] == UP || st[RCV(p)] == PROBING) && R_NOTICES(p) &&
			(IS_BAD(p) || qp[SND(p)] == QP_ERR) ->
		on_FAULT(RCV(p));
		r_actions(p)
	}
}

/* Given up although the wire is good: everything under way can land. */
inline s_false_alarm(p)
{
	d_step {
		ALARMS && faults > 0 && wire[p] == WIRE_OK && IN_TURN(p) && (st[SND(p)] == UP || st[SND(p)] == PROBING) ->
		faults--;
		on_FAULT(SND(p));
		s_actions(p)
	}
}

inline r_false_alarm(p)
{
	d_step {
		ALARMS && faults > 0 && wire[p] == WIRE_OK && IN_TURN(p) && (st[RCV(p)] == UP || st[RCV(p)] == PROBING) ->
		faults--;
		on_FAULT(RCV(p));
		r_actions(p)
	}
}

#define IS_FENCING(x) (st[x] == FENCING || st[x] == FENCING_HEARD)

/* ERR and flush in one: nothing that others can see happens in between. */
inline s_reap(p)
{
	d_step {
		IS_FENCING(SND(p)) ->
		qp[SND(p)] = QP_ERR;
		clear(rnet[p]);
		s_out[p] = 0;
#ifdef V_REPLAY_UNHEARD
		/* As if the peer had said that its book holds what is acknowledged. */
		if
		:: st[SND(p)] == FENCING -> st[SND(p)] = FENCING_HEARD
		:: else
		fi;
#endif
		on_SELF_FENCED(SND(p));
		s_actions(p);
		P3(SENDS_COVERED)
	}
}

inline r_errored(p)
{
	d_step {
		IS_FENCING(RCV(p)) && qp[RCV(p)] == QP_RTS ->
#ifdef V_NO_RECEIVER_FENCE
		qp[RCV(p)] = QP_STUCK
#else
		qp[RCV(p)] = QP_ERR;
		clear(net[p])
#endif
	}
}

#ifdef V_BOOK_BEFORE_REAP
#define IS_REAPED(p) true
#else
#define IS_REAPED(p) empty(cq[p])
#endif

inline r_reap(p)
{
	d_step {
		IS_FENCING(RCV(p)) && qp[RCV(p)] != QP_RTS && IS_REAPED(p) ->
		on_SELF_FENCED(RCV(p));
		r_actions(p)
	}
}

/* The device is dead, or the QP had to be RESET: completions that are still in the queue come too late. */
inline r_drop(p)
{
	d_step {
		IS_FENCING(RCV(p)) && qp[RCV(p)] == QP_ERR && wire[p] == WIRE_DEAD && nempty(cq[p]) ->
#ifndef V_LATE_COMPLETION
		clear(cq[p]);
#endif
		on_SELF_FENCED(RCV(p));
		r_actions(p)
	}
}

#ifdef V_STALE_ACCEPTED
#define IS_CURRENT(x) true
#else
#define IS_CURRENT(x) (f_epoch == ep[x])
#endif

inline take_at_sender()
{
	if
	:: f_type == FENCE && IS_CURRENT(SND(f_path)) ->
		on_PEER_FENCE(SND(f_path));
		s_actions(f_path)
	:: f_type == FENCED_ && IS_CURRENT(SND(f_path)) ->
		on_PEER_FENCED(SND(f_path));
		s_actions(f_path)
	:: f_type == REJOINED && f_epoch == ep[SND(f_path)] ->
		s_answer(f_path)
	:: f_type == PROBED && f_epoch == ep[SND(f_path)] ->
		peer_probed[SND(f_path)] = f_epoch;
		s_try_up(f_path)
	:: else ->
		P1(f_type > FENCED_ || f_epoch < ep[SND(f_path)])
	fi
}

inline take_at_receiver()
{
	if
	:: f_type == FENCE && IS_CURRENT(RCV(f_path)) ->
		on_PEER_FENCE(RCV(f_path));
		r_actions(f_path)
	:: f_type == FENCED_ && IS_CURRENT(RCV(f_path)) ->
		on_PEER_FENCED(RCV(f_path));
		r_actions(f_path)
	:: f_type == REJOIN && f_epoch == ep[RCV(f_path)] ->
		r_offered(f_path)
	:: f_type == PROBED && f_epoch == ep[RCV(f_path)] ->
		peer_probed[RCV(f_path)] = f_epoch;
		r_try_up(f_path)
	:: else ->
		P1(f_type > FENCED_ || f_epoch < ep[RCV(f_path)])
	fi
}

inline to_sender()
{
	d_step {
		link[0]?f_type, f_path, f_epoch, f_book ->
		take_at_sender()
	}
}

inline to_receiver()
{
	d_step {
		link[1]?f_type, f_path, f_epoch, f_book ->
		take_at_receiver()
	}
}

#if DUPS > 0
/* The connection was replaced: a frame that was taken comes again, behind what was sent since. */
inline to_sender_twice()
{
	d_step {
		dups > 0 && (link[0]?[FENCE, _, _, _] || link[0]?[FENCED_, _, _, _]) ->
		link[0]?f_type, f_path, f_epoch, f_book;
		dups--;
		link[0]!f_type(f_path, f_epoch, f_book);
		take_at_sender()
	}
}

inline to_receiver_twice()
{
	d_step {
		dups > 0 && (link[1]?[FENCE, _, _, _] || link[1]?[FENCED_, _, _, _]) ->
		link[1]?f_type, f_path, f_epoch, f_book;
		dups--;
		link[1]!f_type(f_path, f_epoch, f_book);
		take_at_receiver()
	}
}
#endif
