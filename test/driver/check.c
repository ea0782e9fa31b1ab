/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/check.h"

#include "test/driver/data.h"
#include "test/driver/engine.h"

enum {
	EDGE_COUNT = 4,   /**< elements looked at on each end of a message */
	TAIL_BYTES = 4096 /**< looked at behind a message, each time */
};

static size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/** Length of the prefix of the receive slots that messages have touched so far. */
static size_t slot_used(const struct slots *slots)
{
	return min_size(slots->used_max + TAIL_BYTES, slots->slot_bytes);
}

static void poison_verify(struct rank *rank, struct conn *conn, enum tally_kind kind,
			  unsigned char *at, size_t len_bytes, uint64_t idx)
{
	size_t first = 0;
	size_t bad = data_poison_check(at, len_bytes, DATA_POISON_RECV, &first);

	if (!bad) {
		return;
	}
	tally_add(&rank->report->tally, rank->id, kind, bad,
		  "iteration %u, from rank %u channel %u %s: %zu bytes changed, first 0x%02x at "
		  "byte %zu of the slot of message %llu",
		  rank->job.iter, conn->peer, conn->channel, proto_name(conn->proto), bad,
		  at[first], (size_t)(at + first - conn_slot(&conn->staged[conn->proto], idx)),
		  (unsigned long long)idx);
	data_poison(at, len_bytes, DATA_POISON_RECV);
}

void check_slot(struct rank *rank, struct conn *conn, uint64_t idx)
{
	struct slots *slots = &conn->staged[conn->proto];

	poison_verify(rank, conn, TALLY_LATE, conn_slot(slots, idx), slot_used(slots), idx);
}

void check_sizes(struct rank *rank, struct conn *conn, uint64_t idx, const int *sizes,
		 size_t size_count)
{
	struct msg msg = flow_msg(&conn->flow, idx);
	size_t want = conn_wire_bytes(conn, &msg);

	if ((size_t)sizes[0] != want) {
		tally_add(&rank->report->tally, rank->id, TALLY_SIZE, 1,
			  "iteration %u, receive from rank %u, message %llu: test said %d bytes, "
			  "were %zu",
			  rank->job.iter, conn->peer, (unsigned long long)idx, sizes[0], want);
	}
	for (size_t i = 1; i < size_count; i++) {
		if (sizes[i]) {
			tally_add(&rank->report->tally, rank->id, TALLY_API, 1,
				  "test wrote %d to sizes[%zu] of one receive", sizes[i], i);
			break;
		}
	}
	if (conn->proto != PROTO_DIRECT && want > conn->staged[conn->proto].used_max) {
		conn->staged[conn->proto].used_max = want;
	}
}

/** Elements [from, to) of data equal those of message msg. */
static bool run_equal(const struct conn *conn, const struct msg *msg, size_t from, size_t to,
		      const uint32_t *data, size_t stride_words)
{
	for (size_t i = from; i < to; i++) {
		if (i >= msg->count ||
		    data[i * stride_words] != flow_element(&conn->flow, msg, i)) {
			return false;
		}
	}
	return true;
}

static enum tally_kind edges_cause(const struct conn *conn, uint64_t idx, const struct msg *msg,
				   const uint32_t *data, size_t stride_words)
{
	size_t poisoned = 0;
	size_t edge = min_size(EDGE_COUNT, msg->count);

	for (size_t i = 0; i < edge; i++) {
		poisoned += data[i * stride_words] == (uint32_t)DATA_POISON_RECV;
		poisoned += data[(msg->count - 1 - i) * stride_words] == (uint32_t)DATA_POISON_RECV;
	}
	if (poisoned) {
		return TALLY_EARLY;
	}
	for (uint64_t back = 1; back <= 2 * FLOW_STEPS && back <= idx; back++) {
		struct msg old = flow_msg(&conn->flow, idx - back);

		if (run_equal(conn, &old, 0, edge, data, stride_words)) {
			return TALLY_DUPLICATE;
		}
	}
	return TALLY_WRONG;
}

void check_edges(struct rank *rank, struct conn *conn, uint64_t idx, const uint32_t *data,
		 size_t stride_words)
{
	struct msg msg = flow_msg(&conn->flow, idx);
	size_t edge = min_size(EDGE_COUNT, msg.count);

	if (run_equal(conn, &msg, 0, edge, data, stride_words) &&
	    run_equal(conn, &msg, msg.count - edge, msg.count, data, stride_words)) {
		return;
	}
	enum tally_kind kind = edges_cause(conn, idx, &msg, data, stride_words);

	tally_add(
		&rank->report->tally, rank->id, kind, 1,
		"iteration %u %s %s, from rank %u channel %u, message %llu of %llu, %zu elements: "
		"starts 0x%x, should 0x%x",
		rank->job.iter, op_name(rank->job.op), proto_name(conn->proto), conn->peer,
		conn->channel, (unsigned long long)idx, (unsigned long long)conn->flow.total,
		msg.count, data[0], flow_element(&conn->flow, &msg, 0));
}

