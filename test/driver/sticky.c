/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/sticky.h"

#include <inttypes.h>
#include <time.h>

enum {
	CALL_COUNT = 5, /**< of each kind, with a nap behind each */
	CALL_NAP_NS = 1000000
};

static void result_judge(struct rank *rank, const struct conn *conn, const char *name,
			 enum nccl_result result)
{
	int first = atomic_load_explicit(&rank->report->net_error, memory_order_acquire);

	if ((int)result != first) {
		tally_add(&rank->report->tally, rank->id, TALLY_API, 1,
			  "%s on the connection with rank %u returned %d after an error %d", name,
			  conn->peer, (int)result, first);
	}
}

/** Post one more message, with memory that is registered. */
static enum nccl_result post_again(struct rank *rank, struct conn *conn)
{
	const struct slots *slots = &conn->staged[conn->proto];
	bool is_direct = conn->proto == PROTO_DIRECT;
	void *data = is_direct ? rank->out.data : slots->buf.data;
	void *mh = is_direct ? conn->mh_out : slots->mh;
	void *request = NULL;

	return conn->dir == FLOW_SEND
		       ? rank->api.ops->isend(&rank->api, conn->comm, data, 128, mh, &request)
		       : rank->api.ops->irecv(&rank->api, conn->comm, data, 128, mh, &request);
}

void sticky_check(struct rank *rank, struct conn *conn)
{
	static const struct timespec nap = {0, CALL_NAP_NS};
	uint64_t oldest = conn->dir == FLOW_SEND ? conn->freed : conn->received;
	int done = 0;
	int sizes[64] = {0};

	if (rank->opt->expect != EXPECT_REMOTE) {
		return;
	}
	for (int i = 0; i < CALL_COUNT; i++) {
		if (oldest < conn->posted) {
			result_judge(rank, conn, "test",
				     rank->api.ops->test(&rank->api,
							 conn->requests[oldest % FLOW_STEPS], &done,
							 sizes));
		}
		result_judge(rank, conn, conn->dir == FLOW_SEND ? "isend" : "irecv",
			     post_again(rank, conn));
		nanosleep(&nap, NULL);
	}
}
