/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_LAYOUT_ROOT_H
#define BRAID_TEST_FABRIC_LAYOUT_ROOT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/*
 * What the processes of one fabric share. FABRIC_DIR/fabric.shm (struct fab_root) holds the ports,
 * the fault rules, the table of opened devices ("instances") and the directory of QP numbers.
 * FABRIC_DIR/inst-N.shm (struct fab_inst) holds what a peer's engine must reach without the owner's
 * help: QPs, receive queues, completion queues, memory regions, events. Both files are sparse.
 */

#define FAB_MAGIC         0x42524146u
#define FAB_VERSION       6u
#define FAB_MAX_HOSTS     64u
#define FAB_MAX_RAILS     16u
#define FAB_MAX_INSTS     65536u
#define FAB_MAX_RULES     1024u
#define FAB_MAX_FIRED     1024u
#define FAB_RULE_TEXT_LEN 160u
#define FAB_QPN_COUNT     (1u << 24)
#define FAB_QPN_FIRST     0x100u
#define FAB_PSN_MASK      0xffffffu

enum fab_dir {
	FAB_TX,
	FAB_RX,
	FAB_DIR_COUNT,
};

/* Bits of fab_port.flags. The two ACK bits name the direction of the data whose acknowledgements
 * vanish: FAB_ACK_TX = acknowledgements of what this port sent. */
#define FAB_CUT_TX 0x01u
#define FAB_CUT_RX 0x02u
#define FAB_ACK_TX 0x04u
#define FAB_ACK_RX 0x08u
#define FAB_DOWN   0x10u
#define FAB_DEAD   0x20u
#define FAB_GONE   0x40u

/* Control verbs that a rule may fail or block. */
enum fab_call {
	FAB_CALL_OPEN_DEVICE,
	FAB_CALL_ALLOC_PD,
	FAB_CALL_CREATE_CQ,
	FAB_CALL_CREATE_QP,
	FAB_CALL_MODIFY_QP,
	FAB_CALL_DESTROY_QP,
	FAB_CALL_REG_MR,
	FAB_CALL_DEREG_MR,
	FAB_CALL_QUERY_PORT,
	FAB_CALL_COUNT,
};

#define FAB_GID_TABLE_MAX 16u
#define FAB_GID_NONE      0x80000000u

struct fab_port {
	_Atomic uint32_t flags;
	_Atomic uint32_t armed_count; /* rules with a counting trigger waiting at this port */
	_Atomic uint32_t dead_count;  /* raised by nic_death; contexts opened before are dead */
	_Atomic uint32_t pull_count;  /* raised by unplug; contexts opened before reach nothing */
	_Atomic uint32_t rate_pinned; /* a rate rule was given: FABRIC_RATE_MBPS no longer counts */
	_Atomic uint64_t rate_bps;    /* bytes per second and direction, 0 = unlimited */
	_Atomic uint64_t free_at_ns[FAB_DIR_COUNT];
	_Atomic uint64_t turns[FAB_DIR_COUNT];    /* taken at a rate, in line */
	_Atomic uint64_t late_ns[FAB_DIR_COUNT];  /* packets are held back so long */
	_Atomic uint64_t lost;                    /* packets of its host that `drop` took */
	_Atomic uint64_t drop_ppb[FAB_DIR_COUNT]; /* of packets, in parts per billion */
	_Atomic uint64_t delay_ns[FAB_DIR_COUNT];
	_Atomic uint64_t jitter_ns[FAB_DIR_COUNT]; /* added to it: anything up to this */
	_Atomic uint32_t gid_index;                /* where the GID is; FAB_GID_NONE: nowhere */
	_Atomic uint32_t call_fails_in[FAB_CALL_COUNT]; /* calls until one fails; 0 = none does */
	_Atomic uint32_t call_block_ms[FAB_CALL_COUNT];
	_Atomic uint64_t event_delay_ns;
	_Atomic uint32_t event_twice;
	_Atomic uint64_t late_held;    /* packets of its host that were, */
	_Atomic uint64_t late_landed;  /* ... that came in time to be taken */
	_Atomic uint64_t late_dropped; /* ... and that did not */
	_Atomic uint64_t bytes[FAB_DIR_COUNT];
	_Atomic uint64_t msgs[FAB_DIR_COUNT];
	pthread_mutex_t gate; /* robust; held around each placement while armed_count > 0 */
} __attribute__((aligned(128)));

enum fab_action {
	FAB_ACT_CUT,
	FAB_ACT_PORT_DOWN,
	FAB_ACT_PORT_UP,
	FAB_ACT_NIC_DEATH,
	FAB_ACT_ACK_LOSS,
	FAB_ACT_HEAL,
	FAB_ACT_RATE,
	FAB_ACT_LATE,
	FAB_ACT_FLAP,
	FAB_ACT_EVENT,
	FAB_ACT_EVENT_DELAY,
	FAB_ACT_EVENT_TWICE,
	FAB_ACT_QP_FATAL,
	FAB_ACT_DROP,
	FAB_ACT_DELAY,
	FAB_ACT_GID_MOVE,
	FAB_ACT_GID_CLEAR,
	FAB_ACT_ENOMEM,
	FAB_ACT_BLOCK,
	FAB_ACT_UNPLUG,
	FAB_ACT_COUNT,
};

