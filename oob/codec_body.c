/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/codec.h"

enum {
	QPN_MAX = 0xffffff, /* queue pair and packet sequence numbers have 24 bits */
	MTU_ENUM_MIN = 1,   /* enum ibv_mtu: 256 ... */
	MTU_ENUM_MAX = 5    /* ... 4096 bytes */
};

static void body_hello(struct oob_bytes *bytes, struct frame_hello *hello)
{
	oob_bytes_u32(bytes, &hello->version);
	if (!bytes->put && hello->version != PROTO_VERSION) {
		bytes->pos = bytes->end;
		return;
	}
	oob_bytes_u32(bytes, &hello->features);
	oob_bytes_raw(bytes, hello->self.bytes, sizeof(hello->self.bytes));
	oob_bytes_raw(bytes, hello->peer.bytes, sizeof(hello->peer.bytes));
	oob_bytes_u64(bytes, &hello->link_id);
	oob_bytes_u32(bytes, &hello->attempt);
	oob_bytes_range8(bytes, &hello->kind, HELLO_NEW, HELLO_KIND_END - 1);
	oob_bytes_u16(bytes, &hello->listen_port);
	oob_bytes_u32(bytes, &hello->pid);
	oob_bytes_text(bytes, hello->host, sizeof(hello->host));
	oob_bytes_range(bytes, &hello->addr_count, 0, HELLO_ADDRS_MAX);
	for (uint32_t i = 0; !bytes->bad && i < hello->addr_count; i++) {
		oob_bytes_range8(bytes, &hello->addrs[i].family, 4, 6);
		if (hello->addrs[i].family == 5) {
			bytes->bad = true;
		}
		oob_bytes_raw(bytes, hello->addrs[i].bytes, sizeof(hello->addrs[i].bytes));
	}
}

static void body_rail(struct oob_bytes *bytes, struct rail_desc *rail)
{
	oob_bytes_text(bytes, rail->name, sizeof(rail->name));
	oob_bytes_u8(bytes, &rail->port);
	oob_bytes_range8(bytes, &rail->link_layer, RAIL_LINK_INFINIBAND, RAIL_LINK_ETHERNET);
	oob_bytes_range8(bytes, &rail->mtu, MTU_ENUM_MIN, MTU_ENUM_MAX);
	oob_bytes_u8(bytes, &rail->dist);
	oob_bytes_range8(bytes, &rail->is_down, 0, 1);
	oob_bytes_u16(bytes, &rail->lid);
	oob_bytes_u32(bytes, &rail->speed_mbps);
	/* in network order already: bytes, not a number */
	oob_bytes_raw(bytes, &rail->guid, sizeof(rail->guid));
	oob_bytes_raw(bytes, rail->gid, sizeof(rail->gid));
}

static void body_rails(struct oob_bytes *bytes, uint32_t *count, struct rail_desc *rails)
{
	oob_bytes_range(bytes, count, 0, PATHS_MAX);
	for (uint32_t i = 0; !bytes->bad && i < *count; i++) {
		body_rail(bytes, &rails[i]);
	}
}

static void body_area(struct oob_bytes *bytes, struct frame_area *area)
{
	oob_bytes_u64(bytes, &area->addr);
	oob_bytes_u32(bytes, &area->len_bytes);
	for (size_t i = 0; i < PATHS_MAX; i++) {
		oob_bytes_u32(bytes, &area->rkeys[i]);
	}
}

static void body_qp(struct oob_bytes *bytes, struct qp_addr *qp)
{
	oob_bytes_range(bytes, &qp->qpn, 0, QPN_MAX);
	oob_bytes_range(bytes, &qp->psn, 0, QPN_MAX);
}

static void body_open(struct oob_bytes *bytes, struct frame_open *open)
{
	oob_bytes_raw(bytes, open->token, sizeof(open->token));
	oob_bytes_u64(bytes, &open->src_comm);
	oob_bytes_u32(bytes, &open->window_msgs);
	oob_bytes_u32(bytes, &open->pieces_max);
	oob_bytes_text(bytes, open->dev, sizeof(open->dev));
	body_rails(bytes, &open->rail_count, open->rails);
	body_area(bytes, &open->cts);
	body_area(bytes, &open->acks);
	body_area(bytes, &open->probes);
}

static void body_opened(struct oob_bytes *bytes, struct frame_opened *opened)
{
	oob_bytes_u64(bytes, &opened->src_comm);
	oob_bytes_text(bytes, opened->dev, sizeof(opened->dev));
	body_rails(bytes, &opened->rail_count, opened->rails);
	oob_bytes_range(bytes, &opened->path_count, 0, PATHS_MAX);
	for (uint32_t i = 0; !bytes->bad && i < opened->path_count; i++) {
		struct frame_path *path = &opened->paths[i];

		oob_bytes_range8(bytes, &path->local_rail, 0, PATHS_MAX - 1);
		oob_bytes_range8(bytes, &path->remote_rail, 0, PATHS_MAX - 1);
		if (path->local_rail >= opened->rail_count) {
			bytes->bad = true;
		}
		body_qp(bytes, &path->qp);
	}
	body_area(bytes, &opened->records);
	body_area(bytes, &opened->probes);
}

