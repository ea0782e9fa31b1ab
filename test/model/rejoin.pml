/* SPDX-License-Identifier: Apache-2.0 */
/* repair/rejoin.c. With EPOCHS 1 a path that is DOWN stays so. */

/* Wires that work and a path that may still be used or tried: one is enough. */
#define WORKS(p) (wire[p] == WIRE_OK && ep[SND(p)] <= EPOCHS)
#if PATHS == 2
#define NO_PATH_WORKS (!WORKS(0) && !WORKS(1))
#else
#define NO_PATH_WORKS (!WORKS(0) && !WORKS(1) && !WORKS(2))
#endif

#if EPOCHS == 1
#define IS_LONE(p) false
#define IS_TO_PROBE(x) false
#define s_went_down(p) skip
#define r_went_down(p) skip
#define s_begin_probe(p) skip
#define r_begin_probe(p) skip
#define s_probe_placed(p) skip
#define r_probe_placed(p) skip
#define s_probe_arrived(p, epoch) skip
#define r_probe_arrived(p, epoch) skip
#define s_answer(p) skip
#define r_offered(p) skip
#define s_peer_probed(p) skip
#define r_peer_probed(p) skip
#else

byte probe_in[2 * PATHS];    /* epoch of the probe that lies in this end's memory */
byte peer_probed[2 * PATHS]; /* epoch */
bool is_probed[2 * PATHS];
bool is_busy[2 * PATHS];     /* a job is under way */
bool is_offered[PATHS];
byte offer[PATHS];           /* of this epoch, in place of the QP's number */
byte seen_offer[PATHS];
byte answer[PATHS], answer_ep[PATHS]; /* the receiver's last; not 0 is an error */
bool is_posted[PATHS];       /* the receiver's probe */
byte job_ep[2 * PATHS];      /* the job's epoch */
byte is_lone[PATHS];         /* the sender could not join, the receiver is alone */

#define IS_LONE(p) is_lone[p]
#define IS_TO_PROBE(x) (st[x] == PROBING && !is_probed[x])

inline s_went_down(p)
{
	is_offered[p] = false;
	offer[p] = 0;
	is_probed[SND(p)] = false;
	is_lone[p] = 0
}

inline r_went_down(p)
{
	is_probed[RCV(p)] = false;
	is_posted[p] = false;
	seen_offer[p] = 0;
	answer[p] = 0;
	answer_ep[p] = 0
}

/* rejoin_begin_probe; the receiver waits until it hears that the sender is connected. */
inline s_begin_probe(p)
{
	is_probed[SND(p)] = false;
	if
	:: RESPONDS(RCV(p)) -> net[p]!ITEM_PROBE + ep[SND(p)]
	:: else
	fi
}

inline r_begin_probe(p)
{
	is_probed[RCV(p)] = false
}

/* Placed; seen with the next tick. */
inline s_probe_arrived(p, epoch)
{
	probe_in[SND(p)] = epoch;
	s_try_up(p)
}

inline r_probe_arrived(p, epoch)
{
	probe_in[RCV(p)] = epoch;
	r_try_up(p)
}

/* An HCA may acknowledge before the bytes are in memory. */
inline s_probe_acked(p)
{
	d_step {
		st[SND(p)] == PROBING && !is_probed[SND(p)] && wire[p] == WIRE_OK && CALM &&
			net[p]?[eval(ITEM_PROBE + ep[SND(p)])] ->
		s_probe_placed(p)
	}
}

inline r_probe_acked(p)
{
	d_step {
		st[RCV(p)] == PROBING && !is_probed[RCV(p)] && wire[p] == WIRE_OK && CALM &&
			rnet[p]?[eval(ITEM_PROBE + ep[RCV(p)])] ->
		r_probe_placed(p)
	}
}

/* rejoin_probe_placed */
inline s_probe_placed(p)
{
	is_probed[SND(p)] = true;
	s_notice(p, PROBED);
	s_try_up(p)
}

inline r_probe_placed(p)
{
	is_probed[RCV(p)] = true;
	r_notice(p, PROBED);
	r_try_up(p)
}

/* try_up: with other bytes than the probe's it waits, until the bound on probing (s_fault). */
inline s_try_up(p)
{
	if
	:: st[SND(p)] == PROBING && is_probed[SND(p)] && peer_probed[SND(p)] == ep[SND(p)] &&
	   probe_in[SND(p)] == ep[SND(p)] ->
		on_READY(SND(p));
		s_actions(p)
	:: else
	fi
}

inline r_try_up(p)
{
	if
	:: st[RCV(p)] == PROBING && is_probed[RCV(p)] && peer_probed[RCV(p)] == ep[RCV(p)] &&
	   probe_in[RCV(p)] == ep[RCV(p)] ->
		on_READY(RCV(p));
		r_actions(p)
	:: else
	fi
}