enum fab_trigger {
	FAB_TRIG_NOW,
	FAB_TRIG_BYTES,
	FAB_TRIG_WRITES,
	FAB_TRIG_IMMS,
	FAB_TRIG_MS,
	FAB_TRIG_COUNT,
};

enum fab_edge {
	FAB_EDGE_BEFORE,
	FAB_EDGE_MID,
	FAB_EDGE_AFTER,
	FAB_EDGE_ACKED_BLANK, /* acknowledged; neither payload nor completion */
	FAB_EDGE_ACKED,       /* acknowledged, payload placed, no completion */
	FAB_EDGE_COUNT,
};

enum fab_rule_state {
	FAB_RULE_FREE,
	FAB_RULE_ARMED,
	FAB_RULE_DUE, /* by time: placements go through the gate until it fires */
	FAB_RULE_FIRING,
	FAB_RULE_FIRED,
};

/* Bytes of fab_rule.word, from the lowest; above them 16 bits that count how often it was armed. */
enum fab_rule_byte {
	FAB_RULE_STATE,
	FAB_RULE_TRIGGER, /* what it waits for now: `after_ms` and a flap end on FAB_TRIG_MS */
	FAB_RULE_EDGE,
	FAB_RULE_DIRS,
	FAB_RULE_HOST,
	FAB_RULE_RAIL,
	FAB_RULE_BYTE_COUNT,
};

#define FAB_DIR_BOTH (1u << FAB_TX | 1u << FAB_RX)

/* What goes with some actions only. */
enum fab_arg {
	FAB_ARG_VALUE,
	FAB_ARG_DELAY_MS,
	FAB_ARG_TYPE, /* enum ibv_event_type */
	FAB_ARG_PORT,
	FAB_ARG_NTH, /* from 1 */
	FAB_ARG_TIMES,
	FAB_ARG_DOWN_MS,
	FAB_ARG_UP_MS,
	FAB_ARG_P, /* parts per billion */
	FAB_ARG_US,
	FAB_ARG_JITTER_US,
	FAB_ARG_INDEX,
	FAB_ARG_CALL,     /* enum fab_call */
	FAB_ARG_AFTER_MS, /* of any action: how long after its trigger */
	FAB_ARG_COUNT,
};

/** One fault rule, as parsed. `dirs` is a mask of 1 << enum fab_dir. */
struct fab_rule_spec {
	enum fab_action action;
	enum fab_trigger trigger;
	enum fab_edge edge;
	uint32_t host;
	uint32_t rail;
	uint32_t dirs;
	uint64_t count; /* bytes, writes, imms or milliseconds, by trigger */
	uint64_t args[FAB_ARG_COUNT];
	char text[FAB_RULE_TEXT_LEN];
};

/*
 * Who looks for rules that wait, with no lock or with that of one port, decides by `word` alone.
 * Who takes the word from a waiting state to FAB_RULE_FIRING owns the rest until the next store of
 * the word. Before that, spec.count and `seen` belong to the holder of the gate of the rule's port.
 */
struct fab_rule {
	_Atomic uint64_t word;
	_Atomic uint64_t deadline_ns; /* FAB_TRIG_MS */
	struct fab_rule_spec spec;    /* never changed while the rule lives */
	uint64_t seen;                /* what the trigger counted so far */
	uint32_t event_type;          /* what firing has to tell */
	uint32_t phase;               /* of a flap: how often it changed the port */
};

struct fab_fired {
	_Atomic uint32_t ready;
	uint32_t rule_idx;
	uint64_t t_ns;
	uint64_t seen;
	uint64_t bytes[FAB_DIR_COUNT]; /* the port's counters at that moment */
	struct fab_rule_spec spec;
};

enum fab_inst_state {
	FAB_INST_NONE,
	FAB_INST_LIVE,
	FAB_INST_CLOSED,
};

struct fab_inst_row {
	_Atomic uint32_t state;
	uint32_t pid;
	uint64_t pid_start; /* field 22 of /proc/PID/stat: tells a reused pid apart */
	uint32_t host;
	uint32_t rail; /* the first of rail_count */
	uint32_t rail_count;
};

struct fab_root {
	uint32_t magic;
	uint32_t version;
	pthread_mutex_t lock; /* robust; rule table, instance table, one-time loading */
	uint32_t faults_loaded;
	_Atomic uint32_t next_qpn;
	_Atomic uint32_t inst_count; /* ids 1 .. inst_count were handed out; none is reused */
	_Atomic uint32_t rule_count; /* high-water mark of rules[] */
	_Atomic uint32_t fired_count;
	_Atomic uint64_t next_deadline_ns; /* earliest armed FAB_TRIG_MS rule, 0 = none */
	struct fab_port ports[FAB_MAX_HOSTS][FAB_MAX_RAILS];
	struct fab_rule rules[FAB_MAX_RULES];
	struct fab_fired fired[FAB_MAX_FIRED];
	struct fab_inst_row insts[FAB_MAX_INSTS];
	/* qpn -> inst id << 32 | index in that instance's qps[] + 1; 0 = none. */
	_Atomic uint64_t qpns[FAB_QPN_COUNT];
};

#endif