void check_tail(struct rank *rank, struct conn *conn, uint64_t idx)
{
	struct slots *slots = &conn->staged[conn->proto];
	struct msg msg = flow_msg(&conn->flow, idx);
	size_t used = conn_wire_bytes(conn, &msg);

	poison_verify(rank, conn, TALLY_GUARD, conn_slot(slots, idx) + used,
		      min_size(slots->slot_bytes - used, TAIL_BYTES), idx);
}

void check_digest(struct rank *rank, struct conn *conn, uint64_t idx)
{
	struct msg msg = flow_msg(&conn->flow, idx);
	const struct ll_unit *slot = (void *)conn_slot(&conn->staged[PROTO_LL], idx);

	if (ll_digest(slot, msg.count) != conn->digests[idx % FLOW_STEPS]) {
		tally_add(
			&rank->report->tally, rank->id, TALLY_WRONG, 1,
			"iteration %u ll, from rank %u, message %llu changed after its flags were "
			"seen",
			rank->job.iter, conn->peer, (unsigned long long)idx);
	}
}

static void guard_verify(struct rank *rank, struct guarded *buf, const char *what, uint32_t peer)
{
	int64_t at = 0;
	size_t bad = guarded_check(buf, &at);

	if (bad) {
		tally_add(&rank->report->tally, rank->id, TALLY_GUARD, bad,
			  "iteration %u, %s (peer %u): %zu guard bytes changed, first at byte %lld "
			  "of a buffer of %zu",
			  rank->job.iter, what, peer, bad, (long long)at, buf->len_bytes);
	}
}

void check_conn(struct rank *rank, struct conn *conn)
{
	for (int proto = 0; proto < CONN_STAGED_COUNT; proto++) {
		struct slots *slots = &conn->staged[proto];

		if (!slots->buf.map) {
			continue;
		}
		guard_verify(rank, &slots->buf, "staging slots", conn->peer);
		if (conn->dir == FLOW_RECV && conn->proto == (enum proto_kind)proto) {
			for (uint64_t i = 0; i < FLOW_STEPS; i++) {
				poison_verify(rank, conn, TALLY_LATE, conn_slot(slots, i),
					      slots->slot_bytes, i);
			}
		}
	}
}

/** Compare out[at..at + count) with the sum of streams, whose element 0 is at `at`. */
static void range_check(struct rank *rank, size_t at, size_t count, const uint32_t *keys,
			size_t key_count)
{
	const uint32_t *got = (uint32_t *)(void *)rank->out.data + at;
	size_t first = 0;
	size_t bad = data_check(got, count, 0, keys, key_count, &first);

	if (bad) {
		uint32_t want = 0;

		for (size_t k = 0; k < key_count; k++) {
			want += data_element(keys[k], (uint32_t)first);
		}
		tally_add(
			&rank->report->tally, rank->id, TALLY_WRONG, bad,
			"iteration %u %s %s, %zu of %zu elements of the result, first element %zu "
			"is 0x%x, should be 0x%x",
			rank->job.iter, op_name(rank->job.op), proto_name(rank->job.proto), bad,
			count, at + first, got[first], want);
	}
}

void check_result(struct rank *rank)
{
	const struct options *opt = rank->opt;
	const struct job *job = &rank->job;
	size_t count = job->size_bytes / sizeof(uint32_t);
	uint32_t keys[OPT_RANKS_MAX] = {0};
	uint32_t me = (uint32_t)rank->id;
	uint32_t ranks = opt->rank_count;
	size_t part = ranks ? count / ranks : 0;

	for (uint32_t r = 0; r < ranks; r++) {
		keys[r] = data_key(opt->seed, r, job->op == OP_ALLTOALL ? me : 0, job->iter);
	}
	switch (job->op) {
	case OP_ALLREDUCE:
		range_check(rank, 0, count, keys, ranks);
		break;
	case OP_ALLTOALL:
		for (uint32_t r = 0; r < ranks; r++) {
			range_check(rank, r * part, part, &keys[r], 1);
		}
		break;
	case OP_SENDRECV:
		range_check(rank, 0, count, &keys[(me ? me : ranks) - 1], 1);
		break;
	case OP_STREAM:
		if (me % 2) {
			range_check(rank, 0, count, &keys[me - 1], 1);
		}
		break;
	case OP_KIND_COUNT:
		break;
	}
	guard_verify(rank, &rank->in, "user input", me);
	guard_verify(rank, &rank->out, "user output", me);
}

void check_out_poison(struct rank *rank)
{
	data_poison(rank->out.data, rank->out.len_bytes, DATA_POISON_RECV);
	rank->out_poisoned = true;
}

void check_out_untouched(struct rank *rank)
{
	size_t first = 0;

	if (!rank->out_poisoned) {
		return;
	}
	size_t bad =
		data_poison_check(rank->out.data, rank->out.len_bytes, DATA_POISON_RECV, &first);

	if (bad) {
		tally_add(&rank->report->tally, rank->id, TALLY_LATE, bad,
			  "iteration %u %s %s: %zu bytes of the user output changed after all was "
			  "done, first at byte %zu",
			  rank->job.iter, op_name(rank->job.op), proto_name(rank->job.proto), bad,
			  first);
		data_poison(rank->out.data, rank->out.len_bytes, DATA_POISON_RECV);
	}
}
