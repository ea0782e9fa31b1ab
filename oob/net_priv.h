/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_NET_PRIV_H
#define BRAID_OOB_NET_PRIV_H

#include "oob/conn.h"
#include "oob/ifsel.h"
#include "oob/link.h"
#include "oob/listener.h"
#include "oob/loop_priv.h"
#include "oob/queue.h"
#include "oob/sock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/**
 * What net.c, hello.c, link.c, link_io.c and dial.c share.
 *
 * Ownership: fields marked (lock) are read and written under oob_net.lock, from any thread; the
 * rest belongs to the loop thread. Callbacks of the user run without the lock. Lock order:
 * oob_net.lock, then the loop's own lock inside oob_loop_post_task.
 *
 * Lifetime of a link: refs counts its users plus one for oob/ itself while the link is alive. Its
 * last reference posts a task that frees it; tasks run in order, so none that names the link is
 * left behind. Once the net is `closed` nothing is posted any more and the last put frees at once.
 */

enum link_role {
	LINK_CONNECTING, /* this process opened it, and opens it again when it is lost */
	LINK_ACCEPTED
};

enum dial_state {
	DIAL_IDLE,
	DIAL_DELAY,   /* all addresses failed: waiting for the next round */
	DIAL_CONNECT, /* TCP */
	DIAL_HELLO    /* TCP is there, waiting for the answer */
};

/** Outgoing attempts of one link: to open it, to open it again, or to probe a lost peer. */
struct oob_dial {
	enum dial_state state;
	ev_timer timer;
	ev_io connect_io;
	int fd;                /* DIAL_CONNECT */
	struct oob_conn *conn; /* DIAL_HELLO */
	uint64_t deadline_ns;
	uint32_t delay_ms;      /* before the next round */
	uint32_t tried_count;   /* addresses tried in this round */
	uint32_t refused_count; /* of them refused */
	uint64_t refused_ns;    /* since when every round was refused everywhere; 0: it is not */
	bool silent;            /* conn has been open for HELLO_WAIT_MS without an answer */
	bool silence_said;
	int last_err;
};

struct oob_link {
	struct oob_net *net;
	struct oob_link *next;  /* (lock) in its list of net->links */
	uint32_t refs;          /* (lock) users, plus one while alive */
	bool gone;              /* (lock) no more frames are taken */
	bool alive;             /* (lock) oob/ holds its reference */
	bool closing;           /* (lock) GOODBYE is queued: finish once it is acknowledged */
	struct oob_queue queue; /* (lock) */
	struct oob_task pump_task, start_task, close_task, free_task;

	enum link_role role;
	struct proc_id peer;
	uint64_t id;
	struct oob_addr addr; /* of the peer's listener */
	/* the early name is replaced once, by a store with release, when HELLO has come */
	char early_name[32 + OOB_SOCK_TEXT_BYTES], full_name[192];
	_Atomic(const char *) name;

	struct oob_conn *conn; /* NULL: not connected */
	bool was_up;
	uint32_t attempt;
	int good_addr; /* index in addr that carried the link last, or -1 */
	uint64_t up_since_ns;
	uint64_t rx_seq;       /* last frame applied */
	uint64_t rx_acked_seq; /* last one acknowledged to the peer */
	struct oob_dial dial;
	ev_timer linger;
};

/** An accepted connection that has not said a valid HELLO yet, or was refused and drains. */
struct oob_pending {
	struct oob_net *net;
	struct oob_pending *prev, *next;
	struct oob_conn *conn;
	ev_timer timer;
	bool refused;
	char from[OOB_SOCK_TEXT_BYTES];
};

enum {
	OOB_LINK_BUCKETS = 1024 /* a job has thousands of processes */
};

struct oob_net {
	struct oob_loop *loop;
	struct oob_handlers handlers;
	void *arg;
	uint32_t connect_timeout_ms, peer_timeout_ms;
	pid_t pid; /* a child of fork() must not touch anything */
	struct oob_addr self;
	uint32_t scope_id; /* interface for link-local peers */
	char host[64];

