/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_TRAIN_H
#define BRAID_TEST_DRIVER_TRAIN_H

#include "test/driver/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A train of faults: hundreds of them in the life of one set of connections, drawn from a seed.
 * It consists of episodes. Each strikes some rails, never all of them at once but in a blackout,
 * lets traffic limp on, mends what it broke and waits until every path is in use again; then comes
 * the next one. The last episode is not mended: the ranks close in the middle of it.
 *
 * An episode depends on the seed and its number, not on time.
 */

/** How a fault is noticed, which decides what its times may be compared with. */
enum train_group {
	TRAIN_EVENT,  /**< the device tells: port and QP events */
	TRAIN_SILENT, /**< nobody tells: time-outs and the stall clock find it */
	TRAIN_MILD,   /**< need not take a path away */
	TRAIN_HINDER, /**< disturbs the repair of another fault */
	TRAIN_OTHER,  /**< of a process or its links */
	TRAIN_GROUP_COUNT
};

/**
 * X(id, "name", group, weight): how often each is drawn as an episode's fault, relative to the
 * others; those with 0 come beside another one or in an episode of their own.
 */
#define TRAIN_CLASS_LIST(X)                                                                        \
	X(CUT, "cut", SILENT, 14)                                                                  \
	X(CUT_TX, "cut_tx", SILENT, 10)                                                            \
	X(CUT_RX, "cut_rx", SILENT, 10)                                                            \
	X(ACK_LOSS, "ack_loss", SILENT, 12)                                                        \
	X(LATE, "late", SILENT, 10)                                                                \
	X(PORT_DOWN, "port_down", EVENT, 14)                                                       \
	X(FLAP, "flap", EVENT, 6)                                                                  \
	X(NIC_DEATH, "nic_death", EVENT, 8)                                                        \
	X(UNPLUG, "unplug", EVENT, 6)                                                              \
	X(QP_FATAL, "qp_fatal", EVENT, 10)                                                         \
	X(DROP, "drop", MILD, 5)                                                                   \
	X(DELAY, "delay", MILD, 4)                                                                 \
	X(RATE, "rate", MILD, 3)                                                                   \
	X(GID_MOVE, "gid_move", MILD, 4)                                                           \
	X(GID_CLEAR, "gid_clear", MILD, 3)                                                         \
	X(EVENT_ONLY, "event", MILD, 5)                                                            \
	X(ENOMEM, "enomem", HINDER, 0)                                                             \
	X(BLOCK, "block", HINDER, 0)                                                               \
	X(EVENT_LATE, "event_delay", HINDER, 0)                                                    \
	X(EVENT_TWICE, "event_twice", HINDER, 0)                                                   \
	X(PAUSE, "pause", OTHER, 0)                                                                \
	X(LINK_FIN, "link_fin", OTHER, 0)                                                          \
	X(LINK_RST, "link_rst", OTHER, 0)                                                          \
	X(LINK_MUTE, "link_mute", OTHER, 0)                                                        \
	X(BLACKOUT, "blackout", OTHER, 0)

enum train_class {
#define TRAIN_CLASS_ENUM(id, name, group, weight) TRAIN_##id,
	TRAIN_CLASS_LIST(TRAIN_CLASS_ENUM)
#undef TRAIN_CLASS_ENUM
	TRAIN_CLASS_COUNT
};

enum {
	TRAIN_RAILS_MAX = 16,
	TRAIN_HITS_MAX = 24
};

/** One fault of an episode. */
struct train_hit {
	enum train_class class;
	uint32_t host; /**< rank */
	uint32_t rail;
	char rule[OPT_TEXT_MAX]; /**< for the fabric; empty for what is done to a process */
	uint32_t after_ms;       /**< from the start of the episode to its installation */
	bool at_mend;            /**< from the mending on, so into the rejoining of paths */
	uint32_t for_ms;         /**< pause, link_mute: how long */
	bool is_alone;           /**< nothing else of the episode disturbs its repair */
	bool installed;
	bool fired;
	bool ended; /**< pause, link_mute: over */
	uint32_t rule_idx;
	uint64_t installed_ns;
	uint64_t fired_ns;
	uint64_t noticed_ns;  /**< first path_fault of its rail after that; 0: none yet */
	uint64_t replayed_ns; /**< first path_down with bytes replayed after that; 0: none yet */
	uint64_t replayed_bytes;
};

struct train_episode {
	uint32_t number;
	struct train_hit hits[TRAIN_HITS_MAX];
	uint32_t hit_count;
	uint32_t limp_count;  /**< iterations between the last fault and mending */
	uint32_t spared;      /**< rail that it leaves alone */
	bool is_last;         /**< the ranks close in the middle of it */
	bool waits;           /**< for all paths, before the next episode */
	uint32_t blackout_ms; /**< from the start to the mending of one rail; 0: no blackout */
	uint32_t relief;      /**< in a blackout: the hit that is mended first */
};

/** Rails that a train has to do with. */
struct train_rails {
	uint32_t host_count;
	uint32_t rail_count;
	bool keep_spared; /**< not all paths are back yet: only `spared` can be relied upon */
	uint32_t spared;  /**< rail the last episode left alone */
};

const char *train_class_name(enum train_class class);
enum train_group train_class_group(enum train_class class);
/** Class of that name, or TRAIN_CLASS_COUNT. */
enum train_class train_class_find(const char *name);

/** Draw episode `number`. */
void train_draw(struct train_episode *episode, const struct opt_train *opt, uint32_t number,
		const struct train_rails *rails);
/** Make the episode the train's last one. */
void train_draw_last(struct train_episode *episode, const struct opt_train *opt, uint32_t number,
		     const struct train_rails *rails);

struct run;
struct train;

/** Returns 0 or -errno. */
int train_create(struct train **out, struct run *run);
/** Accepts NULL. */
void train_destroy(struct train *train);
/** Between iterations: go on to the next phase. */
void train_step(struct train *train);
/** While an iteration runs: what is due by the clock. */
void train_tick(struct train *train);
/** The ranks close now. */
void train_on_close(struct train *train);
/** The ranks are to end: nothing of them stays stopped. */
void train_on_end(struct train *train);
/** True once the iteration that begins is the last one. */
bool train_is_over(const struct train *train);
/** Nothing more happens: complete the log, print the summary and, after a failure, the episode. */
void train_finish(struct train *train);

#endif
