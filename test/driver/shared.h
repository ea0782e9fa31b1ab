/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_SHARED_H
#define BRAID_TEST_DRIVER_SHARED_H

#include "include/nccl_net.h"
#include "test/driver/options.h"
#include "test/driver/tally.h"

#include <stdatomic.h>
#include <stdint.h>

/** Why the ranks should leave what they are doing. */
enum stop_kind {
	STOP_NONE,
	STOP_DUMP, /**< stuck: each rank prints where it stands, then leaves */
	STOP_QUIET /**< another rank failed already */
};

/** What the launcher wants a rank to do to its process's TCP connections. */
enum link_order {
	LINK_NOTHING,
	LINK_FIN,    /**< end them in order: the peer reads an end of file */
	LINK_RST,    /**< reset them */
	LINK_MUTE,   /**< hear nothing any more, not even acknowledgements */
	LINK_UNMUTE, /**< hear again */
	LINK_ORDER_COUNT
};

/** What a rank tells the launcher. */
struct rank_report {
	_Atomic uint64_t moved;      /**< messages received in the current iteration */
	_Atomic uint64_t total;      /**< messages to receive in it */
	_Atomic uint32_t open_peers; /**< bit per rank: messages to or from it are unfinished */
	uint64_t start_ns; /**< CLOCK_MONOTONIC; valid while the launcher holds the gate */
	uint64_t end_ns;
	_Atomic uint64_t net_error_ns; /**< when the plugin first returned an error, or 0 */
	_Atomic int net_error;         /**< that enum nccl_result */
	_Atomic uint64_t call_max_ns;  /**< longest call of the progress thread's functions */
	_Atomic uint64_t setup_max_ns; /**< longest call of the service thread's functions */
	_Atomic uint64_t call_count;   /**< isend, irecv, test and iflush calls */
	_Atomic bool abort_order;      /**< launcher to rank: close all, whatever is outstanding */
	_Atomic uint32_t link_orders;  /**< launcher to rank: how many so far, above the last one */
	_Atomic uint64_t links_harmed; /**< by all of them */
	char call_max_name[16];
	char setup_max_name[16];
	char plugin_name[32];
	int dev_count;
	uint64_t close_ns; /**< how long deregMr and close took altogether */
	struct tally tally;
};

/**
 * A gate all ranks stop at. The launcher waits until each has arrived, does its work, and opens it.
 */
struct gate {
	_Atomic uint32_t arrived;
	_Atomic uint32_t generation;
};

/** The memory launcher and ranks share; also the bootstrap that carries the handles. */
struct shared {
	struct options opt;
	_Atomic uint32_t stop;     /**< enum stop_kind */
	_Atomic uint32_t iter_end; /**< iterations of the run; a train lowers it at its end */
	struct gate gate;
	struct rank_report ranks[OPT_RANKS_MAX];
	unsigned char handles[OPT_CHANNELS_MAX][OPT_RANKS_MAX][OPT_RANKS_MAX]
			     [NCCL_NET_HANDLE_BYTES]; /**< [channel][receiver][sender] */
};

/**
 * Make the memory. *fd stays open, without close-on-exec, for the ranks to inherit. Returns 0 or
 * -errno. Undone by shared_unmap and close.
 */
int shared_create(struct shared **out, int *fd);
/** Map the memory in a rank, from the inherited fd. Returns 0 or -errno. */
int shared_map(struct shared **out, int fd);
void shared_unmap(struct shared *shared);

/**
 * Rank: arrive at the gate and wait for it to open. Returns 0, or -ECANCELED once shared->stop is
 * set. Blocks; the launcher bounds the time.
 */
int shared_gate_pass(struct shared *shared);
/** Launcher: wait up to wait_ms for the ranks; true when all have arrived. */
int shared_gate_full(struct shared *shared, uint32_t wait_ms);
/** Launcher: let the ranks go on. */
void shared_gate_open(struct shared *shared);
/** Launcher: give a rank an order; one that it has not yet seen is replaced. */
void shared_link_order(struct shared *shared, uint32_t rank, enum link_order order);
/** Rank: wait up to wait_ms for an order after *seen (first: 0). LINK_NOTHING when none came. */
enum link_order shared_link_wait(struct shared *shared, uint32_t rank, uint32_t *seen,
				 uint32_t wait_ms);
/** Set the reason to leave and wake the ranks that wait at the gate. Keeps an earlier reason. */
void shared_stop(struct shared *shared, enum stop_kind why);

#endif
