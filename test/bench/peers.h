/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_BENCH_PEERS_H
#define BRAID_TEST_BENCH_PEERS_H

#include "test/bench/bench.h"

#include <sys/types.h>

/*
 * --peers: one process under test and up to thousands of peers, each a process of its own with its
 * own copy of the plugin, a connection each way with each. The launcher forks them all, has no
 * plugin itself, and its end is theirs. The process under test tells a peer what to do by a word
 * that the peer sleeps on, so that those with nothing to do cost nothing but their own idle plugin.
 */

enum {
	PEERS_MAX = 8192,
	PEERS_SIZE_BYTES = 8,
	PEERS_BURST_MAX = 8,
};

enum peer_order {
	PEER_CONNECT, /* one connection each way */
	PEER_RECEIVE, /* so many messages, all posted at once */
	PEER_LEAVE,   /* close, finalize, end */
};

/** One peer, in memory that all processes share. */
struct peer_seat {
	_Atomic uint32_t order;  /* running number << 2 | enum peer_order; the peer sleeps on it */
	_Atomic uint32_t done;   /* the last order that was carried out, as it was given */
	_Atomic uint32_t posted; /* PEER_RECEIVE: the order whose receives are posted */
	uint32_t messages;       /* ... how many; up to PEERS_BURST_MAX */
	_Atomic uint32_t listens;
	unsigned char handle[NCCL_NET_HANDLE_BYTES];      /* of the peer */
	unsigned char test_handle[NCCL_NET_HANDLE_BYTES]; /* of the process under test, for it */
};

struct peers_shared {
	struct bench_shared *bench;
	_Atomic uint32_t wanted; /* peers to be there; the launcher sleeps on it */
	_Atomic uint32_t open;   /* peers whose plugin is loaded */
	struct peer_seat seats[PEERS_MAX];
};

/** peer.c: the life of a peer, in a process of its own. */
_Noreturn void peer_main(const struct bench_options *opt, struct peers_shared *shared,
			 unsigned int number);
/** Gives an order and wakes the peer. The word that `done` will show. */
uint32_t peer_order_give(struct peer_seat *seat, enum peer_order order);
/** FUTEX_WAIT on a word of shared memory, while it is `value`, for up to timeout_ms. */
void peers_word_wait(_Atomic uint32_t *word, uint32_t value, unsigned int timeout_ms);
void peers_word_wake(_Atomic uint32_t *word);

/** peers.c: takes one plugin through all steps, in processes of its own. 0 or -errno. */
int peers_run(const struct bench_options *opt, struct bench_shared *shared);

/** peers_test.c: the process under test, from start to end. */
_Noreturn void peers_test_main(const struct bench_options *opt, struct peers_shared *shared);

#endif
