/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/post.h"
#include "include/clock.h"
#include "include/log.h"
#include "include/nccl_net.h"
#include "plugin/ack_list.h"
#include "plugin/comm.h"
#include "plugin/rejoin_ops.h"
#include "plugin/runtime.h"
#include "repair/fence.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/*
 * What repair/ asks for, done with verbs and links. Called with the comm's lock held; posting takes
 * a few hundred ns, everything that may block goes to the rail's worker.
 */

enum {
	REAP_MS = 200,        /* flushes take milliseconds; what takes longer never comes */
	FENCE_MS = 30000,     /* a verbs call that takes this long does not come back */
	FATAL_WAIT_MS = 1000, /* for the event that explains a refused modify_qp */
	LARGE_BYTES = 16384,  /* less is gone before anybody could take it into account */
	ALONE_BYTES =
		4 << 20, /* a fraction of a ms again after a failure, 0.4 s to the stall clock */
	ACK_LARGE_BYTES = 65536, /* a sender of larger ones soon waits for its buffers */
};

/*
 * A write with immediate keeps its packets in order, so adaptive routing can't spread them: a large
 * message goes as a plain write and a record there, as on NCCL's own transport. It is the rule on
 * InfiniBand and the exception on RoCE.
 */
static bool is_routed(const struct comm *comm, int setting)
{
	return setting < 0 ? comm->rail_descs[0].link_layer == RAIL_LINK_INFINIBAND : setting > 0;
}

void comm_repair_limits(const struct comm *comm, struct repair_limits *out)
{
	const struct braid_config *cfg = &runtime_instance()->cfg;

	*out = (struct repair_limits){
		.small_bytes = cfg->small_bytes,
		.piece_min_bytes = cfg->piece_bytes,
		.window_bytes = cfg->path_window_bytes,
		.alone_bytes = cfg->piece_bytes > ALONE_BYTES ? cfg->piece_bytes : ALONE_BYTES,
		.uncut_whole = !is_routed(comm, cfg->ib_adaptive_routing),
		.large_bytes = LARGE_BYTES,
		.ack_large_bytes = ACK_LARGE_BYTES,
		.reap_ms = REAP_MS,
		.fence_ms = FENCE_MS,
		.no_path_ms = (uint32_t)cfg->no_path_ms,
		.stall_ms = (uint32_t)cfg->stall_ms,
		.rejoin_min_ms = (uint32_t)cfg->rejoin_min_ms,
		.rejoin_max_ms = (uint32_t)cfg->rejoin_max_ms};
}

/* A full queue is told apart from a broken one: nothing was posted and verbs said ENOMEM. */
static inline __attribute__((always_inline)) int
post_chain(struct comm_path *path, struct ibv_send_wr *wrs, unsigned int count)
{
	unsigned int posted;
	int rc = ib_qp_post_chain(&path->qp, wrs, count, &posted);

	if (__builtin_expect(rc != 0, 0)) {
		/* The data path has no clock, and this may be a fault. */
		repair_end_at(&path->comm->end, clock_mono_ns());
		rc = rc == -ENOMEM && posted == 0 ? -EAGAIN : rc;
	}
	return rc;
}

static inline __attribute__((always_inline)) int post(struct comm_path *path,
						      const struct ib_write *write)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	ib_write_fill(write, &wr, &sge);
	return post_chain(path, &wr, 1);
}

static uint32_t inline_flag(const struct comm_path *path, uint32_t len_bytes)
{
	return len_bytes <= path->qp.inline_max_bytes ? IB_WRITE_INLINE : 0;
}

static int post_whole(struct comm_path *path, const struct repair_piece *piece,
		      const struct memory *memory)
{
	struct ib_write write = {.wr_id = piece->wr_id,
				 .local_addr = piece->local_addr,
				 .remote_addr = piece->remote_addr,
				 .rkey = piece->rkey,
				 .len_bytes = piece->len_bytes,
				 .imm = piece->imm,
				 .flags = IB_WRITE_WITH_IMM};
	bool is_copied = piece->len_bytes == 0;
	int rc;

	if (piece->len_bytes > 0) {
		write.lkey = ib_mr_lkey(memory->mr, path->rail);
		/* Inline data is read by the CPU, so not from GPU memory. */
		if (memory->type == NCCL_PTR_HOST && inline_flag(path, piece->len_bytes)) {
			write.flags |= IB_WRITE_INLINE;
			is_copied = true;
		}
	} else {
		/* Nothing is placed: any valid address of the peer will do. */
		write.remote_addr = path->comm->peer_record_addr;
		write.rkey = path->record_rkey;
	}
	if (!is_copied || piece->needs_signal) {
		write.flags |= IB_WRITE_SIGNALED;
	}
	rc = post(path, &write);
	return rc == 0 && is_copied ? REPAIR_COPIED : rc;
}

