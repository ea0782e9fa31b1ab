/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/op.h"

#include "test/driver/check.h"
#include "test/driver/data.h"

#include <string.h>

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/** Longest message in elements, and how small a ring slice may get. */
static void proto_limits(const struct options *opt, enum proto_kind proto, size_t *cap,
			 size_t *min_slice)
{
	size_t longest[PROTO_KIND_COUNT] = {
		[PROTO_SIMPLE] = CONN_SIMPLE_SLOT_BYTES / sizeof(uint32_t),
		[PROTO_LL] = CONN_LL_SLOT_BYTES / sizeof(struct ll_unit),
		[PROTO_DIRECT] = opt->direct_slice_bytes / sizeof(uint32_t),
	};
	static const size_t share[PROTO_KIND_COUNT] = {
		[PROTO_SIMPLE] = 32,
		[PROTO_LL] = 8,
		[PROTO_DIRECT] = 1,
	};

	*cap = longest[proto];
	*min_slice = *cap / share[proto];
}

/** The channel's share of count elements, cut at multiples of 128 bytes. */
static void channel_share(struct flow *flow, size_t count, const struct conn *conn,
			  uint32_t channels)
{
	size_t per = ((count + channels - 1) / channels + 31) / 32 * 32;
	size_t from = min_size(conn->channel * per, count);

	flow->base += from;
	flow->count = min_size(per, count - from);
}

/** One-way traffic: from each even rank to the next. */
static bool is_stream(const struct conn *conn, uint32_t me)
{
	uint32_t from = conn->dir == FLOW_SEND ? me : conn->peer;
	uint32_t to = conn->dir == FLOW_SEND ? conn->peer : me;

	return from % 2 == 0 && to == from + 1;
}

static bool flow_begin(struct rank *rank, struct conn *conn)
{
	const struct options *opt = rank->opt;
	const struct job *job = &rank->job;
	uint32_t me = (uint32_t)rank->id;
	uint32_t ranks = opt->rank_count;
	size_t count = job->size_bytes / sizeof(uint32_t);
	bool sends = conn->dir == FLOW_SEND;
	uint32_t ring_peer = (sends ? me + 1 : me + ranks - 1) % ranks;
	struct flow flow = {.dir = conn->dir, .rank = me, .rank_count = ranks};
	size_t min_slice;

	if (job->op == OP_ALLTOALL) {
		count /= ranks;
		flow.base = conn->peer * count;
		flow.keys[0] = data_key(opt->seed, sends ? me : conn->peer, sends ? conn->peer : me,
					job->iter);
	} else if (conn->peer != ring_peer || (job->op == OP_STREAM && !is_stream(conn, me))) {
		return false;
	} else if (job->op == OP_SENDRECV || job->op == OP_STREAM) {
		flow.keys[0] = data_key(opt->seed, sends ? me : conn->peer, 0, job->iter);
	} else {
		flow.kind = FLOW_RING;
		for (uint32_t r = 0; r < ranks; r++) {
			flow.keys[r] = data_key(opt->seed, r, 0, job->iter);
		}
	}
	flow.idx_base = flow.base;
	channel_share(&flow, count, conn, opt->channel_count);
	proto_limits(opt, job->proto, &flow.cap, &min_slice);
	flow_cut(&flow, min_slice);
	conn->flow = flow;
	return true;
}

/** The receiver of the same channel's ring. */
static struct conn *ring_source(struct rank *rank, const struct conn *conn)
{
	uint32_t prev = ((uint32_t)rank->id + rank->opt->rank_count - 1) % rank->opt->rank_count;

	for (uint32_t i = 0; i < rank->conn_count; i++) {
		struct conn *source = &rank->conns[i];

		if (source->dir == FLOW_RECV && source->channel == conn->channel &&
		    source->peer == prev) {
			return source;
		}
	}
	return NULL;
}

static void conn_begin(struct rank *rank, struct conn *conn)
{
	conn->active = flow_begin(rank, conn);
	conn->proto = rank->job.proto;
	conn->filled = 0;
	conn->posted = 0;
	conn->received = 0;
	conn->flushed = 0;
	conn->consumed = 0;
	conn->freed = 0;
	conn->ll_seen = 0;
	conn->flush_request = NULL;
	conn->source = conn->dir == FLOW_SEND ? ring_source(rank, conn) : NULL;
}

static void input_fill(struct rank *rank)
{
	const struct options *opt = rank->opt;
	const struct job *job = &rank->job;
	uint32_t *in = (uint32_t *)(void *)rank->in.data;
	uint32_t me = (uint32_t)rank->id;
	size_t count = job->size_bytes / sizeof(uint32_t);
	size_t part = count / opt->rank_count;

	if (job->op != OP_ALLTOALL) {
		data_fill(in, count, 0, data_key(opt->seed, me, 0, job->iter));
		return;
	}
	for (uint32_t to = 0; to < opt->rank_count; to++) {
		data_fill(in + to * part, part, 0, data_key(opt->seed, me, to, job->iter));
	}
	/* A rank's part for itself does not use the net. */
	memcpy((uint32_t *)(void *)rank->out.data + me * part, in + me * part,
	       part * sizeof(uint32_t));
}

void op_begin(struct rank *rank)
{
	uint64_t total = 0;
	uint32_t open_peers = 0;

	check_out_untouched(rank);
	rank->out_poisoned = false;
	guarded_arm(&rank->in, rank->job.size_bytes);
	guarded_arm(&rank->out, rank->job.size_bytes);
	data_poison(rank->out.data, rank->job.size_bytes, DATA_POISON_RECV);
	input_fill(rank);
	for (uint32_t i = 0; i < rank->conn_count; i++) {
		struct conn *conn = &rank->conns[i];

		conn_begin(rank, conn);
		total += conn->active && conn->dir == FLOW_RECV ? conn->flow.total : 0;
		open_peers |= conn->active ? 1U << conn->peer : 0;
	}
	atomic_store_explicit(&rank->report->open_peers, open_peers, memory_order_release);
	atomic_store_explicit(&rank->report->moved, 0, memory_order_release);
	atomic_store_explicit(&rank->report->total, total, memory_order_release);
}

/** Flip one element of the last rank's result. */
static void corrupt(struct rank *rank)
{
	size_t count = rank->out.len_bytes / sizeof(uint32_t);

	if (rank->opt->corrupt && count && rank->id == (int)rank->opt->rank_count - 1) {
		((uint32_t *)(void *)rank->out.data)[count / 2] ^= 1;
	}
}

void op_end(struct rank *rank)
{
	corrupt(rank);
	check_result(rank);
	for (uint32_t i = 0; i < rank->conn_count; i++) {
		struct conn *conn = &rank->conns[i];

		if (!conn->active) {
			continue;
		}
		check_conn(rank, conn);
		if (conn->proto != PROTO_DIRECT) {
			conn->staged[conn->proto].step += conn->flow.total;
		}
	}
	if (rank->job.proto == PROTO_DIRECT) {
		check_out_poison(rank);
	}
}
