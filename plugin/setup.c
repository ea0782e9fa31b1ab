/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/setup.h"

#include "include/clock.h"
#include "include/log.h"
#include "plugin/listen.h"
#include "plugin/pair.h"
#include "plugin/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool setup_give_up(struct comm *comm, int err, const char *why)
{
	bool changed;

	lock_take(&comm->lock);
	changed = comm_fail_setup(comm, err, why);
	comm_unlock(comm);
	if (changed && comm->role == COMM_RECEIVER) {
		/* NCCL never saw it: nobody else will let go of it. */
		comm_hide(comm);
		comm_put(comm);
	}
	return changed;
}

/* A failure seen here: the peer is told. Called with a job's reference held. */
static void fail(struct comm *comm, int err, const char *why)
{
	struct frame frame = {.type = FRAME_REFUSED};

	if (setup_give_up(comm, err, why) && comm->peer_comm) { /* set before this job, if at all */
		frame.refused.err = err;
		snprintf(frame.refused.reason, sizeof(frame.refused.reason), "%s", why);
		comm_send(comm, &frame);
	}
}

static void run_job(struct comm *comm, void (*fn)(void *arg))
{
	comm->setup_job = (struct worker_job){.fn = fn, .arg = comm_hold(comm)};
	worker_post(runtime_instance()->setup, &comm->setup_job);
}

static struct ib_rail *rail_of(const struct comm *comm, unsigned int local)
{
	return &runtime_instance()->rails->rails[comm->rail_idx[local]];
}

static void describe_area(const struct comm *comm, const void *start, size_t len_bytes,
			  struct frame_area *out)
{
	out->addr = (uint64_t)(uintptr_t)start;
	out->len_bytes = (uint32_t)len_bytes;
	for (unsigned int i = 0; i < comm->rail_count; i++) {
		out->rkeys[i] = ib_mr_rkey(comm->rings.mr, rail_of(comm, i));
	}
}

static void describe_probes(const struct comm *comm, struct frame_area *out)
{
	describe_area(comm, comm->rings.probes_in, (size_t)comm->rail_count * WIRE_PROBE_BYTES,
		      out);
}

static void describe_rails(const struct comm *comm, char dev[RAIL_NAME_MAX], uint32_t *count,
			   struct rail_desc *rails)
{
	snprintf(dev, RAIL_NAME_MAX, "%s", runtime_instance()->rails->rails[comm->dev].name);
	*count = comm->rail_count;
	memcpy(rails, comm->rail_descs, sizeof(comm->rail_descs));
}

/* A rail that was down may be up by now, at an address that it did not have before. */
static void look_again(struct comm *comm, unsigned int i)
{
	struct runtime *rt = runtime_instance();
	struct ib_rail *rail = rail_of(comm, i);
	struct rail_desc *desc = &comm->rail_descs[i];
	uint8_t dist = desc->dist;
	bool moved;

	if (desc->is_down && ib_rail_refresh(rail, &rt->cfg, &moved) == 0) {
		ib_rail_describe(rail, desc);
		desc->dist = dist;
		desc->is_down = 0;
	}
}

/* Of a device with which all memory is registered, else 0. */
static uint32_t device_id(const struct ib_rail *rail)
{
	struct ib_device *device = ib_rail_device_get(rail);
	uint32_t id = ib_device_is_used(device) ? device->id : 0;

	ib_device_put(device);
	return id;
}

/*
 * A rail on which the rings could not be registered is as good as down: its device may fail at this
 * very moment, and they are when it is opened again; until then nobody is told to rejoin there
 * (plugin/rejoin_ops.c). One without a thread can't be part of this comm: a fence could not be
 * queued.
 */
static bool is_usable(struct comm *comm, unsigned int i)
{
	const struct ib_rail *rail = rail_of(comm, i);

	look_again(comm, i);
	if (!ib_mr_is_on(comm->rings.mr, rail)) {
		comm->rail_descs[i].is_down = 1;
	}
	return worker_start(runtime_instance()->rail_workers[rail->idx]) == 0;
}

