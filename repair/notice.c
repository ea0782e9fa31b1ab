/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/notice.h"

#include "include/log.h"

#include <assert.h>
#include <errno.h>

static_assert(NOTICE_COUNT <= 8, "owed has a bit for each");

static bool fill_fence(const struct repair_end *end, unsigned int p, struct frame *frame)
{
	const struct repair_path *path = &end->paths[p];

	frame->fence = (struct frame_fence){
		.path = (uint8_t)p, .cause = (uint8_t)path->cause, .epoch = path->epoch};
	return path->state == PATH_FENCING;
}

static bool fill_fenced(const struct repair_end *end, unsigned int p, struct frame *frame)
{
	const struct repair_path *path = &end->paths[p];

	frame->fenced = (struct frame_fenced){.path = (uint8_t)p,
					      .cause = (uint8_t)path->fenced_cause,
					      .epoch = path->fenced_epoch};
	end->role->read_out(end, &frame->fenced);
	return true;
}

static bool fill_rejoin(const struct repair_end *end, unsigned int p, struct frame *frame)
{
	const struct repair_path *path = &end->paths[p];

	frame->rejoin = (struct frame_rejoin){
		.path = (uint8_t)p, .epoch = path->epoch, .side = path->rejoin.own};
	return path->state == PATH_DOWN && path->rejoin.is_offered;
}

static bool fill_rejoined(const struct repair_end *end, unsigned int p, struct frame *frame)
{
	const struct repair_path *path = &end->paths[p];
	const struct rejoin_state *rejoin = &path->rejoin;

	frame->rejoin = (struct frame_rejoin){
		.path = (uint8_t)p, .epoch = path->epoch, .err = rejoin->answer_err};
	if (rejoin->answer_err) {
		frame->rejoin.side.rail = rejoin->peer.rail; /* anything well formed */
	} else {
		frame->rejoin.side = rejoin->own;
		end->role->tell_keys(end, p, &frame->rejoin);
	}
	return rejoin->answer_epoch == path->epoch &&
	       (rejoin->answer_err || path->state == PATH_PROBING);
}

static bool fill_probed(const struct repair_end *end, unsigned int p, struct frame *frame)
{
	const struct repair_path *path = &end->paths[p];

	frame->probed = (struct frame_probed){.path = (uint8_t)p, .epoch = path->epoch};
	return path->rejoin.is_probed && (path->state == PATH_PROBING || path->state == PATH_UP);
}

static bool fill_hint(const struct repair_end *end, unsigned int p, struct frame *frame)
{
	const struct repair_path *path = &end->paths[p];

	frame->probed = (struct frame_probed){.path = (uint8_t)p, .epoch = path->epoch};
	return path->state == PATH_DOWN;
}

/* False: there is no point in it any more. */
static const struct {
	enum frame_type type;
	bool (*fill)(const struct repair_end *end, unsigned int path, struct frame *frame);
} kinds[NOTICE_COUNT] = {
	[NOTICE_FENCE] = {FRAME_FENCE, fill_fence},
	[NOTICE_FENCED] = {FRAME_FENCED, fill_fenced},
	[NOTICE_REJOIN] = {FRAME_REJOIN, fill_rejoin},
	[NOTICE_REJOINED] = {FRAME_REJOINED, fill_rejoined},
	[NOTICE_PROBED] = {FRAME_PROBED, fill_probed},
	[NOTICE_HINT] = {FRAME_REJOIN_HINT, fill_hint},
};

void notice_tick(struct repair_end *end, unsigned int p)
{
	struct repair_path *path = &end->paths[p];

	ASSERT(p < end->path_count);
	for (unsigned int what = 0; what < NOTICE_COUNT; what++) {
		struct frame frame = {.type = kinds[what].type};
		int rc;

		if (!(path->owed >> what & 1)) {
			continue;
		}
		if (kinds[what].fill(end, p, &frame)) {
			rc = end->ops->send(end->ctx, &frame);
			if (rc == -ENOBUFS || rc == -ENOMEM) {
				return; /* nothing newer may overtake it */
			}
		}
		path->owed &= (uint8_t) ~(1u << what);
	}
}

void notice_send(struct repair_end *end, unsigned int p, enum notice what)
{
	ASSERT(p < end->path_count && what < NOTICE_COUNT);
	end->paths[p].owed |= (uint8_t)(1u << what);
	notice_tick(end, p);
}
