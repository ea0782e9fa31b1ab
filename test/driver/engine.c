/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/engine.h"

#include "test/driver/sticky.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

enum {
	IDLE_SPIN_COUNT = 2000, /**< passes that only yield before each pass naps as well */
	IDLE_NAP_NS = 50000
};

static bool conn_finished(const struct conn *conn)
{
	return conn->freed == conn->flow.total;
}

static void conn_dump(const struct rank *rank, const struct conn *conn)
{
	fprintf(stderr,
		"rank %d: %s rank %u channel %u %s: of %" PRIu64 " messages filled %" PRIu64
		" posted %" PRIu64 " received %" PRIu64 " used %" PRIu64 " finished %" PRIu64 "\n",
		rank->id, conn->dir == FLOW_SEND ? "send to" : "receive from", conn->peer,
		conn->channel, proto_name(conn->proto), conn->flow.total, conn->filled,
		conn->posted, conn->received, conn->consumed, conn->freed);
}

static void engine_dump(const struct rank *rank)
{
	if (atomic_load_explicit(&rank->shared->stop, memory_order_acquire) != STOP_DUMP) {
		return;
	}
	for (uint32_t i = 0; i < rank->conn_count; i++) {
		if (rank->conns[i].active && !conn_finished(&rank->conns[i])) {
			conn_dump(rank, &rank->conns[i]);
		}
	}
}

static void idle(unsigned *count)
{
	static const struct timespec nap = {0, IDLE_NAP_NS};

	/* As NCCL's thread does. When nothing moves for long, leave the machine to the others. */
	sched_yield();
	if (++*count > IDLE_SPIN_COUNT) {
		nanosleep(&nap, NULL);
	}
}

/** One pass over all connections; *busy tells whether some are unfinished. */
static int engine_pass(struct rank *rank, unsigned *moved, bool *busy)
{
	uint64_t received = 0;
	uint32_t open_peers = 0;

	*busy = false;
	for (uint32_t i = 0; i < rank->conn_count; i++) {
		struct conn *conn = &rank->conns[i];

		if (!conn->active) {
			continue;
		}
		if (!conn_finished(conn)) {
			int err = conn->dir == FLOW_SEND ? send_pass(rank, conn, moved)
							 : recv_pass(rank, conn, moved);

			if (err) {
				sticky_check(rank, conn);
				return err;
			}
			*busy = true;
			open_peers |= 1U << conn->peer;
		}
		received += conn->dir == FLOW_RECV ? conn->consumed : 0;
	}
	atomic_store_explicit(&rank->report->moved, received, memory_order_release);
	atomic_store_explicit(&rank->report->open_peers, open_peers, memory_order_release);
	return 0;
}

int engine_run(struct rank *rank)
{
	unsigned idle_count = 0;
	bool busy = true;

	while (busy) {
		unsigned moved = 0;
		int err = engine_pass(rank, &moved, &busy);

		if (err) {
			return err;
		}
		if (atomic_load_explicit(&rank->report->abort_order, memory_order_acquire)) {
			return -ECONNABORTED;
		}
		if (rank_stopped(rank)) {
			engine_dump(rank);
			return -ECANCELED;
		}
		if (moved) {
			idle_count = 0;
		} else {
			idle(&idle_count);
		}
	}
	return 0;
}