static int op_post_piece(void *ctx, const struct repair_piece *piece)
{
	struct comm *comm = ctx;
	struct comm_path *path = &comm->paths[piece->path];
	const struct memory *memory = piece->cookie;
	struct wire_record *record = &comm->rings.records[piece->record_idx];
	struct ibv_send_wr wrs[2];
	struct ibv_sge sges[2];

	if (comm->is_quiet) {
		return -EAGAIN; /* the memory it would be sent from may be gone */
	}
	if (piece->whole) {
		return post_whole(path, piece, memory);
	}
	memcpy(record, &piece->record, WIRE_RECORD_BYTES);
	ib_write_fill(&(struct ib_write){.wr_id = piece->part_wr_id,
					 .local_addr = piece->local_addr,
					 .remote_addr = piece->remote_addr,
					 .lkey = ib_mr_lkey(memory->mr, path->rail),
					 .rkey = piece->rkey,
					 .len_bytes = piece->len_bytes},
		      &wrs[0], &sges[0]);
	ib_write_fill(
		&(struct ib_write){.wr_id = piece->wr_id,
				   .local_addr = (uint64_t)(uintptr_t)record,
				   .remote_addr = comm->peer_record_addr +
						  piece->record_idx * sizeof(struct wire_record),
				   .lkey = ib_mr_lkey(comm->rings.mr, path->rail),
				   .rkey = path->record_rkey,
				   .len_bytes = WIRE_RECORD_BYTES,
				   .imm = piece->imm,
				   .flags = IB_WRITE_SIGNALED | IB_WRITE_WITH_IMM |
					    inline_flag(path, WIRE_RECORD_BYTES)},
		&wrs[1], &sges[1]);
	wrs[0].next = &wrs[1];
	return post_chain(path, wrs, 2);
}

static int op_post_cts(void *ctx, unsigned int p, unsigned int slot, uint64_t wr_id, bool signalled)
{
	struct comm *comm = ctx;
	struct comm_path *path = &comm->paths[p];
	uint32_t len =
		comm->path_count > 8 ? sizeof(struct wire_cts) : sizeof(struct wire_cts_line0);
	struct ib_write write = {
		.wr_id = wr_id,
		.local_addr = (uint64_t)(uintptr_t)&comm->rings.cts[slot],
		.remote_addr = comm->peer_cts_addr + slot * sizeof(struct wire_cts),
		.lkey = ib_mr_lkey(comm->rings.mr, path->rail),
		.rkey = path->cts_rkey,
		.len_bytes = len,
		.flags = (signalled ? IB_WRITE_SIGNALED : 0u) | inline_flag(path, len),
	};

	return post(path, &write);
}

static int op_post_ack(void *ctx, unsigned int p, uint64_t next_seq, uint64_t wr_id, bool signalled)
{
	struct comm *comm = ctx;
	struct comm_path *path = &comm->paths[p];
	struct wire_ack *ack = &comm->rings.acks[p];
	struct ib_write write = {
		.wr_id = wr_id,
		.local_addr = (uint64_t)(uintptr_t)ack,
		.remote_addr = comm->peer_ack_addr + p * sizeof(struct wire_ack),
		.lkey = ib_mr_lkey(comm->rings.mr, path->rail),
		.rkey = path->ack_rkey,
		.len_bytes = sizeof(struct wire_ack),
		.flags = (signalled ? IB_WRITE_SIGNALED : 0u) |
			 inline_flag(path, sizeof(struct wire_ack)),
	};

	/* Not inline: an earlier write may pick up the larger value, which is true as well. */
	__atomic_store_n(&ack->next_seq, next_seq, __ATOMIC_RELEASE);
	return post(path, &write);
}

static bool op_ack_later(void *ctx)
{
	return ack_list_add(ctx);
}

static int op_post_marker(void *ctx, unsigned int p, uint64_t wr_id)
{
	struct comm *comm = ctx;
	struct comm_path *path = &comm->paths[p];
	bool sends = comm->role == COMM_SENDER;
	/* Nothing is placed: any valid address of the peer will do. */
	struct ib_write write = {.wr_id = wr_id,
				 .remote_addr =
					 sends ? comm->peer_record_addr : comm->peer_cts_addr,
				 .rkey = sends ? path->record_rkey : path->cts_rkey,
				 .flags = IB_WRITE_SIGNALED};

	return post(path, &write);
}

