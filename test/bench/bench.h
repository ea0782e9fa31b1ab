/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_BENCH_BENCH_H
#define BRAID_TEST_BENCH_BENCH_H

#include "test/driver/netapi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	BENCH_PLUGINS_MAX = 4,
	BENCH_ROUNDS_MAX = 64,
	BENCH_METRICS_MAX = 96,
	BENCH_COMMS_MAX = 512,
	BENCH_GROWTH_COMMS = 500,
	BENCH_PEER_STEPS_MAX = 8,
	BENCH_WINDOW_MAX = NCCL_NET_REQUESTS_COUNT,
	BENCH_NAME_MAX = 48,
	BENCH_WAIT_S = 60, /* for anything; under valgrind too */
};

enum bench_mode {
	BENCH_SPEED,
	BENCH_COUNT,
	BENCH_GROWTH,
	BENCH_RAILS,
	BENCH_REPAIR,
	BENCH_RING,
	BENCH_SLOW,
	BENCH_IDLE,
	BENCH_PEERS,
	BENCH_ALL,
};

struct bench_options {
	enum bench_mode mode;
	const char *plugins[BENCH_PLUGINS_MAX]; /* FILE[,NAME=VALUE...] */
	unsigned int plugin_count;
	const char *fabric_lib; /* folder of the fabric's libibverbs; NULL: real devices */
	const char *json, *plot;
	const char *dump_dir;                 /* --count: where callgrind writes */
	const char *self;                     /* argv[0] */
	unsigned int rounds, comm_count, api; /* api 0: the newest that a plugin has */
	unsigned int most; /* --count: instructions per message of 8 bytes; 0: any */
	unsigned int peer_steps[BENCH_PEER_STEPS_MAX], peer_step_count; /* --peers, rising */
	bool quick;
};

enum bench_better {
	BENCH_LESS,
	BENCH_MORE,
	BENCH_NEITHER, /* a count that is neither good nor bad by itself */
};

struct bench_metric {
	char name[BENCH_NAME_MAX];
	char unit[12];
	enum bench_better better;
	double value;
};

/**
 * What the two ranks of one plugin share, in memory mapped before they are forked. The steps are a
 * barrier: a rank publishes its step and waits for the other's.
 */
struct bench_shared {
	_Atomic uint32_t step[2];
	_Atomic int failed;
	_Atomic uint32_t done[2]; /* count.c: of a burst */

	unsigned char handles[BENCH_COMMS_MAX][2][NCCL_NET_HANDLE_BYTES];
	unsigned int metric_count;
	struct bench_metric metrics[BENCH_METRICS_MAX]; /* rank 0 writes */
};

/** One of the two processes. Connections go both ways: rank 0 and 1 do the same. */
struct bench_rank {
	const struct bench_options *opt;
	struct bench_shared *shared;
	struct netapi api;
	int id, dev_count;
	uint32_t step;
	unsigned int comm_count;
	void *send_comms[BENCH_COMMS_MAX];
	void *recv_comms[BENCH_COMMS_MAX];
	void *send_mhs[BENCH_COMMS_MAX];
	void *recv_mhs[BENCH_COMMS_MAX];
	unsigned char *send_buf, *recv_buf;
	size_t buf_bytes;
};

/** pair.c: print why and leave the process, so that the other rank leaves as well. */
_Noreturn void bench_die(struct bench_rank *rank, const char *what, int result);
/** Wait until the other rank is here too. */
void bench_sync(struct bench_rank *rank);
/** Rank 0 records a value; the other rank's call does nothing. */
void bench_record(struct bench_rank *rank, enum bench_better better, const char *unit, double value,
		  const char *name, ...) __attribute__((format(printf, 5, 6)));
/** Load and init the plugin. */
void bench_open(struct bench_rank *rank);
/** One more connection each way; returns how long it took in ns. */
uint64_t bench_connect(struct bench_rank *rank);
/** Register the buffers with every comm from that one on. */
void bench_register(struct bench_rank *rank, unsigned int from);
void bench_close(struct bench_rank *rank);

/** traffic.c */
void bench_ping_pong(struct bench_rank *rank, size_t size_bytes, unsigned int count);
/** Rank 0 sends count messages on each of the first comms, window in flight on each. ns taken. */
uint64_t bench_stream(struct bench_rank *rank, size_t size_bytes, unsigned int comms,
		      unsigned int window, unsigned int count);

/** speed.c: the whole mode; and, for others, the wakeups a second while nothing happens. */
void bench_speed(struct bench_rank *rank);
double bench_wakes(struct bench_rank *rank, const char *when);

/** growth.c: whole modes. */
void bench_growth(struct bench_rank *rank);
void bench_rails(struct bench_rank *rank);
void bench_idle(struct bench_rank *rank);

/** repair.c: the mode, and what the plugin's log says: true when the line was for it. Any thread.
 */
void bench_repair(struct bench_rank *rank);
bool bench_repair_heard(const char *line);

/** ring.c: whole modes. */
void bench_ring(struct bench_rank *rank);
void bench_slow(struct bench_rank *rank);

/** usage.c: what the process has now. */
struct bench_usage {
	double rss_kib, pss_kib, anon_kib;
	double fds, threads, qps, mrs;
};
void bench_usage_read(struct bench_rank *rank, struct bench_usage *out);
/** The same of a process that has no other to wait for. */
void bench_usage_now(struct bench_usage *out);
/** Voluntary context switches so far of all threads but the main one, the fabric's left out. */
uint64_t bench_wakeups(void);

/** count.c: the counted calls, under valgrind. */
void bench_count(struct bench_rank *rank);
struct bench_table;
/** Run this program again under valgrind, once per plugin. 0; -ECANCELED: nothing to be said of
 * --most, the machine was too busy; other -errno. */
int bench_count_start(const struct bench_options *opt, struct bench_table *table);

/** report.c */
struct bench_table *bench_table_create(const struct bench_options *opt, const char *title);
void bench_table_destroy(struct bench_table *table);
void bench_table_add(struct bench_table *table, unsigned int plugin,
		     const struct bench_shared *shared);
/** Medians and ratios to the first plugin; false when some number is missing or not positive. */
bool bench_table_print(const struct bench_table *table);
int bench_tables_json(struct bench_table *const *tables, unsigned int count, const char *path);

/** plot.c: bars of the ratios to the first plugin, or of the values where there is one plugin. */
int bench_tables_plot(struct bench_table *const *tables, unsigned int count, const char *path);

/** For plot.c: number of metrics, one of them, its median and ratio (0: none). */
const char *bench_table_title(const struct bench_table *table);
unsigned int bench_table_plugins(const struct bench_table *table);
unsigned int bench_table_size(const struct bench_table *table);
const struct bench_metric *bench_table_metric(const struct bench_table *table, unsigned int m);
double bench_table_median(const struct bench_table *table, unsigned int plugin, unsigned int m);
double bench_table_ratio(const struct bench_table *table, unsigned int plugin, unsigned int m);

#endif