static int get_rings(struct comm *comm)
{
	unsigned int kept = 0;
	int rc = comm_rings_create(comm);

	if (rc) {
		return rc;
	}
	for (unsigned int i = 0; i < comm->rail_count; i++) {
		if (is_usable(comm, i)) {
			comm->rail_descs[kept] = comm->rail_descs[i];
			comm->rail_idx[kept] = comm->rail_idx[i];
			comm->rail_device_ids[kept] = device_id(rail_of(comm, kept));
			kept++;
		}
	}
	comm->rail_count = kept;
	return kept ? 0 : -ENODEV;
}

static void open_job(void *arg)
{
	struct comm *comm = arg;
	struct frame frame =
		comm->setup_frame; /* the answer may take its place while this leaves */
	struct frame_open *open = &frame.open;
	int rc = get_rings(comm);

	if (rc) {
		fail(comm, rc, "no rail could register memory");
		goto out;
	}
	frame.type = FRAME_OPEN;
	open->src_comm = comm->id;
	open->window_msgs = WINDOW_MSGS;
	open->pieces_max = PIECES_MAX;
	describe_rails(comm, open->dev, &open->rail_count, open->rails);
	describe_area(comm, comm->rings.cts, sizeof(struct wire_cts) * WINDOW_MSGS, &open->cts);
	describe_area(comm, comm->rings.acks, sizeof(struct wire_ack) * PATHS_MAX, &open->acks);
	describe_probes(comm, &open->probes);
	lock_take(&comm->lock);
	comm->expect = FRAME_OPENED;
	comm_unlock(comm);
	rc = comm_send(comm, &frame);
	if (rc) {
		/* The link may have ended before this comm was in the table. */
		setup_give_up(comm, rc, "its process cannot be reached");
	}
out:
	comm_put(comm);
}

void setup_begin_open(struct comm *comm, const uint8_t token[16])
{
	memset(&comm->setup_frame, 0, sizeof(comm->setup_frame));
	memcpy(comm->setup_frame.open.token, token, sizeof(comm->setup_frame.open.token));
	run_job(comm, open_job);
}

int comm_create_qp(const struct comm *comm, struct ib_rail *rail, struct ib_qp *out)
{
	struct ib_qp_opts opts = {.send_wrs_max = WRQ_WRS,
				  .recv_wrs_max = 1,
				  .inline_bytes = sizeof(struct wire_cts)};

	if (comm->role == COMM_RECEIVER) {
		opts.recv_wrs_max = RECV_WRS + 64;
	}
	return ib_qp_create(rail, &opts, out);
}

/* The next path, with a QP if both rails are up. Without one it rejoins later. */
static struct comm_path *create_path(struct comm *comm, unsigned int local,
				     const struct rail_desc *peer, bool wants_qp)
{
	struct runtime *rt = runtime_instance();
	unsigned int rail_idx = comm->rail_idx[local];
	struct comm_path *path = &comm->paths[comm->path_count];
	int rc = 0;

	*path = (struct comm_path){.comm = comm,
				   .idx = comm->path_count,
				   .rail = &rt->rails->rails[rail_idx],
				   .peer_rail = *peer,
				   .traffic_class = comm->traffic_class};
	comm->path_count++;
	comm->path_rails |= 1u << rail_idx;
	if (wants_qp) {
		rc = comm_create_qp(comm, path->rail, &path->qp);
	}
	if (path->qp.qp && path->qp.device->id != comm->rail_device_ids[local]) {
		ib_qp_destroy(&path->qp);
		rc = -EAGAIN; /* opened again meanwhile: the peer was told the keys of before */
	}
	if (rc) {
		LOG_WARN("%s: no queue pair for a path to %s %s: %s", path->rail->label,
			 comm_peer_name(comm), peer->name, strerror(-rc));
		path->qp = (struct ib_qp){0};
	}
	return path;
}

/* Acceptor: pair the rails, a QP for each pair that is up; a pair that gets none rejoins later. */
static void create_pairs(struct comm *comm, const struct frame_open *open, struct frame_opened *out)
{
	struct rail_pair pairs[PATHS_MAX];
	unsigned int count;

	count = rail_pair_all(comm->rail_descs, comm->rail_count, open->rails, open->rail_count,
			      pairs, (unsigned int)runtime_instance()->cfg.paths_max_count);
	for (unsigned int i = 0; i < count; i++) {
		struct comm_path *path = create_path(
			comm, pairs[i].local, &open->rails[pairs[i].remote], !pairs[i].is_down);

		path->cts_rkey = open->cts.rkeys[pairs[i].remote];
		path->ack_rkey = open->acks.rkeys[pairs[i].remote];
		path->probe_rkey = open->probes.rkeys[pairs[i].remote];
		out->paths[i] = (struct frame_path){
			.local_rail = pairs[i].local,
			.remote_rail = pairs[i].remote,
			.qp = {.qpn = path->qp.qpn, .psn = path->qp.psn},
		};
	}
	out->path_count = comm->path_count;
}

