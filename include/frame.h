/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_FRAME_H
#define BRAID_FRAME_H

#include "include/cause.h"
#include "include/limits.h"
#include "include/rail_desc.h"

#include <stdint.h>

/**
 * Messages on the out-of-band link between two processes, as structures. oob/codec.c turns them
 * into bytes and back: little-endian, explicit lengths, bounds checked, never a struct copy.
 *
 * Opening a comm (C connects, A listens):
 *
 *   C                                A
 *   | HELLO (once per link)      --> |   magic, version, features, process id
 *   | <-- HELLO                      |
 *   | OPEN token, rails, rings   --> |   pairs the rails, creates QPs in INIT
 *   | <-- OPENED paths, QP addresses |
 *   | QPs to RTS; PATHS addresses -> |   QPs to RTS
 *   | <-- READY path mask            |   both ends now use exactly the paths of the mask
 *
 * Both ends also tell where probes of a rejoining path may be written (repair/rejoin.h).
 *
 * REFUSED may answer OPEN or HELLO and carries a readable reason. CLOSE says that one end of a comm
 * was closed on purpose. FENCE and FENCED: see repair/fence.h.
 */
#define PROTO_VERSION 2u

#define FRAME_LIST(X)                                                                              \
	X(HELLO)                                                                                   \
	X(OPEN)                                                                                    \
	X(OPENED)                                                                                  \
	X(PATHS)                                                                                   \
	X(READY)                                                                                   \
	X(REFUSED)                                                                                 \
	X(FENCE)                                                                                   \
	X(FENCED)                                                                                  \
	X(CLOSE)                                                                                   \
	X(REJOIN)                                                                                  \
	X(REJOINED)                                                                                \
	X(REJOIN_HINT)                                                                             \
	X(PROBED)                                                                                  \
	X(PING)                                                                                    \
	X(PONG)                                                                                    \
	X(GOODBYE)

enum frame_type {
	FRAME_NONE,
#define FRAME_ENUM(name) FRAME_##name,
	FRAME_LIST(FRAME_ENUM)
#undef FRAME_ENUM
	FRAME_TYPE_COUNT
};

struct proc_id {
	uint8_t bytes[16]; /* random, drawn once per process (and again after fork) */
};

/** Feature bits in HELLO; a bit is used only when both ends set it. */
enum {
	FEATURE_NONE = 0
};

/** Why a connection was opened; travels in HELLO. */
enum hello_kind {
	HELLO_NEW = 1,    /* a link that does not exist yet at the other end */
	HELLO_RESUME = 2, /* a link that was up and lost its connection */
	HELLO_PROBE = 3,  /* "are you still there?", no link is carried */
	HELLO_KIND_END
};

enum {
	HELLO_ADDRS_MAX = 3
};

/**
 * First frame in each direction of a connection. The version comes first in the body and the frame
 * header never changes, so that any two versions can tell each other apart in words.
 */
struct frame_hello {
	uint32_t version; /* PROTO_VERSION; all that is read when it differs */
	uint32_t features;
	struct proc_id self;
	struct proc_id peer;  /* whom the sender wants to talk to, from the handle */
	uint64_t link_id;     /* drawn by the connecting process; with its id it names the link */
	uint32_t attempt;     /* connections made for this link so far, this one included */
	uint8_t kind;         /* enum hello_kind; an answer repeats it */
	uint16_t listen_port; /* of the sender's own listener, host order */
	uint32_t pid;         /* for log lines only */
	char host[64];        /* for log lines only */
	uint32_t addr_count;  /* where the sender's listener can be reached */
	struct {
		uint8_t family; /* 4 or 6, whatever AF_INET6 is here */
		uint8_t bytes[16];
	} addrs[HELLO_ADDRS_MAX];
};

/** A memory area of the other end's side of a comm: one address, one rkey per local rail. */
struct frame_area {
	uint64_t addr;
	uint32_t len_bytes;
	uint32_t rkeys[PATHS_MAX]; /* by index into the rail list of the same frame */
};

