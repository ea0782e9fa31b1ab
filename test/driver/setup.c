/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/setup.h"

#include "test/driver/call.h"
#include "test/driver/data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int staging_create(const struct rank *rank, struct conn *conn)
{
	static const size_t slot_bytes[CONN_STAGED_COUNT] = {
		[PROTO_SIMPLE] = CONN_SIMPLE_SLOT_BYTES,
		[PROTO_LL] = CONN_LL_SLOT_BYTES,
	};

	for (int proto = 0; proto < CONN_STAGED_COUNT; proto++) {
		struct slots *slots = &conn->staged[proto];
		size_t len_bytes = FLOW_STEPS * slot_bytes[proto];

		if (!job_uses_proto(rank->opt, (enum proto_kind)proto)) {
			continue;
		}
		if (guarded_create(&slots->buf, len_bytes)) {
			return -ENOMEM;
		}
		guarded_arm(&slots->buf, len_bytes);
		slots->slot_bytes = slot_bytes[proto];
		data_poison(slots->buf.data, len_bytes,
			    conn->dir == FLOW_RECV ? DATA_POISON_RECV : DATA_POISON_SEND);
	}
	return 0;
}

static int conn_add(struct rank *rank, enum flow_dir dir, uint32_t peer, uint32_t channel)
{
	struct conn *conn = &rank->conns[rank->conn_count];

	conn->dir = dir;
	conn->peer = peer;
	conn->channel = channel;
	conn->dev = rank->opt->dev >= 0 ? rank->opt->dev : (int)channel % rank->dev_count;
	rank->conn_count++;
	return staging_create(rank, conn);
}

int setup_plan(struct rank *rank)
{
	const struct options *opt = rank->opt;
	uint32_t ranks = opt->rank_count;
	uint32_t me = (uint32_t)rank->id;

	rank->conns = calloc(RANK_CONNS_MAX, sizeof(*rank->conns));
	if (!rank->conns) {
		return -ENOMEM;
	}
	for (uint32_t away = 1; away < ranks; away++) {
		uint32_t next = (me + away) % ranks;
		uint32_t prev = (me + ranks - away) % ranks;

		for (uint32_t channel = 0; channel < opt->channel_count; channel++) {
			/* The ring's connections come first; the others only alltoall needs. */
			if (away > 1 && !opt->ops[OP_ALLTOALL]) {
				continue;
			}
			if (conn_add(rank, FLOW_SEND, next, channel) ||
			    conn_add(rank, FLOW_RECV, prev, channel)) {
				return -ENOMEM;
			}
		}
	}
	return 0;
}

int setup_listen(struct rank *rank)
{
	for (uint32_t i = 0; i < rank->conn_count; i++) {
		struct conn *conn = &rank->conns[i];

		if (conn->dir != FLOW_RECV) {
			continue;
		}
		uint64_t start_ns = clock_mono_ns();
		int err =
			call_end(rank, CALL_SERVICE, "listen", start_ns,
				 rank->api.ops->listen(
					 &rank->api, conn->dev,
					 rank->shared->handles[conn->channel][rank->id][conn->peer],
					 &conn->listen_comm));

		if (err) {
			return err;
		}
	}
	return 0;
}

static int conn_connect(struct rank *rank, struct conn *conn)
{
	struct nccl_net_device_handle *dev_handle = NULL;
	uint64_t start_ns = clock_mono_ns();
	int err = call_end(rank, CALL_SERVICE, "connect", start_ns,
			   rank->api.ops->connect(&rank->api, conn->dev, conn->handle, &conn->comm,
						  &dev_handle));

	return err ? err : (dev_handle ? -EPROTO : 0);
}

static int conn_accept(struct rank *rank, struct conn *conn)
{
	struct nccl_net_device_handle *dev_handle = NULL;
	uint64_t start_ns = clock_mono_ns();
	int err = call_end(
		rank, CALL_SERVICE, "accept", start_ns,
		rank->api.ops->accept(&rank->api, conn->listen_comm, &conn->comm, &dev_handle));

	if (err || !conn->comm) {
		return err;
	}
	void *listen_comm = conn->listen_comm;

	conn->listen_comm = NULL;
	start_ns = clock_mono_ns();
	err = call_end(rank, CALL_SERVICE, "closeListen", start_ns,
		       rank->api.ops->close_listen(&rank->api, listen_comm));
	return err ? err : (dev_handle ? -EPROTO : 0);
}

static int region_reg(struct rank *rank, struct conn *conn, const struct guarded *buf, void **mh)
{
	uint64_t start_ns = clock_mono_ns();

	return call_end(
		rank, CALL_SERVICE, "regMr", start_ns,
		rank->api.ops->reg_mr(&rank->api, conn->comm, buf->map, buf->map_bytes, mh));
}