static const char *check_open(const struct frame_open *open)
{
	if (open->window_msgs != WINDOW_MSGS || open->pieces_max != PIECES_MAX) {
		return "the peer was built with other limits";
	}
	if (open->probes.len_bytes < open->rail_count * WIRE_PROBE_BYTES) {
		return "the peer offered a too small area for probes";
	}
	if (open->rail_count == 0 || open->cts.len_bytes < sizeof(struct wire_cts) * WINDOW_MSGS ||
	    open->acks.len_bytes < sizeof(struct wire_ack) * PATHS_MAX) {
		return "the peer offered no rails or too small rings";
	}
	return NULL;
}

static void accept_job(void *arg)
{
	struct comm *comm = arg;
	struct frame_open *open = &comm->setup_frame.open;
	struct frame frame = {.type = FRAME_OPENED};
	const char *why = check_open(open);
	int rc = why ? -EPROTO : get_rings(comm);

	if (rc) {
		fail(comm, rc, why ? why : "no rail could register memory");
		goto out;
	}
	comm->peer_cts_addr = open->cts.addr;
	comm->peer_ack_addr = open->acks.addr;
	comm->peer_probe_addr = open->probes.addr;
	snprintf(comm->peer_dev, sizeof(comm->peer_dev), "%s", open->dev);
	create_pairs(comm, open, &frame.opened);
	if (comm->path_count == 0) {
		fail(comm, -ENODEV, "no rail of one end can be paired with a rail of the other");
		goto out;
	}
	frame.opened.src_comm = comm->id;
	describe_rails(comm, frame.opened.dev, &frame.opened.rail_count, frame.opened.rails);
	describe_area(comm, comm->rings.records, sizeof(struct wire_record) * WIRE_RECORDS,
		      &frame.opened.records);
	describe_probes(comm, &frame.opened.probes);
	lock_take(&comm->lock);
	comm->expect = FRAME_PATHS;
	comm_unlock(comm);
	comm_send(comm, &frame);
out:
	comm_put(comm);
}

void setup_begin_accept(struct comm *comm, const struct frame *frame)
{
	comm->setup_frame = *frame;
	comm->peer_comm = frame->open.src_comm;
	comm_show(comm);
	run_job(comm, accept_job);
}

static void drop_path(struct comm *comm, unsigned int p, const char *what, int rc)
{
	struct comm_path *path = &comm->paths[p];

	if (rc) {
		LOG_WARN("%s: no path to %s %s for now: %s: %s", path->rail->label,
			 comm_peer_name(comm), path->peer_rail.name, what, strerror(-rc));
	}
	ib_qp_destroy(&path->qp);
	path->qp = (struct ib_qp){0};
}

/* Connector: make the paths the acceptor chose; one that can't be connected rejoins later. */
static void connect_pairs(struct comm *comm, const struct frame_opened *opened,
			  struct frame_paths *out)
{
	struct runtime *rt = runtime_instance();

	for (unsigned int i = 0; i < opened->path_count; i++) {
		const struct frame_path *theirs = &opened->paths[i];
		struct comm_path *path =
			create_path(comm, theirs->remote_rail, &opened->rails[theirs->local_rail],
				    theirs->qp.qpn != 0);

		path->record_rkey = opened->records.rkeys[theirs->local_rail];
		path->probe_rkey = opened->probes.rkeys[theirs->local_rail];
		if (path->qp.qp) {
			int rc = ib_qp_connect(&path->qp, &path->peer_rail, &theirs->qp, &rt->cfg,
					       comm->traffic_class);
			if (rc) {
				drop_path(comm, i, "cannot connect", rc);
			}
		}
		out->qps[i] = (struct qp_addr){.qpn = path->qp.qpn, .psn = path->qp.psn};
	}
	out->path_count = opened->path_count;
}