static int op_post_probe(void *ctx, unsigned int p, uint64_t wr_id)
{
	struct comm *comm = ctx;
	struct comm_path *path = &comm->paths[p];
	struct ib_write write = {
		.wr_id = wr_id,
		.local_addr = (uint64_t)(uintptr_t)comm->rings.probes_out +
			      (uint64_t)p * WIRE_PROBE_BYTES,
		.remote_addr = comm->peer_probe_addr + (uint64_t)p * WIRE_PROBE_BYTES,
		.lkey = ib_mr_lkey(comm->rings.mr, path->rail),
		.rkey = path->probe_rkey,
		.len_bytes = WIRE_PROBE_BYTES,
		.flags = IB_WRITE_SIGNALED,
	};

	return post(path, &write);
}

static int op_post_recvs(void *ctx, unsigned int p, uint64_t wr_id, unsigned int count,
			 unsigned int *posted)
{
	struct comm *comm = ctx;
	int rc = ib_qp_post_recvs(&comm->paths[p].qp, wr_id, count, posted);

	if (rc) {
		repair_end_at(&comm->end, clock_mono_ns());
	}
	return rc;
}

/*
 * A dying HCA refuses verbs calls, and the event that reports it fatal is read by the loop thread
 * at about the same time. This thread serves only this rail, so it can look for a while.
 */
static bool is_device_fatal(const struct ib_device *device)
{
	static const struct timespec pause = {.tv_nsec = NS_PER_MS};

	for (unsigned int i = 0; i < FATAL_WAIT_MS; i++) {
		if (atomic_load_explicit(&device->is_fatal, memory_order_acquire)) {
			return true;
		}
		nanosleep(&pause, NULL);
	}
	return false;
}

/* Rail's worker. The data path does not post on a fencing path, so modify_qp needs no lock. */
static void fence_job(void *arg)
{
	struct comm_path *path = arg;
	struct comm *comm = path->comm;
	enum fence_outcome outcome = FENCE_ERRORED;
	uint64_t now_ns;

	if (ib_qp_fence(&path->qp)) {
		outcome = is_device_fatal(path->qp.device) ? FENCE_DEAD : FENCE_REFUSED;
	}
	lock_take(&comm->lock);
	now_ns = clock_mono_ns();
	if (outcome == FENCE_DEAD) {
		comm_poll_path(comm, path->idx, now_ns); /* what its CQ still holds counts */
	}
	repair_fence_errored(&comm->end, path->idx, outcome, now_ns);
	comm_progress(comm, now_ns);
	comm_unlock(comm);
	comm_put(comm);
}

static void cut_job(void *arg)
{
	struct comm_path *path = arg;
	struct comm *comm = path->comm;
	int rc;

	lock_take(&comm->lock);
	comm_poll_path(comm, path->idx, clock_mono_ns());
	comm_unlock(comm);
	rc = ib_qp_reset(&path->qp);
	if (rc && is_device_fatal(path->qp.device)) {
		rc = 0;
	}
	lock_take(&comm->lock);
	repair_fence_cut(&comm->end, path->idx, rc, clock_mono_ns());
	comm_progress(comm, clock_mono_ns());
	comm_unlock(comm);
	comm_put(comm);
}

static void op_fence(void *ctx, unsigned int p)
{
	struct comm *comm = ctx;
	struct comm_path *path = &comm->paths[p];

	comm_hold(comm);
	path->fence_job = (struct worker_job){.fn = fence_job, .arg = path};
	worker_post(runtime_instance()->rail_workers[path->rail->idx], &path->fence_job);
	runtime_repair_begins();
}

static void op_cut(void *ctx, unsigned int p)
{
	struct comm *comm = ctx;
	struct comm_path *path = &comm->paths[p];

	comm_hold(comm);
	path->cut_job = (struct worker_job){.fn = cut_job, .arg = path};
	worker_post(runtime_instance()->rail_workers[path->rail->idx], &path->cut_job);
}

static int op_send(void *ctx, const struct frame *frame)
{
	struct frame copy = *frame;

	return comm_send(ctx, &copy);
}

static int op_ask(void *ctx)
{
	struct comm *comm = ctx;
	struct frame frame = {.type = FRAME_PING};

	frame.ping.cookie = comm->id;
	return oob_link_send(comm->link, &frame);
}

static void op_report(void *ctx, const struct repair_report *report)
{
	comm_report(ctx, report);
}

const struct repair_ops comm_repair_ops = {
	.post_piece = op_post_piece,
	.post_cts = op_post_cts,
	.post_ack = op_post_ack,
	.ack_later = op_ack_later,
	.post_marker = op_post_marker,
	.post_recvs = op_post_recvs,
	.post_probe = op_post_probe,
	.rebuild = rejoin_op_rebuild,
	.join = rejoin_op_join,
	.key = rejoin_op_key,
	.fence = op_fence,
	.cut = op_cut,
	.send = op_send,
	.ask = op_ask,
	.report = op_report,
};
