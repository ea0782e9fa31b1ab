/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/call.h"
#include "test/driver/data.h"
#include "test/driver/engine.h"

#include <string.h>

static uint32_t *user_at(const struct rank *rank, const struct msg *msg)
{
	const struct guarded *buf = msg->from_in ? &rank->in : &rank->out;

	return (uint32_t *)(void *)buf->data + msg->off;
}

/** The GPU's part: put message `filled` into its slot, if its data is there and the slot is free.
 */
static bool send_fill(struct rank *rank, struct conn *conn)
{
	struct flow *flow = &conn->flow;

	if (conn->filled == flow->total || conn->filled - conn->freed == FLOW_STEPS) {
		return false;
	}
	struct msg msg = flow_msg(flow, conn->filled);

	if (msg.has_dep && conn->source->consumed <= msg.dep) {
		return false;
	}
	if (conn->proto == PROTO_SIMPLE) {
		memcpy(conn_slot(&conn->staged[PROTO_SIMPLE], conn->filled), user_at(rank, &msg),
		       msg.count * sizeof(uint32_t));
	} else if (conn->proto == PROTO_LL) {
		void *slot = conn_slot(&conn->staged[PROTO_LL], conn->filled);

		ll_pack(slot, user_at(rank, &msg), msg.count, ++conn->ll_flag);
	}
	conn->filled++;
	return true;
}

static int send_post(struct rank *rank, struct conn *conn, unsigned *moved)
{
	if (conn->posted == conn->filled) {
		return 0;
	}
	uint64_t idx = conn->posted;
	struct msg msg = flow_msg(&conn->flow, idx);
	void *data = user_at(rank, &msg);
	void *mh = msg.from_in ? conn->mh_in : conn->mh_out;
	size_t len_bytes = conn_wire_bytes(conn, &msg);
	void *request = conn_stale_request(conn, idx);

	if (conn->proto != PROTO_DIRECT) {
		data = conn_slot(&conn->staged[conn->proto], idx);
		mh = conn->staged[conn->proto].mh;
	}
	uint64_t start_ns = clock_mono_ns();
	int err = call_end(
		rank, CALL_PROGRESS, "isend", start_ns,
		rank->api.ops->isend(&rank->api, conn->comm, data, len_bytes, mh, &request));

	if (err || !request) {
		return err;
	}
	if (request == (void *)(uintptr_t)NCCL_NET_RECV_OPTIONAL) {
		tally_add(&rank->report->tally, rank->id, TALLY_API, 1,
			  "isend to rank %u, message %llu: *request not written", conn->peer,
			  (unsigned long long)idx);
		return 0;
	}
	conn->requests[idx % FLOW_STEPS] = request;
	conn->sent_bytes[idx % FLOW_STEPS] = len_bytes;
	conn->posted++;
	*moved = 1;
	return 0;
}

/** The plugin said that message idx was sent: from now on nobody may read its memory. */
static void send_finish(struct rank *rank, struct conn *conn, uint64_t idx, int size)
{
	size_t want_bytes = conn->sent_bytes[idx % FLOW_STEPS];

	if ((size_t)size != want_bytes) {
		tally_add(&rank->report->tally, rank->id, TALLY_SIZE, 1,
			  "send to rank %u, message %llu: test said %d bytes, were %zu", conn->peer,
			  (unsigned long long)idx, size, want_bytes);
	}
	if (conn->proto == PROTO_DIRECT) {
		/* An input that was sent is not used again; partial results are. */
		struct msg msg = flow_msg(&conn->flow, idx);

		if (msg.from_in) {
			data_poison(user_at(rank, &msg), want_bytes, DATA_POISON_SEND);
		}
	} else {
		data_poison(conn_slot(&conn->staged[conn->proto], idx), want_bytes,
			    DATA_POISON_SEND);
	}
	conn->freed++;
}

static int send_test(struct rank *rank, struct conn *conn, unsigned *moved)
{
	if (conn->freed == conn->posted) {
		return 0;
	}
	uint64_t idx = conn->freed;
	int done = 0;
	int size = 0;
	uint64_t start_ns = clock_mono_ns();
	int err = call_end(
		rank, CALL_PROGRESS, "test", start_ns,
		rank->api.ops->test(&rank->api, conn->requests[idx % FLOW_STEPS], &done, &size));

	if (!err && done) {
		send_finish(rank, conn, idx, size);
		*moved = 1;
	}
	return err;
}

int send_pass(struct rank *rank, struct conn *conn, unsigned *moved)
{
	while (send_fill(rank, conn)) {
		*moved = 1;
	}
	int err = send_post(rank, conn, moved);

	return err ? err : send_test(rank, conn, moved);
}