static const char *check_opened(const struct comm *comm, const struct frame_opened *opened)
{
	if (opened->probes.len_bytes < opened->path_count * WIRE_PROBE_BYTES) {
		return "the peer offered a too small area for probes";
	}
	/* Each rail is part of one path at most, and probes have room for so many. */
	if (opened->path_count > comm->rail_count) {
		return "the peer named more paths than there are rails";
	}
	if (opened->path_count == 0 ||
	    opened->records.len_bytes < sizeof(struct wire_record) * WIRE_RECORDS) {
		return "the peer offered no paths or a too small ring";
	}
	for (unsigned int i = 0; i < opened->path_count; i++) {
		if (opened->paths[i].remote_rail >= comm->rail_count ||
		    opened->paths[i].local_rail >= opened->rail_count) {
			return "the peer named a rail that is not there";
		}
	}
	return NULL;
}

static void opened_job(void *arg)
{
	struct comm *comm = arg;
	struct frame_opened *opened = &comm->setup_frame.opened;
	struct frame frame = {.type = FRAME_PATHS};
	const char *why = check_opened(comm, opened);

	if (why) {
		fail(comm, -EPROTO, why);
		goto out;
	}
	comm->peer_record_addr = opened->records.addr;
	comm->peer_probe_addr = opened->probes.addr;
	snprintf(comm->peer_dev, sizeof(comm->peer_dev), "%s", opened->dev);
	connect_pairs(comm, opened, &frame.paths);
	lock_take(&comm->lock);
	comm->expect = FRAME_READY;
	comm_unlock(comm);
	comm_send(comm, &frame);
out:
	comm_put(comm);
}

/* Also those that are not there yet: they are in front, and others take their place meanwhile. */
static unsigned int count_active(const struct comm *comm)
{
	unsigned int near = 0;

	for (unsigned int i = 0; i < comm->path_count; i++) {
		unsigned int local_dist = 0;

		for (unsigned int r = 0; r < comm->rail_count; r++) {
			if (comm->rail_idx[r] == comm->paths[i].rail->idx) {
				local_dist = comm->rail_descs[r].dist;
			}
		}
		near += local_dist == 0 && comm->paths[i].peer_rail.dist == 0;
	}
	return near ? near : 1;
}

static uint32_t path_weight(const struct comm_path *path)
{
	uint32_t own_mbps = atomic_load_explicit(&path->rail->speed_mbps, memory_order_relaxed);
	uint32_t mbps =
		own_mbps < path->peer_rail.speed_mbps ? own_mbps : path->peer_rail.speed_mbps;

	return mbps ? mbps : 1;
}

static void init_end(struct comm *comm)
{
	struct repair_limits limits;

	comm_repair_limits(comm, &limits);
	limits.salt = (uint32_t)comm->id;
	if (comm->role == COMM_SENDER) {
		repair_tx_init(&comm->tx, &comm_repair_ops, comm, &limits, comm->rings.cts,
			       comm->rings.acks);
	} else {
		repair_rx_init(&comm->rx, &comm_repair_ops, comm, &limits, comm->rings.cts,
			       comm->rings.records);
	}
	comm->end.path_count = comm->path_count;
	comm->end.probes_in = comm->rings.probes_in;
	comm->end.probes_out = comm->rings.probes_out;
	/* With one path there is nothing to choose. */
	for (unsigned int i = 0; comm->path_count > 1 && i < comm->path_count; i++) {
		comm->end.paths[i].share = &runtime_instance()->shares[comm->paths[i].rail->idx];
	}
}

/* Its event came, or it was left (plugin/reopen.h), while this comm was not there to be told. */
static void check_device(struct comm *comm, unsigned int p, uint64_t now_ns)
{
	if (!ib_device_is_used(comm->paths[p].qp.device)) {
		repair_end_fault(&comm->end, p, CAUSE_DEVICE_FATAL, now_ns);
	}
}

/*
 * Both ends have QPs in RTS on the paths of the mask: they carry traffic from here on. False when
 * the handshake was given up meanwhile.
 */