	pthread_mutex_t lock;
	pthread_cond_t closed_cond;
	uint32_t refs;                            /* (lock) one for the owner, one per link */
	bool closing;                             /* (lock) oob_net_close was called */
	bool dead;                                /* (lock) the loop thread is through with it */
	bool closed;                              /* (lock) and has run its last task */
	struct oob_link *links[OOB_LINK_BUCKETS]; /* (lock) alive ones, by peer */
	uint32_t link_count;                      /* (lock) of them */
	struct oob_task close_task, closed_task;

	struct oob_listener listener;
	struct oob_pending *pendings;
	uint32_t pending_count;
	ev_timer close_timer;
	_Atomic uint64_t stranger_count;
};

/* net.c */
void oob_net_unref(struct oob_net *net);
/** After a link has ended: is a closing net through? */
void oob_net_check_closed(struct oob_net *net);
/** Called in a child of fork()? Any thread. */
bool oob_net_foreign(const struct oob_net *net);

/* hello.c */
enum {
	OOB_HELLO_TEXT_BYTES = 200
};
/** What to tell both ends when the peer's version is another one. */
void oob_hello_version_text(const struct oob_net *net, uint32_t version,
			    char text[OOB_HELLO_TEXT_BYTES]);
void oob_hello_accept(struct oob_net *net, int fd, const union oob_sock_addr *peer);
void oob_hello_drop_all(struct oob_net *net);
/** Fill in a HELLO of this process. */
void oob_hello_make(const struct oob_net *net, const struct oob_link *link, enum hello_kind kind,
		    struct frame *out);
/** The peer's listener, from its HELLO. */
void oob_hello_addr(const struct frame_hello *hello, struct oob_addr *out);

/* link.c */
struct oob_link *oob_link_create(struct oob_net *net, enum link_role role,
				 const struct oob_addr *peer, uint64_t id);
/** Name the link after what HELLO said: once, before its first link_up. Loop thread. */
void oob_link_name_set(struct oob_link *link, const struct frame_hello *hello, const char *at);
/** Put a created link among the living. Takes the lock. -ESHUTDOWN when the net closes. */
int oob_link_enter(struct oob_link *link);
/** A living link by role, peer and id, or NULL. Takes the lock. Loop thread. */
struct oob_link *oob_link_find(struct oob_net *net, enum link_role role, const struct proc_id *peer,
			       uint64_t id);
/** Queue GOODBYE and finish when it is acknowledged. Loop thread. */
void oob_link_close_begin(struct oob_link *link);
/** The end of a link, without a word to the users. Loop thread; link may be freed. */
void oob_link_finish(struct oob_link *link);
/** The end of a link, reported to its users. Loop thread; link may be freed. */
void oob_link_fail(struct oob_link *link, int err, const char *why);

/* link_io.c */
/**
 * A connection whose HELLO matched; peer_ack is the ack of that HELLO. Says whether conn lives on.
 * Loop thread; link may be freed when it does not.
 */
enum oob_conn_verdict oob_link_attach(struct oob_link *link, struct oob_conn *conn,
				      uint64_t peer_ack);
/** Drop the connection, tell the users, look for the peer. Loop thread; link may be freed. */
void oob_link_lose(struct oob_link *link, int err);
/** Put queued frames and a due ack on the connection. Loop thread. */
void oob_link_pump(struct oob_link *link);

/* dial.c */
void oob_dial_init(struct oob_link *link);
/** Start to look for the peer, until timeout_ms from now. Loop thread; link may be freed. */
void oob_dial_begin(struct oob_link *link, uint32_t delay_ms, uint32_t timeout_ms);
void oob_dial_stop(struct oob_link *link);
/** Try at once instead of waiting for the next round. Loop thread; link may be freed. */
void oob_dial_hurry(struct oob_link *link);

#endif
