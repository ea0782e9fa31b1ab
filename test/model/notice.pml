/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair/notice.c: frames to the other end. A link that has no room refuses them; then they are owed
 * and told when it has, made anew and in this order: FENCE, FENCED, REJOIN, REJOINED, PROBED. One
 * that has become pointless is dropped.
 */

/*
 * FENCE to a peer that is fencing already changes nothing, then or later: taken in the step in which
 * it becomes no news, so that it does not wait in the link.
 */
#define IS_NEWS(x, peer) (ep[peer] != ep[x] || st[peer] == UP || st[peer] == PROBING || st[peer] == DOWN)

inline put_fence(to, p, x, peer)
{
	if
	:: st[x] != FENCING -> skip
	:: st[x] == FENCING && IS_NEWS(x, peer) -> link[to]!HEAD(FENCE, p, ep[x]), 0
	:: else ->
		item = act;
		on_PEER_FENCE(peer);
		P1(act == 0);
		act = item
	fi
}

inline drop_fence(from, p, x)
{
	if
	:: link[from]??[eval(HEAD(FENCE, p, ep[x])), _] ->
		link[from]??eval(HEAD(FENCE, p, ep[x])), f_book;
		item = act;
		on_PEER_FENCE(x);
		P1(act == 0);
		act = item
	:: else
	fi
}

#if REFUSALS > 0
byte refusals = REFUSALS;
bool is_full[2];           /* link to the sender, to the receiver */
byte owed[2 * PATHS];      /* bit per frame */
byte fenced_ep[2 * PATHS]; /* epoch of the last FENCED */
#define FENCED_EPOCH(x) fenced_ep[x]
#define set_fenced_epoch(x) fenced_ep[x] = ep[x]
#else
#define FENCED_EPOCH(x) ep[x]
#define set_fenced_epoch(x) skip
#endif

/* tx_read_out: entries that were taken or are in the ring, a bit per message. */
#define TAKEN_ENTRIES ((BIT(s_next) - 1) | entries)

#ifdef V_ENTRIES_BEFORE_FENCE
/* Looked at when the fence begins, not when it is done. */
byte early[PATHS];
#define S_READ_OUT(p) early[p]
#else
#define S_READ_OUT(p) TAKEN_ENTRIES
#endif

inline s_put_rejoin(p)
{
#if EPOCHS > 1
	if
	:: st[SND(p)] == DOWN && is_offered[p] -> link[1]!HEAD(REJOIN, p, ep[SND(p)]), offer[p]
	:: else
	fi
#else
	skip
#endif
}

inline r_put_rejoined(p)
{
#if EPOCHS > 1
	if
	:: answer_ep[p] == ep[RCV(p)] && (answer[p] || st[RCV(p)] == PROBING) ->
		link[0]!HEAD(REJOINED, p, ep[RCV(p)]), answer[p]
	:: else
	fi
#else
	skip
#endif
}

inline put_probed(to, p, x)
{
#if EPOCHS > 1
	if
	:: is_probed[x] && (st[x] == PROBING || st[x] == UP) -> link[to]!HEAD(PROBED, p, ep[x]), 0
	:: else
	fi
#else
	skip
#endif
}

inline s_put(p, what)
{
	if
	:: what == FENCE -> put_fence(1, p, SND(p), RCV(p))
	:: what == FENCED_ -> link[1]!HEAD(FENCED_, p, FENCED_EPOCH(SND(p))), S_READ_OUT(p)
	:: what == REJOIN -> s_put_rejoin(p)
	:: what == PROBED -> put_probed(1, p, SND(p))
	:: else
	fi
}

inline r_put(p, what)
{
	if
	:: what == FENCE -> put_fence(0, p, RCV(p), SND(p))
	:: what == FENCED_ -> link[0]!HEAD(FENCED_, p, FENCED_EPOCH(RCV(p))), booked
	:: what == REJOINED -> r_put_rejoined(p)
	:: what == PROBED -> put_probed(0, p, RCV(p))
	:: else
	fi
}

#ifdef V_REFUSAL_FORGOTTEN
#define s_owe(p, what) skip
#define r_owe(p, what) skip
#else
#define s_owe(p, what) owed[SND(p)] = owed[SND(p)] | BIT(what)
#define r_owe(p, what) owed[RCV(p)] = owed[RCV(p)] | BIT(what)
#endif

#if REFUSALS == 0
#define s_notice(p, what) s_put(p, what)
#define r_notice(p, what) r_put(p, what)
#else
inline s_notice(p, what)
{
	if
	:: is_full[1] ->
		P1(what != FENCED_ || !(owed[SND(p)] & BIT(FENCED_)));
		s_owe(p, what)
	:: else -> s_put(p, what)
	fi
}

inline r_notice(p, what)
{
	if
	:: is_full[0] ->
		P1(what != FENCED_ || !(owed[RCV(p)] & BIT(FENCED_)));
		r_owe(p, what)
	:: else -> r_put(p, what)
	fi
}

inline link_fills(to)
{
	d_step {
		refusals > 0 && !is_full[to] && CALM ->
		refusals--;
		is_full[to] = true
	}
}

/* notice_tick */
inline s_tell(p)
{
	idx = FENCE;
	do
	:: idx <= PROBED ->
		if
		:: owed[SND(p)] & BIT(idx) -> s_put(p, idx)
		:: else
		fi;
		idx++
	:: else -> break
	od;
	owed[SND(p)] = 0
}

inline r_tell(p)
{
	idx = FENCE;
	do
	:: idx <= PROBED ->
		if
		:: owed[RCV(p)] & BIT(idx) -> r_put(p, idx)
		:: else
		fi;
		idx++
	:: else -> break
	od;
	owed[RCV(p)] = 0
}

inline to_receiver_has_room()
{
	d_step {
		is_full[1] && CALM ->
		is_full[1] = false;
		s_tell(0);
		s_tell(1)
#if PATHS > 2
		;
		s_tell(2)
#endif
	}
}

inline to_sender_has_room()
{
	d_step {
		is_full[0] && CALM ->
		is_full[0] = false;
		r_tell(0);
		r_tell(1)
#if PATHS > 2
		;
		r_tell(2)
#endif
	}
}
#endif
