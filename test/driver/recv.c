/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/call.h"
#include "test/driver/check.h"
#include "test/driver/data.h"
#include "test/driver/engine.h"

#include <string.h>

enum {
	TEST_SIZES_COUNT = 64 /**< length of NCCL's array: its greatest number of channels */
};

static uint32_t *out_at(const struct rank *rank, const struct msg *msg)
{
	return (uint32_t *)(void *)rank->out.data + msg->off;
}

static int recv_post(struct rank *rank, struct conn *conn, unsigned *moved)
{
	if (conn->posted == conn->flow.total || conn->posted - conn->freed == FLOW_STEPS) {
		return 0;
	}
	uint64_t idx = conn->posted;
	struct msg msg = flow_msg(&conn->flow, idx);
	void *data = out_at(rank, &msg);
	void *mh = conn->mh_out;
	size_t len_bytes = conn_wire_bytes(conn, &msg);
	void *request = conn_stale_request(conn, idx);

	if (conn->proto != PROTO_DIRECT) {
		check_slot(rank, conn, idx);
		data = conn_slot(&conn->staged[conn->proto], idx);
		mh = conn->staged[conn->proto].mh;
		len_bytes = conn->staged[conn->proto].slot_bytes;
	}
	uint64_t start_ns = clock_mono_ns();
	int err = call_end(
		rank, CALL_PROGRESS, "irecv", start_ns,
		rank->api.ops->irecv(&rank->api, conn->comm, data, len_bytes, mh, &request));

	if (err || !request) {
		return err;
	}
	if (request == (void *)(uintptr_t)NCCL_NET_RECV_OPTIONAL) {
		tally_add(&rank->report->tally, rank->id, TALLY_API, 1,
			  "irecv from rank %u, message %llu: *request not written", conn->peer,
			  (unsigned long long)idx);
		return 0;
	}
	conn->requests[idx % FLOW_STEPS] = request;
	conn->posted++;
	*moved = 1;
	return 0;
}

static int recv_test(struct rank *rank, struct conn *conn, unsigned *moved)
{
	if (conn->received == conn->posted) {
		return 0;
	}
	uint64_t idx = conn->received;
	int done = 0;
	int sizes[TEST_SIZES_COUNT] = {0};
	uint64_t start_ns = clock_mono_ns();
	int err = call_end(
		rank, CALL_PROGRESS, "test", start_ns,
		rank->api.ops->test(&rank->api, conn->requests[idx % FLOW_STEPS], &done, sizes));

	if (err || !done) {
		return err;
	}
	struct msg msg = flow_msg(&conn->flow, idx);

	check_sizes(rank, conn, idx, sizes, TEST_SIZES_COUNT);
	conn->received++;
	if (!rank->opt->flush || conn->proto != PROTO_SIMPLE || !msg.count) {
		conn->flushed = conn->flushed == idx ? conn->received : conn->flushed;
	}
	*moved = 1;
	return 0;
}

/** iflush for message `flushed`; the next step only when its test says done. */
static int recv_flush(struct rank *rank, struct conn *conn, unsigned *moved)
{
	if (conn->flushed == conn->received) {
		return 0;
	}
	uint64_t idx = conn->flushed;
	struct msg msg = flow_msg(&conn->flow, idx);
	int done = 0;
	int err;
	uint64_t start_ns = clock_mono_ns();

	if (!msg.count) {
		done = 1;
	} else if (!conn->flush_request) {
		err = call_end(rank, CALL_PROGRESS, "iflush", start_ns,
			       rank->api.ops->iflush(&rank->api, conn->comm,
						     conn_slot(&conn->staged[PROTO_SIMPLE], idx),
						     (int)conn_wire_bytes(conn, &msg),
						     conn->staged[PROTO_SIMPLE].mh,
						     &conn->flush_request));
		if (err) {
			return err;
		}
		done = conn->flush_request ? 0 : 1;
	} else {
		err = call_end(rank, CALL_PROGRESS, "test", start_ns,
			       rank->api.ops->test(&rank->api, conn->flush_request, &done, NULL));
		if (err) {
			return err;
		}
	}
	if (done) {
		conn->flush_request = NULL;
		conn->flushed++;
		*moved = 1;
	}
	return 0;
}