/* on_probed */
inline s_peer_probed(p)
{
	peer_probed[SND(p)] = F_EPOCH;
	s_try_up(p)
}

inline r_peer_probed(p)
{
	peer_probed[RCV(p)] = F_EPOCH;
	if
#ifndef V_NO_SECOND_PROBE
	:: st[RCV(p)] == PROBING && !is_posted[p] ->
		is_posted[p] = true;
		put_r(p, ITEM_PROBE + ep[RCV(p)])
#endif
	:: else
	fi;
	r_try_up(p)
}

#ifdef V_EPOCH_NOT_RAISED
byte offers; /* the bound that epochs give otherwise */
#define MAY_OFFER (offers < 2)
#else
#define MAY_OFFER true
#endif

/*
 * rejoin_tick and repair_rejoin_built at the sender: new QP, the old one is destroyed; offer it. A
 * job that does not fit any more when it ends is as one that never began.
 */
inline s_offer(p)
{
	d_step {
		st[SND(p)] == DOWN && CALM && !is_busy[SND(p)] && !is_offered[p] && ep[SND(p)] <= EPOCHS &&
			is_lone[p] < 2 && MAY_OFFER ->
#ifdef V_EPOCH_NOT_RAISED
		offers++;
#endif
		if
		:: is_lone[p] -> is_lone[p] = 2
		:: else
		fi;
		qp[SND(p)] = QP_NEW;
		clear(rnet[p]);
		is_offered[p] = true;
		offer[p]++;
		s_notice(p, REJOIN)
	}
}

inline r_answer(p, err)
{
	answer_ep[p] = ep[RCV(p)];
	answer[p] = err
#ifndef V_OFFER_NOT_ANSWERED
	;
	r_notice(p, REJOINED)
#endif
}

/* on_offer: the receiver begins the job that makes and connects a new QP, or says that it can't now. */
inline r_offered(p)
{
	if
	:: seen_offer[p] == f_book -> skip /* once more */
	:: seen_offer[p] != f_book && (st[RCV(p)] != DOWN || is_busy[RCV(p)]) ->
		r_answer(p, 1)
	:: else ->
		seen_offer[p] = f_book;
		is_busy[RCV(p)] = true;
		job_ep[RCV(p)] = F_EPOCH;
		qp[RCV(p)] = QP_NEW;
		clear(net[p])
	fi
}

/* repair_rejoin_joined: the job's end; its answer counts only if the path still waits for it. */
inline r_joined(p)
{
	d_step {
		is_busy[RCV(p)] && CALM ->
		is_busy[RCV(p)] = false;
		qp[RCV(p)] = QP_RTS;
		if
		:: st[RCV(p)] == DOWN && ep[RCV(p)] == job_ep[RCV(p)] ->
			on_JOINED(RCV(p));
			r_actions(p);
			r_answer(p, 0)
		:: else
		fi;
		job_ep[RCV(p)] = 0
	}
}

inline r_join_fails(p)
{
	d_step {
		is_busy[RCV(p)] && faults > 0 && CALM ->
		faults--;
		is_busy[RCV(p)] = false;
		if
		:: st[RCV(p)] == DOWN && ep[RCV(p)] == job_ep[RCV(p)] -> r_answer(p, 1)
		:: else
		fi;
		job_ep[RCV(p)] = 0
	}
}

/* on_answer; f_book: not 0 is an error. */
inline s_answer(p)
{
	if
	:: is_offered[p] && st[SND(p)] == DOWN ->
		is_offered[p] = false;
		if
		:: !f_book ->
			is_busy[SND(p)] = true;
			job_ep[SND(p)] = F_EPOCH
		:: else
		fi
	:: else
	fi
}

inline s_joined(p)
{
	d_step {
		is_busy[SND(p)] && CALM ->
		is_busy[SND(p)] = false;
		qp[SND(p)] = QP_RTS;
		if
		:: st[SND(p)] == DOWN && ep[SND(p)] == job_ep[SND(p)] ->
			on_JOINED(SND(p));
			s_actions(p)
		:: else
		fi;
		job_ep[SND(p)] = 0
	}
}

inline s_join_fails(p)
{
	d_step {
		is_busy[SND(p)] && faults > 0 && CALM ->
		faults--;
		is_busy[SND(p)] = false;
		job_ep[SND(p)] = 0;
		is_lone[p] = (st[SND(p)] == DOWN)
	}
}

/* A wire that is repaired while the path is used was slow: that is any delay of land(). */
inline wire_heals(p)
{
	d_step {
		heals > 0 && wire[p] != WIRE_OK && CALM && st[SND(p)] == DOWN && st[RCV(p)] == DOWN ->
		heals--;
		wire[p] = WIRE_OK
	}
}
#endif
