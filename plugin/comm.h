/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_COMM_H
#define BRAID_PLUGIN_COMM_H

#include "ib/flush.h"
#include "ib/mr.h"
#include "ib/qp.h"
#include "include/frame.h"
#include "include/wire.h"
#include "oob/link.h"
#include "plugin/lock.h"
#include "plugin/worker.h"
#include "repair/rx.h"
#include "repair/tx.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum comm_role {
	COMM_SENDER,
	COMM_RECEIVER
};

enum comm_state {
	COMM_OPENING, /* handshake under way */
	COMM_READY,   /* handed to NCCL, or about to be */
	COMM_FAILED,  /* the handshake failed; comm->err says how */
	COMM_CLOSED,  /* NCCL closed it */
};

enum request_type {
	REQUEST_SEND,
	REQUEST_RECV,
	REQUEST_FLUSH
};

/** What NCCL gets as a request. Owner: the comm's lock. */
struct request {
	struct comm *comm;
	enum request_type type;
	bool busy;
	bool is_expected;      /* one of the open ones that plugin/ack_list.h counts */
	struct memory *memory; /* registration it uses; NULL for empty messages */
	uint64_t seq;          /* send, recv */
	uint32_t reads;        /* flush: bit per path with a read out */
};

enum {
	REQUESTS_MAX = 2 * WINDOW_MSGS
};

/** A registration as NCCL knows it. */
struct memory {
	struct ib_mr *mr;
	int type; /* enum nccl_ptr */
};

/** A frame for repair/ that came before the comm was READY. */
struct early_frame {
	struct early_frame *next;
	struct frame frame;
};

/** One path of a comm: the verbs side. The decisions are in repair's struct repair_path. */
struct comm_path {
	struct comm *comm;
	unsigned int idx;
	struct ib_rail *rail;
	struct rail_desc peer_rail;
	/* of the peer's rings on this path */
	uint32_t cts_rkey, ack_rkey, record_rkey, probe_rkey;
	struct ib_qp qp;                      /* qp.qp NULL: no QP */
	unsigned int quiet_polls;             /* of its CQ, since it held something; bounded */
	struct worker_job fence_job, cut_job; /* on the rail's worker */
	struct worker_job rejoin_job;         /* there too; one at a time */
	uint32_t rejoin_epoch;                /* of that job */
	struct qp_addr rejoin_peer;           /* of that job, to join */
	int traffic_class;                    /* as it was connected with */
	struct ib_flush flush;                /* receivers of GPU memory */
	bool has_flush;
};

/** Rings in our own registered memory, one page-aligned block. */
struct comm_rings {
	void *block;
	struct ib_mr *mr;
	struct wire_cts *cts;  /* sender: written by the peer; receiver: source of the writes */
	struct wire_ack *acks; /* sender: written by the peer; receiver: source of the writes */
	struct wire_record
		*records; /* receiver: written by the peer; sender: source of the writes */
	uint8_t *probes_in, *probes_out; /* WIRE_PROBE_BYTES a rail */
};

/**
 * One NCCL connection, one direction of data. References: one of NCCL (or of the handshake before
 * NCCL has it), one of each job and each call on the loop thread that works on it.
 */
struct comm {
	uint64_t id; /* in the table; travels in frames */
	enum comm_role role;
	int dev;
	int traffic_class;
	_Atomic unsigned int refs;
	struct comm *next; /* in the table; owner: the table's lock */
	bool is_listed;    /* in the table; owner: the table's lock */

	/*
	 * Excludes data path and repair of this comm. Held for short, non-blocking work only; never
	 * held while taking the table's lock.
	 */
	struct lock lock;
	enum comm_state state; /* lock */
	int err;               /* lock; -errno once FAILED */
	uint64_t opened_ns;
	bool wants_flush;        /* lock; receiver of GPU memory */
	bool is_quiet;           /* lock; its QPs were fenced for deregMr, nothing moves any more */
	enum frame_type expect;  /* lock; the handshake frame that may come next */
	bool is_handed;          /* lock; sender: NCCL has it and will close it */
	bool was_asked_for;      /* lock; sender: by plugin_connect, since the last tick */
	unsigned int unasked_ms; /* lock; sender: for so long NCCL has not */

	struct oob_link *link; /* constant once the comm is in the table */
	unsigned int rail_count;
	struct rail_desc rail_descs[PATHS_MAX]; /* ours, as told to the peer; nearest first */
	unsigned int rail_idx[PATHS_MAX];       /* their index in the process's table */
	uint32_t rail_device_ids[PATHS_MAX];    /* whose keys the peer was told */
	unsigned int path_count;
	uint32_t path_rails; /* bit of each path's rail, in the process's table */
	struct comm_path paths[PATHS_MAX];
	uint64_t peer_comm; /* lock until READY; 0: not known yet */
	char peer_dev[RAIL_NAME_MAX];

	struct comm_rings rings;
	uint64_t peer_cts_addr, peer_ack_addr, peer_record_addr, peer_probe_addr;

	union {
		struct repair_end end; /* first member of both */
		struct repair_tx tx;
		struct repair_rx rx;
	};