static void body_paths(struct oob_bytes *bytes, struct frame_paths *paths)
{
	oob_bytes_range(bytes, &paths->path_count, 0, PATHS_MAX);
	for (uint32_t i = 0; !bytes->bad && i < paths->path_count; i++) {
		body_qp(bytes, &paths->qps[i]);
	}
}

static void body_refused(struct oob_bytes *bytes, struct frame_refused *refused)
{
	uint32_t err = (uint32_t)refused->err;

	oob_bytes_u32(bytes, &err);
	refused->err = (int32_t)err;
	if (refused->err >= 0) {
		bytes->bad = true;
	}
	oob_bytes_text(bytes, refused->reason, sizeof(refused->reason));
}

static void body_fenced(struct oob_bytes *bytes, struct frame_fenced *fenced)
{
	oob_bytes_range8(bytes, &fenced->path, 0, PATHS_MAX - 1);
	oob_bytes_range8(bytes, &fenced->cause, 0, CAUSE_COUNT - 1);
	oob_bytes_u32(bytes, &fenced->epoch);
	oob_bytes_u64(bytes, &fenced->next_seq);
	for (size_t i = 0; i < WINDOW_MSGS; i++) {
		oob_bytes_u32(bytes, &fenced->pieces[i]);
	}
}

static void body_fence(struct oob_bytes *bytes, struct frame_fence *fence)
{
	oob_bytes_range8(bytes, &fence->path, 0, PATHS_MAX - 1);
	oob_bytes_range8(bytes, &fence->cause, 0, CAUSE_COUNT - 1);
	oob_bytes_u32(bytes, &fence->epoch);
}

static void body_rejoin(struct oob_bytes *bytes, struct frame_rejoin *rejoin)
{
	uint32_t err = (uint32_t)rejoin->err;

	oob_bytes_range8(bytes, &rejoin->path, 0, PATHS_MAX - 1);
	oob_bytes_u32(bytes, &rejoin->epoch);
	oob_bytes_u32(bytes, &err);
	rejoin->err = (int32_t)err;
	if (rejoin->err > 0) {
		bytes->bad = true;
	}
	body_qp(bytes, &rejoin->side.qp);
	body_rail(bytes, &rejoin->side.rail);
	oob_bytes_u32(bytes, &rejoin->side.ring_rkey);
	oob_bytes_u64(bytes, &rejoin->keys_seq);
	oob_bytes_range(bytes, &rejoin->key_count, 0, WINDOW_MSGS);
	oob_bytes_u32(bytes, &rejoin->key_mask);
	for (uint32_t i = 0; !bytes->bad && i < rejoin->key_count; i++) {
		oob_bytes_u32(bytes, &rejoin->keys[i]);
	}
}

static void body_probed(struct oob_bytes *bytes, struct frame_probed *probed)
{
	oob_bytes_range8(bytes, &probed->path, 0, PATHS_MAX - 1);
	oob_bytes_u32(bytes, &probed->epoch);
}

void oob_codec_body(struct oob_bytes *bytes, struct frame *frame)
{
	switch (frame->type) {
	case FRAME_HELLO:
		body_hello(bytes, &frame->hello);
		return;
	case FRAME_OPEN:
		body_open(bytes, &frame->open);
		return;
	case FRAME_OPENED:
		body_opened(bytes, &frame->opened);
		return;
	case FRAME_PATHS:
		body_paths(bytes, &frame->paths);
		return;
	case FRAME_READY:
		oob_bytes_u32(bytes, &frame->ready.path_mask);
		return;
	case FRAME_REFUSED:
		body_refused(bytes, &frame->refused);
		return;
	case FRAME_FENCE:
		body_fence(bytes, &frame->fence);
		return;
	case FRAME_FENCED:
		body_fenced(bytes, &frame->fenced);
		return;
	case FRAME_CLOSE:
		oob_bytes_u64(bytes, &frame->close.next_seq);
		return;
	case FRAME_REJOIN:
	case FRAME_REJOINED:
		body_rejoin(bytes, &frame->rejoin);
		return;
	case FRAME_REJOIN_HINT:
	case FRAME_PROBED:
		body_probed(bytes, &frame->probed);
		return;
	case FRAME_PING:
	case FRAME_PONG:
		oob_bytes_u64(bytes, &frame->ping.cookie);
		return;
	case FRAME_GOODBYE:
	case FRAME_NONE:
		return;
	case FRAME_TYPE_COUNT:
		break;
	}
	bytes->bad = true;
}
