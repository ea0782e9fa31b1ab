/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_DRIVER_OPTIONS_H
#define BRAID_TEST_DRIVER_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/** Bounds of one run; everything below is plain data, so the ranks read it from shared memory. */
enum {
	OPT_RANKS_MAX = 16,
	OPT_CHANNELS_MAX = 4,
	OPT_SIZES_MAX = 32,
	OPT_FAULTS_MAX = 64,
	OPT_ENVS_MAX = 32,
	OPT_COMMANDS_MAX = 16,
	OPT_TEXT_MAX = 192,
};

enum op_kind {
	OP_ALLREDUCE, /**< ring reduce-scatter and all-gather, 32-bit sums */
	OP_ALLTOALL,  /**< every rank to every other */
	OP_SENDRECV,  /**< shift by one rank around the ring */
	OP_STREAM,    /**< one way: each even rank to the next */
	OP_KIND_COUNT
};

enum proto_kind {
	PROTO_SIMPLE, /**< eight slots of 512 KiB per connection, data valid after test */
	PROTO_LL,     /**< eight slots of 64 KiB, 8-byte units {data, flag}, flags read in place */
	PROTO_DIRECT, /**< straight between user buffers, messages up to 1 GiB */
	PROTO_KIND_COUNT
};

/** What a run of the driver must end with to count as passed. */
enum expect_kind {
	EXPECT_OK,     /**< every element right, nothing else touched, no error from the plugin */
	EXPECT_REMOTE, /**< every surviving rank is told ncclRemoteError; nothing wrong delivered */
	EXPECT_CALM,   /**< as EXPECT_OK, and no path was failed over */
};

/** A fault rule for the fabric and when to install it. */
struct opt_fault {
	char rule[OPT_TEXT_MAX]; /**< as fabric_ctl takes it */
	uint32_t iter;           /**< number of the iteration (counted over the whole run) */
	uint32_t percent; /**< 0: before the iteration starts; else once that share has arrived */
};

/** A signal for one rank's process. */
struct opt_signal {
	bool armed;
	uint32_t rank;
	uint32_t iter;
	uint32_t percent;
	uint32_t pause_ms; /**< SIGSTOP for so long; unused for a kill */
	bool is_abort;     /**< instead of SIGKILL: it closes all, as ncclCommAbort does */
};

/** A shell command for the launcher and when to run it. */
struct opt_command {
	char text[OPT_TEXT_MAX];
	uint32_t iter;
	uint32_t percent; /**< as in struct opt_fault */
};

/** A train of faults: many, one after the other, in one run (test/driver/train.h). */
struct opt_train {
	bool armed;
	uint64_t seed;
	uint32_t fault_count; /**< the train ends once so many faults have struck */
	uint32_t first;       /**< number of its first episode */
	bool timed;           /**< no rule waits for a byte: rails that stand by carry none */
	uint64_t class_mask;  /**< 1 << enum train_class: what is drawn */
	char log[PATH_MAX];   /**< one line an incident, for scripts/soak; empty: none */
};

/** A variable for one rank alone. */
struct opt_rank_env {
	uint32_t rank;
	char text[OPT_TEXT_MAX]; /**< NAME=VALUE */
};

struct options {
	char plugin[PATH_MAX];
	char fabric_lib[PATH_MAX]; /**< folder of the stand-in libibverbs; empty: no fabric */
	char json[PATH_MAX];
	char samples[PATH_MAX];
	int api;
	int dev; /**< device for every connection; -1: channel number modulo device count */
	uint32_t rank_count;
	uint32_t channel_count;
	bool ops[OP_KIND_COUNT];
	bool protos[PROTO_KIND_COUNT];
	bool mix;                      /**< change the protocol from one iteration to the next */
	uint64_t sizes[OPT_SIZES_MAX]; /**< bytes of each rank's buffer, multiples of 4 */
	uint32_t size_count;
	uint32_t iter_count; /**< iterations for each op, size and protocol */
	uint64_t direct_slice_bytes;
	uint32_t rail_count;
	uint32_t latency_us;
	char rate_mbps[OPT_TEXT_MAX];
	char link[16];
	char wiring[16];
	uint32_t seed;
	uint32_t timeout_s;
	uint32_t linger_ms; /**< after closing, before the last look for late writes */
	bool keep;
	bool brief;
	bool quiet;
	bool flush;
	bool reg_churn;
	bool close_at_once;
	bool corrupt;
	enum expect_kind expect;
	uint32_t expect_ms; /**< bound between a kill and the survivors' error */
	struct opt_fault faults[OPT_FAULTS_MAX];
	uint32_t fault_count;
	struct opt_train train;
	struct opt_signal kill; /**< or an abort */
	struct opt_signal stop;
	char envs[OPT_ENVS_MAX][OPT_TEXT_MAX]; /**< NAME=VALUE for the ranks */
	uint32_t env_count;
	struct opt_rank_env rank_envs[OPT_ENVS_MAX]; /**< these override `envs` */
	uint32_t rank_env_count;
	char wrapper[OPT_TEXT_MAX]; /**< shell words before a rank's command line; empty: none */
	struct opt_command commands[OPT_COMMANDS_MAX]; /**< run one after the other, as given */
	uint32_t command_count;
	/* Set only in a rank's process. */
	int rank; /**< -1 in the launcher */
	int shm_fd;
};

/**
 * Read the command line into *opt. Prints the reason and ends the process with status 2 when it
 * cannot be read (argp's way). Launcher and ranks call it once, at start.
 */
void options_parse(struct options *opt, int argc, char **argv);

/** Printable name of an operation; never NULL. */
const char *op_name(enum op_kind op);
/** Printable name of a protocol; never NULL. */
const char *proto_name(enum proto_kind proto);

#endif