struct frame_open {
	uint8_t token[16]; /* from the handle; proves that the peer was given it by the job */
	uint64_t src_comm; /* connector's comm id: where answers go */
	uint32_t window_msgs, pieces_max;
	char dev[RAIL_NAME_MAX]; /* NCCL device the comm was opened on */
	uint32_t rail_count;
	struct rail_desc rails[PATHS_MAX]; /* connector's rails, nearest first */
	struct frame_area cts, acks;       /* rings in the sender's memory */
	struct frame_area probes;          /* WIRE_PROBE_BYTES for each path */
};

struct frame_path {
	uint8_t local_rail;  /* index into the rail list of this frame's sender */
	uint8_t remote_rail; /* index into the rail list of this frame's receiver */
	struct qp_addr qp; /* of this frame's sender; qpn 0: not connected now, it rejoins later */
};

struct frame_opened {
	uint64_t src_comm; /* acceptor's comm id */
	char dev[RAIL_NAME_MAX];
	uint32_t rail_count;
	struct rail_desc rails[PATHS_MAX];
	uint32_t path_count;
	struct frame_path paths[PATHS_MAX];
	struct frame_area records; /* ring in the receiver's memory */
	struct frame_area probes;  /* WIRE_PROBE_BYTES for each path */
};

struct frame_paths {
	uint32_t path_count;
	struct qp_addr qps[PATHS_MAX]; /* connector's, by path; qpn 0: not connected */
};

struct frame_ready {
	uint32_t path_mask; /* paths that reached RTS on both ends; the others rejoin later */
};

struct frame_refused {
	int32_t err; /* negative errno */
	char reason[200];
};

/** "I have started to fence this path": lets the other end fence at the same time. */
struct frame_fence {
	uint8_t path;
	uint8_t cause; /* enum cause */
	uint32_t epoch;
};

/**
 * "My QPs of this path are in ERR and reaped": nothing of epoch e can land or be read at my end any
 * more. It carries what has arrived, read out after that moment: the receiver's book, or which
 * clear-to-send entries the sender has.
 */
struct frame_fenced {
	uint8_t path;
	uint8_t cause; /* enum cause */
	uint32_t epoch;
	/* receiver: every message below is complete; sender: every entry below was taken */
	uint64_t next_seq;
	/* of seq next_seq + i: receiver: bit j: piece j has arrived; sender: not 0: the entry has
	 */
	uint32_t pieces[WINDOW_MSGS];
};

/**
 * One end of a path that comes back. GID and keys may not be those that the comm was opened with:
 * the HCA may have been opened again meanwhile.
 */
struct path_side {
	struct qp_addr qp;
	struct rail_desc rail;
	uint32_t
		ring_rkey; /* of everything that this end's OPEN or OPENED told: one registration */
};

/**
 * REJOIN: the sender's new QP for a path that is DOWN; REJOINED: the receiver's answer, or err < 0.
 * The answer also has the rkey on this path of the buffer of each receive that is not complete:
 * those in their clear-to-send entries, which never change, may be of the HCA before.
 */
struct frame_rejoin {
	uint8_t path;
	uint32_t epoch;
	int32_t err; /* 0 or negative errno; 0 in REJOIN */
	struct path_side side;
	uint64_t keys_seq;  /* keys[i] is of the receive keys_seq + i */
	uint32_t key_count; /* 0..WINDOW_MSGS; 0 in REJOIN */
	uint32_t key_mask;  /* bit i: its buffer is registered on this path */
	uint32_t keys[WINDOW_MSGS];
};

/** PROBED: "my probe of this path was placed at your end". REJOIN_HINT: "try now". */
struct frame_probed {
	uint8_t path;
	uint32_t epoch;
};

struct frame_close {
	uint64_t next_seq; /* receiver: every message below is complete; 0 from a sender */
};

struct frame_ping {
	uint64_t cookie;
};

struct frame {
	enum frame_type type;
	uint64_t dst_comm; /* receiver's comm id; 0 for HELLO, OPEN, PING, PONG, GOODBYE */
	union {
		struct frame_hello hello;
		struct frame_open open;
		struct frame_opened opened;
		struct frame_paths paths;
		struct frame_ready ready;
		struct frame_refused refused;
		struct frame_fence fence;
		struct frame_fenced fenced;
		struct frame_close close;
		struct frame_rejoin rejoin;
		struct frame_probed probed; /* and REJOIN_HINT */
		struct frame_ping ping;
	};
};

#endif