static bool become_ready(struct comm *comm, uint32_t mask)
{
	uint64_t now_ns = clock_mono_ns();
	unsigned int up_count = 0;
	bool ready;

	lock_take(&comm->lock);
	ready = comm->state == COMM_OPENING;
	if (ready) {
		init_end(comm);
		comm->end.active_count = count_active(comm);
		for (unsigned int i = 0; i < comm->path_count; i++) {
			uint32_t weight = path_weight(&comm->paths[i]);

			if (mask >> i & 1) {
				repair_end_ready(&comm->end, i, weight, now_ns);
				check_device(comm, i, now_ns);
			} else {
				repair_end_absent(&comm->end, i, weight, now_ns);
			}
		}
		up_count = repair_end_up_count(&comm->end);
		comm->state = COMM_READY;
		for (const struct early_frame *early = comm->early; early; early = early->next) {
			comm_take_frame(comm, &early->frame, now_ns);
		}
	}
	comm_unlock(comm);
	if (ready) {
		LOG_INFO("%s %s dev %s: %u of %u paths, %u active, first %s to %s, peer's device "
			 "%s, %llu us",
			 comm->role == COMM_SENDER ? "connected to" : "accepted from",
			 comm_peer_name(comm), runtime_instance()->rails->rails[comm->dev].name,
			 up_count, comm->path_count, comm->end.active_count,
			 comm->paths[0].rail->label, comm->paths[0].peer_rail.name, comm->peer_dev,
			 (unsigned long long)(now_ns - comm->opened_ns) / 1000);
	}
	return ready;
}

static void paths_job(void *arg)
{
	struct comm *comm = arg;
	const struct frame_paths *paths = &comm->setup_frame.paths;
	struct runtime *rt = runtime_instance();
	struct frame frame = {.type = FRAME_READY};
	uint32_t mask = 0;

	for (unsigned int i = 0; i < comm->path_count; i++) {
		int rc;

		if (i >= paths->path_count || paths->qps[i].qpn == 0) {
			drop_path(comm, i, "not connected at the peer", 0);
			continue;
		}
		if (!comm->paths[i].qp.qp) {
			continue;
		}
		rc = ib_qp_connect(&comm->paths[i].qp, &comm->paths[i].peer_rail, &paths->qps[i],
				   &rt->cfg, comm->traffic_class);
		if (rc) {
			drop_path(comm, i, "cannot connect", rc);
			continue;
		}
		mask |= 1u << i;
	}
	if (!mask) {
		fail(comm, -EHOSTUNREACH, "no pair of rails could be connected");
		goto out;
	}
	/* Receives are posted before READY leaves, so the first write finds them. */
	if (become_ready(comm, mask)) {
		frame.ready.path_mask = mask;
		comm_send(comm, &frame);
		listener_push(comm->listener, comm);
	}
out:
	comm_put(comm);
}

static void ready_job(void *arg)
{
	struct comm *comm = arg;
	uint32_t mask = comm->setup_frame.ready.path_mask & ((1u << comm->path_count) - 1);

	for (unsigned int i = 0; i < comm->path_count; i++) {
		if (comm->paths[i].qp.qp && !(mask >> i & 1)) {
			drop_path(comm, i, "not connected at the peer", 0);
		}
		if (!comm->paths[i].qp.qp) {
			mask &= ~(1u << i);
		}
	}
	if (mask) {
		become_ready(comm, mask);
	} else {
		fail(comm, -EHOSTUNREACH, "no pair of rails could be connected");
	}
	comm_put(comm);
}

void setup_on_frame(struct comm *comm, const struct frame *frame)
{
	static void (*const jobs[FRAME_TYPE_COUNT])(void *arg) = {
		[FRAME_OPENED] = opened_job,
		[FRAME_PATHS] = paths_job,
		[FRAME_READY] = ready_job,
	};
	bool expected;

	if (frame->type == FRAME_CLOSE) {
		setup_give_up(comm, -ECONNABORTED, "the other end closed it");
		return;
	}
	if (frame->type == FRAME_REFUSED) {
		setup_give_up(comm, frame->refused.err < 0 ? frame->refused.err : -EPROTO,
			      frame->refused.reason);
		return;
	}
	lock_take(&comm->lock);
	expected = comm->state == COMM_OPENING && frame->type == comm->expect;
	if (expected) {
		comm->expect = FRAME_NONE;
		comm->setup_frame = *frame;
		if (frame->type == FRAME_OPENED) {
			comm->peer_comm = frame->opened.src_comm;
		}
	}
	comm_unlock(comm);
	if (expected) {
		run_job(comm, jobs[frame->type]);
	}
}