static int conn_reg(struct rank *rank, struct conn *conn)
{
	int err = 0;

	for (int proto = 0; !err && proto < CONN_STAGED_COUNT; proto++) {
		if (conn->staged[proto].buf.map) {
			err = region_reg(rank, conn, &conn->staged[proto].buf,
					 &conn->staged[proto].mh);
		}
	}
	if (!err && job_uses_proto(rank->opt, PROTO_DIRECT)) {
		err = region_reg(rank, conn, &rank->out, &conn->mh_out);
		if (!err && conn->dir == FLOW_SEND) {
			err = region_reg(rank, conn, &rank->in, &conn->mh_in);
		}
	}
	return err;
}

static void nap(long ns)
{
	struct timespec ts = {0, ns};

	nanosleep(&ts, NULL);
}

int setup_connect(struct rank *rank)
{
	uint32_t missing = rank->conn_count;

	for (uint32_t i = 0; i < rank->conn_count; i++) {
		struct conn *conn = &rank->conns[i];

		memcpy(conn->handle, rank->shared->handles[conn->channel][conn->peer][rank->id],
		       sizeof(conn->handle));
	}
	while (missing) {
		missing = 0;
		for (uint32_t i = 0; i < rank->conn_count; i++) {
			struct conn *conn = &rank->conns[i];
			int err = 0;

			if (!conn->comm) {
				err = conn->dir == FLOW_SEND ? conn_connect(rank, conn)
							     : conn_accept(rank, conn);
				missing += conn->comm ? 0 : 1;
			}
			if (!err && rank_stopped(rank)) {
				err = -ECANCELED;
			}
			if (err) {
				return err;
			}
		}
		nap(missing ? 50000 : 0);
	}
	for (uint32_t i = 0; i < rank->conn_count; i++) {
		int err = conn_reg(rank, &rank->conns[i]);

		if (err) {
			return err;
		}
	}
	return 0;
}

static void mh_dereg(struct rank *rank, struct conn *conn, void **mh, int *first_err)
{
	if (*mh) {
		uint64_t start_ns = clock_mono_ns();
		int err = call_end(rank, CALL_SERVICE, "deregMr", start_ns,
				   rank->api.ops->dereg_mr(&rank->api, conn->comm, *mh));

		*mh = NULL;
		*first_err = *first_err ? *first_err : err;
	}
}

static void conn_close(struct rank *rank, struct conn *conn, int *first_err)
{
	int err = 0;

	mh_dereg(rank, conn, &conn->mh_in, first_err);
	mh_dereg(rank, conn, &conn->mh_out, first_err);
	for (int proto = 0; proto < CONN_STAGED_COUNT; proto++) {
		mh_dereg(rank, conn, &conn->staged[proto].mh, first_err);
	}
	uint64_t start_ns = clock_mono_ns();

	if (conn->listen_comm) {
		err = call_end(rank, CALL_SERVICE, "closeListen", start_ns,
			       rank->api.ops->close_listen(&rank->api, conn->listen_comm));
	} else if (conn->comm && conn->dir == FLOW_SEND) {
		err = call_end(rank, CALL_SERVICE, "closeSend", start_ns,
			       rank->api.ops->close_send(&rank->api, conn->comm));
	} else if (conn->comm) {
		err = call_end(rank, CALL_SERVICE, "closeRecv", start_ns,
			       rank->api.ops->close_recv(&rank->api, conn->comm));
	}
	conn->listen_comm = NULL;
	conn->comm = NULL;
	*first_err = *first_err ? *first_err : err;
}

int setup_close(struct rank *rank)
{
	uint64_t start_ns = clock_mono_ns();
	int first_err = 0;

	for (uint32_t i = 0; i < rank->conn_count; i++) {
		conn_close(rank, &rank->conns[i], &first_err);
	}
	rank->report->close_ns += clock_mono_ns() - start_ns;
	return first_err;
}

void setup_free(struct rank *rank)
{
	for (uint32_t i = 0; i < rank->conn_count; i++) {
		for (int proto = 0; proto < CONN_STAGED_COUNT; proto++) {
			guarded_destroy(&rank->conns[i].staged[proto].buf);
		}
	}
	free(rank->conns);
	rank->conns = NULL;
	rank->conn_count = 0;
}

int setup_churn(struct rank *rank, const _Atomic int *until)
{
	struct guarded scratch;
	int err = guarded_create(&scratch, 1 << 20);

	for (uint32_t i = 0; !err && !atomic_load_explicit(until, memory_order_acquire); i++) {
		struct conn *conn = &rank->conns[i % rank->conn_count];
		void *mh = NULL;

		err = region_reg(rank, conn, &scratch, &mh);
		mh_dereg(rank, conn, &mh, &err);
		nap(200000);
	}
	guarded_destroy(&scratch);
	return err;
}