	/* receiver, plugin/ack_list.c: owner: whoever puts it on the list, or took it off */
	struct comm *ack_next;
	uint32_t ack_due; /* the call that ends its round */

	struct request requests[REQUESTS_MAX]; /* lock */
	unsigned int request_hint;             /* lock */
	unsigned int poll_turn;                /* lock */

	struct frame setup_frame; /* the frame that setup_job works on */
	struct worker_job setup_job;
	/* sender; lock: frames that overtook the job of READY, oldest first */
	struct early_frame *early;
	unsigned int early_count;
	/* receiver, during the handshake; holds a reference; listen.c's lock once in its queue */
	struct listener *listener;
	struct comm *accept_next;  /* in the listener's queue */
	struct close_wait *waiter; /* set by close */
};

/** Create with one reference, state OPENING. NULL: out of memory. */
struct comm *comm_create(enum comm_role role, int dev);

/** Give it an id and put it into the table: frames, events and time find it from here on. Its link
 * is set, and is constant. */
void comm_show(struct comm *comm);

struct comm *comm_hold(struct comm *comm);
/** Drop a reference; the last one hands the comm to the setup worker, which destroys it. */
void comm_put(struct comm *comm);

/** Find by id and take a reference; NULL when there is none. */
struct comm *comm_find(uint64_t id);

/** Call fn for every comm in the table, with a reference held and no lock. */
void comm_for_each(void (*fn)(struct comm *comm, void *arg), void *arg);

/** Take it out of the table: no frame or event finds it any more. */
void comm_hide(struct comm *comm);

/** End the handshake (not a READY comm): state FAILED, err, one line. Lock held. True if it did. */
bool comm_fail_setup(struct comm *comm, int err, const char *why);

/** Send a frame to the peer's comm. Any thread. 0, or -errno; -EPIPE: the peer is gone. */
int comm_send(struct comm *comm, struct frame *frame);

/** A free request slot, marked busy; NULL when all are in use. Lock held. */
struct request *comm_take_request(struct comm *comm, enum request_type type, struct memory *memory);
/** NCCL has it and will ask for it, and does no more (plugin/ack_list.h). Lock held. */
void comm_expect(struct request *request);
void comm_unexpect(struct request *request);
/** It is done, or never was. Lock held. */
void comm_give_request(struct request *request);
/** All that are left, when NCCL closes the comm. Lock held. */
void comm_give_requests(struct comm *comm);

const char *comm_peer_name(const struct comm *comm);

/* plugin/rings.c */
int comm_rings_create(struct comm *comm);
void comm_rings_destroy(struct comm *comm);

/* plugin/nearness.c: fill rail_descs and rail_idx, nearest to the comm's device first; those that
 * are down come last. -ENETDOWN when none is up. */
int comm_list_rails(struct comm *comm);

/* plugin/setup.c: a QP as this end of the comm needs it, in INIT. Worker only. 0 or -errno. */
int comm_create_qp(const struct comm *comm, struct ib_rail *rail, struct ib_qp *out);

/* plugin/wr_ops.c */
extern const struct repair_ops comm_repair_ops;
void comm_repair_limits(const struct comm *comm, struct repair_limits *out);

/* plugin/progress.c */
/**
 * Enter what the CQs hold, look for acknowledgements, post what can be posted. Lock held. now_ns:
 * the time, or comm->end.now_ns where a clock would cost too much (the data path): where something
 * went wrong the clock is read all the same.
 */
void comm_progress(struct comm *comm, uint64_t now_ns);
/**
 * The same for a READY receiver that asks for message seq: it stops at the path that completes it,
 * and does not look at each path every time (plugin/progress.c).
 */
void comm_progress_recv(struct comm *comm, uint64_t seq, uint64_t now_ns);
void comm_poll_path(struct comm *comm, unsigned int path, uint64_t now_ns); /* lock held */
/** errno for NCCL of a failed comm: -EREMOTEIO and the like; 0 while it lives. Lock held. */
int comm_error(const struct comm *comm);

/* plugin/watch.c: a frame of the peer for repair/, the comm is READY; lock held */
void comm_take_frame(struct comm *comm, const struct frame *frame, uint64_t now_ns);

/* plugin/incident.c: lock held; what is told waits for comm_unlock() */
void comm_report(struct comm *comm, const struct repair_report *report);
extern _Atomic bool incidents_wait;
void incidents_tell(void);

/** Unlock, then write the incidents that were reported meanwhile: to a log and a file, so never
 * under the lock. */
static inline void comm_unlock(struct comm *comm)
{
	lock_give(&comm->lock);
	/* Relaxed: one that is missed here is told by the next who unlocks any comm. */
	if (__builtin_expect(atomic_load_explicit(&incidents_wait, memory_order_relaxed), 0)) {
		incidents_tell();
	}
}

/* plugin/close.c: before memory is taken away under running requests */
void comm_quiesce(struct comm *comm);
/** Close what NCCL has, or never got: takes the reference and the use of the runtime. Bounded. */
void comm_close(struct comm *comm);

#endif
