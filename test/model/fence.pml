/* SPDX-License-Identifier: Apache-2.0 */
/* repair/fence.c, and read_out and reconcile of repair/tx.c and repair/rx.c. */

#ifdef V_EPOCH_NOT_RAISED
#define RAISE(x) skip
#else
#define RAISE(x) ep[x]++
#endif

/* tx_reconcile: both ends are fenced. */
inline s_reconcile(p)
{
	/* Nothing of this epoch can land at the receiver or be read here. */
	P4(!RESPONDS(RCV(p)) && (len(cq[p]) == 0) && s_out[p] == 0);
	P4(qp[SND(p)] == QP_ERR || sent[p] == 0);
	msg = 0;
	do
	:: msg < MESSAGES && (kept[SND(p)] & ALL(msg)) == ALL(msg) -> msg++
	:: else -> break
	od;
#ifndef V_FENCED_NOT_HEEDED
	note_acked(msg);
#endif
	pending = pending | (sent[p] & ~kept[SND(p)]);
	sent[p] = 0;
	kept[SND(p)] = 0;
	RAISE(SND(p));
	s_went_down(p)
}

/* rx_reconcile */
inline r_reconcile(p)
{
	/* No entry of this epoch can land at the sender. */
	P4(!RESPONDS(SND(p)) || (len(rnet[p]) == 0));
	for (msg : 0 .. MESSAGES - 1) {
		if
		:: msg >= r_next && msg < r_posted && cts_path[msg] == p ->
			cts_path[msg] = NONE;
#if defined(V_CTS_REPEATED_BLINDLY)
			cts_wanted = cts_wanted | BIT(msg)
#elif !defined(V_CTS_NOT_REPEATED)
			if
			:: !(kept[RCV(p)] & BIT(msg)) -> cts_wanted = cts_wanted | BIT(msg)
			:: else
			fi
#endif
		:: else
		fi
	}
	kept[RCV(p)] = 0;
	RAISE(RCV(p));
	r_went_down(p)
}

/* fence_event at the sender: PATH_ACT_* of path p; f_book: the peer's book where there is one. */
inline s_actions(p)
{
	if
	:: act & ACT_BEGIN ->
#ifdef V_ENTRIES_BEFORE_FENCE
		early[p] = TAKEN_ENTRIES;
#endif
		s_notice(p, FENCE)
	:: else
	fi;
	if
	:: act & ACT_KEEP -> kept[SND(p)] = f_book
	:: else
	fi;
	if
	:: act & ACT_ANNOUNCE ->
		set_fenced_epoch(SND(p));
		s_notice(p, FENCED_)
	:: else
	fi;
	if
	:: act & ACT_RECONCILE -> s_reconcile(p)
	:: else
	fi;
	if
	:: act & ACT_PROBE -> s_begin_probe(p)
	:: else
	fi
	/* ACT_RESUME: post() finds the path UP */
}

/* The same at the receiver. */
inline r_actions(p)
{
	if
	:: act & ACT_BEGIN -> r_notice(p, FENCE)
	:: else
	fi;
	if
	:: act & ACT_KEEP -> kept[RCV(p)] = f_book
	:: else
	fi;
	if
	:: act & ACT_ANNOUNCE ->
		set_fenced_epoch(RCV(p));
		r_notice(p, FENCED_)
	:: else
	fi;
	if
	:: act & ACT_RECONCILE -> r_reconcile(p)
	:: else
	fi;
	if
	:: act & ACT_PROBE -> r_begin_probe(p)
	:: else
	fi
	/* ACT_RESUME: r_post() finds the path UP */
}

#define IS_FENCING(x) (st[x] == FENCING || st[x] == FENCING_HEARD)
#define IS_USED(x)    (st[x] == UP || st[x] == PROBING)

/* Error completion, port event, stall clock: something is out or owed and the path gives no sign. */
#define S_NOTICES(p) (s_out[p] || s_acked < s_next || st[SND(p)] == PROBING)
#define R_NOTICES(p) ((len(rnet[p]) > 0) || r_next < r_posted || st[RCV(p)] == PROBING)
#define IS_BAD(p)    (wire[p] != WIRE_OK || IS_LONE(p))

inline s_fails(p)
{
	on_FAULT(SND(p));
	s_actions(p);
	drop_fence(0, p, SND(p))
}

inline r_fails(p)
{
	on_FAULT(RCV(p));
	r_actions(p);
	drop_fence(1, p, RCV(p))
}

inline s_fault(p)
{
	d_step {
		IS_USED(SND(p)) && CALM && S_NOTICES(p) &&
			(IS_BAD(p) || qp[RCV(p)] != QP_RTS || IS_FENCING(RCV(p))) ->
		s_fails(p)
	}
}