/** The GPU's part for ll: use message `consumed` once each unit's flag is there, done or not. */
static bool recv_use_ll(struct rank *rank, struct conn *conn)
{
	if (conn->consumed == conn->posted) {
		return false;
	}
	uint64_t idx = conn->consumed;
	struct msg msg = flow_msg(&conn->flow, idx);
	const struct ll_unit *slot = (void *)conn_slot(&conn->staged[PROTO_LL], idx);
	uint32_t flag = conn->ll_flag + 1;
	bool was_done = conn->received > idx;

	conn->ll_seen = ll_scan(slot, conn->ll_seen, msg.count, flag);
	if (conn->ll_seen < msg.count && !was_done) {
		return false;
	}
	if (conn->ll_seen < msg.count) {
		tally_add(&rank->report->tally, rank->id, TALLY_EARLY, 1,
			  "ll from rank %u, message %llu: done, but unit %zu of %zu has no flag",
			  conn->peer, (unsigned long long)idx, conn->ll_seen, msg.count);
	}
	check_edges(rank, conn, idx, &slot[0].data, 2);
	if (msg.reduce) {
		ll_unpack_add(out_at(rank, &msg), (uint32_t *)(void *)rank->in.data + msg.off, slot,
			      msg.count);
	} else {
		ll_unpack(out_at(rank, &msg), slot, msg.count);
	}
	conn->digests[idx % FLOW_STEPS] = ll_digest(slot, msg.count);
	conn->ll_flag++;
	conn->ll_seen = 0;
	conn->consumed++;
	return true;
}

/** The GPU's part for simple and direct: use message `consumed` once it is received and flushed. */
static bool recv_use(struct rank *rank, struct conn *conn)
{
	if (conn->consumed == conn->flushed) {
		return false;
	}
	uint64_t idx = conn->consumed;
	struct msg msg = flow_msg(&conn->flow, idx);
	uint32_t *out = out_at(rank, &msg);
	const uint32_t *in = (uint32_t *)(void *)rank->in.data + msg.off;

	if (conn->proto == PROTO_DIRECT) {
		check_edges(rank, conn, idx, out, 1);
		if (msg.reduce) {
			data_reduce(out, in, msg.count);
		}
	} else {
		const uint32_t *slot = (void *)conn_slot(&conn->staged[PROTO_SIMPLE], idx);

		check_edges(rank, conn, idx, slot, 1);
		if (msg.reduce) {
			data_add(out, in, slot, msg.count);
		} else {
			memcpy(out, slot, msg.count * sizeof(*out));
		}
	}
	conn->consumed++;
	return true;
}

/** Give slots back that are both used and done: poison them, so that a late write shows. */
static bool recv_free(struct rank *rank, struct conn *conn)
{
	if (conn->freed == conn->consumed || conn->freed == conn->received) {
		return false;
	}
	uint64_t idx = conn->freed;
	struct msg msg = flow_msg(&conn->flow, idx);

	if (conn->proto != PROTO_DIRECT) {
		check_tail(rank, conn, idx);
		if (conn->proto == PROTO_LL) {
			check_digest(rank, conn, idx);
		}
		data_poison(conn_slot(&conn->staged[conn->proto], idx), conn_wire_bytes(conn, &msg),
			    DATA_POISON_RECV);
	}
	conn->freed++;
	return true;
}

int recv_pass(struct rank *rank, struct conn *conn, unsigned *moved)
{
	int err = recv_post(rank, conn, moved);

	if (!err) {
		err = recv_test(rank, conn, moved);
	}
	if (!err) {
		err = recv_flush(rank, conn, moved);
	}
	if (err) {
		return err;
	}
	while (conn->proto == PROTO_LL ? recv_use_ll(rank, conn) : recv_use(rank, conn)) {
		*moved = 1;
	}
	while (recv_free(rank, conn)) {
		*moved = 1;
	}
	return 0;
}
