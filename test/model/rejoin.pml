/* SPDX-License-Identifier: Apache-2.0 */
/* repair/rejoin.c. Switched off (EPOCHS 1), a path that is DOWN stays so. */

byte probe_in[2 * PATHS];    /* epoch of the probe that lies in this end's memory */
byte peer_probed[2 * PATHS]; /* epoch */
bool is_probed[2 * PATHS];
bool is_busy[2 * PATHS];     /* a job is under way */
bool is_offered[PATHS];
byte job_ep[PATHS];          /* the sender's join job: epoch */
byte is_lone[PATHS];         /* the sender could not join, the receiver is alone */

/* Wires that work and a path that may still be used or tried: one is enough. */
#define WORKS(p) (wire[p] == WIRE_OK && ep[SND(p)] <= EPOCHS)
#if PATHS == 2
#define NO_PATH_WORKS (!WORKS(0) && !WORKS(1))
#else
#define NO_PATH_WORKS (!WORKS(0) && !WORKS(1) && !WORKS(2))
#endif

inline s_went_down(p)
{
	is_offered[p] = false;
	is_probed[SND(p)] = false;
	is_lone[p] = 0
}

inline r_went_down(p)
{
	is_probed[RCV(p)] = false
}

inline s_begin_probe(p)
{
	is_probed[SND(p)] = false;
	if
	:: RESPONDS(RCV(p)) && wire[p] != WIRE_DEAD -> net[p]!ITEM_PROBE + ep[SND(p)]
	:: else
	fi
}

inline r_begin_probe(p)
{
	is_probed[RCV(p)] = false;
	r_pump();
	/* The peer's QP is not connected yet: sent again until it is. */
	if
	:: wire[p] != WIRE_DEAD -> rnet[p]!ITEM_PROBE + ep[RCV(p)]
	:: else
	fi
}

inline s_probe_placed(p)
{
	is_probed[SND(p)] = true;
	link[1]!PROBED(p, ep[SND(p)], 0);
	s_try_up(p)
}

inline r_probe_placed(p)
{
	is_probed[RCV(p)] = true;
	link[0]!PROBED(p, ep[RCV(p)], 0);
	r_try_up(p)
}

inline s_try_up(p)
{
	if
	:: st[SND(p)] == PROBING && is_probed[SND(p)] && peer_probed[SND(p)] == ep[SND(p)] ->
		if
		:: probe_in[SND(p)] == ep[SND(p)] -> on_READY(SND(p))
		:: else -> on_FAULT(SND(p))
		fi;
		s_actions(p)
	:: else
	fi
}

inline r_try_up(p)
{
	if
	:: st[RCV(p)] == PROBING && is_probed[RCV(p)] && peer_probed[RCV(p)] == ep[RCV(p)] ->
		if
		:: probe_in[RCV(p)] == ep[RCV(p)] -> on_READY(RCV(p))
		:: else -> on_FAULT(RCV(p))
		fi;
		r_actions(p)
	:: else
	fi
}

#ifdef V_EPOCH_NOT_RAISED
byte offers; /* the bound that epochs give otherwise */
#define MAY_OFFER (offers < 2)
#else
#define MAY_OFFER true
#endif

/* Sender: new QP, the old one is destroyed; offer it. */
inline s_offer(p)
{
	d_step {
		st[SND(p)] == DOWN && !is_busy[SND(p)] && !is_offered[p] && ep[SND(p)] <= EPOCHS &&
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
		link[1]!REJOIN(p, ep[SND(p)], 0)
	}
}

/* Receiver: begins the job that makes and connects a new QP, or says that it can't now. */
inline r_offered(p)
{
	if
	:: st[RCV(p)] != DOWN || is_busy[RCV(p)] -> link[0]!REJOINED(p, ep[RCV(p)], 1)
	:: else ->
		is_busy[RCV(p)] = true;
		qp[RCV(p)] = QP_NEW;
		clear(net[p])
	fi
}

inline r_joined(p)
{
	d_step {
		is_busy[RCV(p)] ->
		is_busy[RCV(p)] = false;
		qp[RCV(p)] = QP_RTS;
		on_JOINED(RCV(p));
		r_actions(p);
		link[0]!REJOINED(p, ep[RCV(p)], 0)
	}
}

/* f_book: not 0 is an error. */
inline s_answer(p)
{
	if
	:: is_offered[p] && st[SND(p)] == DOWN ->
		is_offered[p] = false;
		if
		:: !f_book ->
			is_busy[SND(p)] = true;
			job_ep[p] = f_epoch
		:: else
		fi
	:: else
	fi
}

/* The job's end: its answer counts only if the path still waits for it. */
inline s_joined(p)
{
	d_step {
		is_busy[SND(p)] ->
		is_busy[SND(p)] = false;
		qp[SND(p)] = QP_RTS;
		if
		:: st[SND(p)] == DOWN && ep[SND(p)] == job_ep[p] ->
			on_JOINED(SND(p));
			s_actions(p)
		:: else
		fi;
		job_ep[p] = 0
	}
}

inline s_join_fails(p)
{
	d_step {
		is_busy[SND(p)] && faults > 0 ->
		faults--;
		is_busy[SND(p)] = false;
		job_ep[p] = 0;
		is_lone[p] = (st[SND(p)] == DOWN)
	}
}

/* A wire that is repaired while the path is used was slow: that is any delay of land(). */
inline wire_heals(p)
{
	d_step {
		heals > 0 && wire[p] != WIRE_OK && st[SND(p)] == DOWN && st[RCV(p)] == DOWN ->
		heals--;
		wire[p] = WIRE_OK
	}
}