inline r_fault(p)
{
	d_step {
		IS_USED(RCV(p)) && CALM && R_NOTICES(p) &&
			(IS_BAD(p) || qp[SND(p)] == QP_ERR || IS_FENCING(SND(p))) ->
		r_fails(p)
	}
}

/* Given up although the wire is good: everything under way can land. */
inline s_false_alarm(p)
{
	d_step {
		ALARMS && faults > 0 && wire[p] == WIRE_OK && IS_USED(SND(p)) && CALM && IN_TURN(p) ->
		faults--;
		s_fails(p)
	}
}

inline r_false_alarm(p)
{
	d_step {
		ALARMS && faults > 0 && wire[p] == WIRE_OK && IS_USED(RCV(p)) && CALM && IN_TURN(p) ->
		faults--;
		r_fails(p)
	}
}

/* ERR and flush in one: nothing that others can see happens in between (README.md). */
inline s_fenced(p)
{
	d_step {
		IS_FENCING(SND(p)) && CALM ->
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

#ifdef V_BOOK_BEFORE_REAP
#define IS_REAPED(p) true
#else
#define IS_REAPED(p) (len(cq[p]) == 0)
#endif

inline r_err(p)
{
#ifdef V_NO_RECEIVER_FENCE
	qp[RCV(p)] = QP_STUCK
#else
	qp[RCV(p)] = QP_ERR;
	clear(net[p])
#endif
}

/* The same: until the last completion was taken, that the QP is in ERR is not seen. */
inline r_fenced(p)
{
	d_step {
		IS_FENCING(RCV(p)) && CALM && IS_REAPED(p) ->
		r_err(p);
		on_SELF_FENCED(RCV(p));
		r_actions(p)
	}
}

/* The device is dead, or the QP had to be RESET: completions that are still in the queue come too late. */
inline r_dropped(p)
{
	d_step {
		IS_FENCING(RCV(p)) && CALM && wire[p] != WIRE_OK && (len(cq[p]) > 0) ->
		r_err(p);
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
#define IS_CURRENT(x) (F_EPOCH == ep[x])
#endif

/* accept_frame, is_current: stale frames change nothing; from the future none may come. */
inline s_take()
{
	f_path = f_head >> 3 & 3;
	if
	:: F_TYPE == FENCE && IS_CURRENT(SND(f_path)) ->
		on_PEER_FENCE(SND(f_path));
		s_actions(f_path)
	:: F_TYPE == FENCED_ && IS_CURRENT(SND(f_path)) ->
		on_PEER_FENCED(SND(f_path));
		s_actions(f_path)
	:: F_TYPE == REJOINED && F_EPOCH == ep[SND(f_path)] ->
		s_answer(f_path)
	:: F_TYPE == PROBED && F_EPOCH == ep[SND(f_path)] ->
		s_peer_probed(f_path)
	:: else ->
		P1(F_TYPE > FENCED_ || F_EPOCH < ep[SND(f_path)]);
#ifdef V_STALE_ANSWERED
		if
		:: F_TYPE == FENCED_ -> link[1]!f_head, 0
		:: else
		fi
#endif
	fi
}

inline r_take()
{
	f_path = f_head >> 3 & 3;
	if
	:: F_TYPE == FENCE && IS_CURRENT(RCV(f_path)) ->
		on_PEER_FENCE(RCV(f_path));
		r_actions(f_path)
	:: F_TYPE == FENCED_ && IS_CURRENT(RCV(f_path)) ->
		on_PEER_FENCED(RCV(f_path));
		r_actions(f_path)
	:: F_TYPE == REJOIN && F_EPOCH == ep[RCV(f_path)] ->
		r_offered(f_path)
	:: F_TYPE == PROBED && F_EPOCH == ep[RCV(f_path)] ->
		r_peer_probed(f_path)
	:: else ->
		P1(F_TYPE > FENCED_ || F_EPOCH < ep[RCV(f_path)]);
#ifdef V_STALE_ANSWERED
		if
		:: F_TYPE == FENCED_ -> link[0]!f_head, 0
		:: else
		fi
#endif
	fi
}

inline to_sender()
{
	d_step {
		len(link[0]) > 0 && CALM ->
		link[0]?f_head, f_book;
		s_take()
	}
}

inline to_receiver()
{
	d_step {
		len(link[1]) > 0 && CALM ->
		link[1]?f_head, f_book;
		r_take()
	}
}

#if DUPS > 0
/* The connection was replaced: a frame that was taken comes again, behind what was sent since. */
inline to_sender_twice()
{
	d_step {
		dups > 0 && len(link[0]) > 0 && CALM ->
		dups--;
		link[0]?f_head, f_book;
		link[0]!f_head, f_book;
		s_take()
	}
}

inline to_receiver_twice()
{
	d_step {
		dups > 0 && len(link[1]) > 0 && CALM ->
		dups--;
		link[1]?f_head, f_book;
		link[1]!f_head, f_book;
		r_take()
	}
}
#endif
