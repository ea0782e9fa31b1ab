/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/fence.h"

#include "include/clock.h"
#include "include/log.h"
#include "repair/notice.h"
#include "repair/rejoin.h"

static bool is_fencing(const struct repair_path *path)
{
	return path->state == PATH_FENCING || path->state == PATH_FENCING_HEARD;
}

static void begin(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];
	path->fault_ns = end->now_ns;
	path->fence_ns = end->now_ns;
	path->errored = false;
	path->cutting = false;
	end->ops->fence(end->ctx, p);
	if (end->peer_closed) {
		return; /* only to get the work back: nobody listens, and it is no incident */
	}
	notice_send(end, p, NOTICE_FENCE);
	if (!path->rejoin.was_up) {
		return; /* it never came back: told once, when the attempt is over */
	}
	end->ops->report(end->ctx, &(struct repair_report){.kind = REPAIR_REPORT_FAULT,
							   .path = p,
							   .cause = path->cause,
							   .cause_is_peer = path->cause_is_peer,
							   .epoch = path->epoch,
							   .up_count = repair_end_up_count(end)});
}

static void announce(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];

	if (end->peer_closed) {
		return;
	}
	/* The next epoch begins once the peer has had the last FENCED. */
	if (path->owed >> NOTICE_FENCED & 1) {
		repair_end_fail(end, CAUSE_PROTOCOL, p, "the peer went on before a fence ended");
		return;
	}
	path->fenced_epoch = path->epoch;
	path->fenced_cause = path->cause;
	notice_send(end, p, NOTICE_FENCED);
}

static void reconcile(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];
	struct repair_report report = {.kind = path->rejoin.was_up ? REPAIR_REPORT_DOWN
								   : REPAIR_REPORT_STILL_DOWN,
				       .path = p,
				       .cause = path->cause,
				       .cause_is_peer = path->cause_is_peer,
				       .epoch = path->epoch};

	end->role->reconcile(end, p, &path->peer_book, &report);
	/* Raised after the hand-over and before any frame or post can name the new epoch. */
	path->epoch++;
	path_check(path);
	end->role->pump(end);
	report.took_ns = end->now_ns - path->fault_ns;
	if (path->rejoin.was_up) {
		path->down_ns = path->fault_ns;
		path->down_cause = path->cause;
	}
	report.up_count = repair_end_up_count(end);
	end->ops->report(end->ctx, &report);
	path->cause = CAUSE_NONE;
	path->cause_is_peer = false;
	rejoin_went_down(end, p);
}

static void resume(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];

	rejoin_went_up(end, p);
	if (!end->role->starved(end)) {
		end->hold.since_ns = 0; /* also when it is gone again before the next tick */
	}
	if (path->down_ns) {
		end->ops->report(end->ctx,
				 &(struct repair_report){.kind = REPAIR_REPORT_BACK,
							 .path = p,
							 .epoch = path->epoch,
							 .took_ns = end->now_ns - path->down_ns,
							 .up_count = repair_end_up_count(end)});
	}
	end->role->pump(end);
}

void fence_event(struct repair_end *end, unsigned int p, enum path_event event,
		 const struct frame_fenced *peer_book)
{
	int actions = path_apply(&end->paths[p], event);

	if (actions < 0) {
		repair_end_fail(end, CAUSE_PROTOCOL, p, "illegal path event");
		return;
	}
	if (actions & PATH_ACT_BEGIN) {
		begin(end, p);
	}
	if (actions & PATH_ACT_KEEP) {
		ASSERT(peer_book != NULL);
		end->paths[p].peer_book = *peer_book;
	}
	if (actions & PATH_ACT_ANNOUNCE) {
		announce(end, p);
	}
	if (actions & PATH_ACT_RECONCILE) {
		reconcile(end, p);
	}
	if (actions & PATH_ACT_PROBE) {
		rejoin_begin_probe(end, p);
	}
	if (actions & PATH_ACT_RESUME) {
		resume(end, p);
	}
	path_check(&end->paths[p]);
}

void fence_check_reaped(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];

	if (is_fencing(path) && path->errored && wrq_out(&path->sq) == 0 && path->recvs_out == 0) {
		ASSERT(path->inflight_bytes == 0);
		fence_event(end, p, PATH_EV_SELF_FENCED, NULL);
	}
}

/* Nothing of this path comes back by itself any more. */
static void drop_rest(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];

	while (wrq_out(&path->sq) > 0) {
		struct wrq_item item = wrq_pop(&path->sq);

		share_retire(path, item.len_bytes, end->limits.large_bytes);
		end->role->retire(end, p, item);
	}
	path->recvs_out = 0;
	path->errored = true;
	fence_check_reaped(end, p);
}

void repair_fence_errored(struct repair_end *end, unsigned int p, enum fence_outcome outcome,
			  uint64_t now_ns)
{
	struct repair_path *path = &end->paths[p];
	struct wrq_item marker = {.kind = WRQ_MARKER, .signalled = true};

	ASSERT(p < end->path_count);
	repair_end_at(end, now_ns);
	if (end->failed || !is_fencing(path) || path->errored) {
		return;
	}
	if (outcome == FENCE_REFUSED) {
		repair_end_fail(end, CAUSE_UNFENCED, p, "the QP could not be moved to ERR");
		return;
	}
	path->errored_ns = now_ns;
	if (outcome == FENCE_DEAD) {
		drop_rest(end, p);
		return;
	}
	path->errored = true;
	/*
	 * Unsignalled items that succeeded leave no completion. The marker is flushed behind all of
	 * them, so its completion says that the send queue is empty. If it can't be posted, the
	 * bound on reaping ends the wait.
	 */
	if (wrq_out(&path->sq) > 0 &&
	    end->ops->post_marker(end->ctx, p, repair_end_wr_id(end, p, WR_KIND_ITEM)) == 0) {
		wrq_push(&path->sq, marker);
	}
	fence_check_reaped(end, p);
}

void repair_fence_cut(struct repair_end *end, unsigned int p, int err, uint64_t now_ns)
{
	struct repair_path *path = &end->paths[p];

	ASSERT(p < end->path_count);
	repair_end_at(end, now_ns);
	if (end->failed || !is_fencing(path) || !path->cutting) {
		return;
	}
	if (err) {
		repair_end_fail(end, CAUSE_UNFENCED, p,
				"the QP neither flushed nor could be reset");
		return;
	}
	drop_rest(end, p);
}

/* The HCA has taken the verbs call and does not come back: nothing on this path can be replayed. */
static bool is_stuck(const struct repair_end *end, const struct repair_path *path)
{
	uint64_t since_ns = path->cutting ? path->errored_ns : path->fence_ns;

	return is_fencing(path) && (!path->errored || path->cutting) && end->limits.fence_ms > 0 &&
	       end->now_ns - since_ns >= end->limits.fence_ms * NS_PER_MS;
}

void fence_tick(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];

	if (is_stuck(end, path)) {
		repair_end_fail(end, CAUSE_UNFENCED, p, "the HCA does not answer");
		return;
	}
	if (is_fencing(path) && path->errored && !path->cutting &&
	    end->now_ns - path->errored_ns >= end->limits.reap_ms * NS_PER_MS) {
		path->cutting = true;
		end->ops->cut(end->ctx, p);
	}
}
