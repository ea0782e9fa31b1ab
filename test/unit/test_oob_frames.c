/* SPDX-License-Identifier: Apache-2.0 */
#include "test/unit/oob_decode.h"

/* Frames of every type with random contents: there and back, and damaged on the way. */

/* A small generator (xorshift) so that a failing case is found again from its seed. */
static uint64_t rnd_state;

static uint64_t rnd(void)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return rnd_state;
}

static void text_fill(char *text, size_t size)
{
	size_t len = rnd() % size;

	for (size_t i = 0; i < len; i++) {
		text[i] = (char)(0x21 + rnd() % 0x5d);
	}
}

static void bytes_fill(void *data, size_t len)
{
	uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++) {
		bytes[i] = (uint8_t)rnd();
	}
}

static void hello_fill(struct frame_hello *hello)
{
	hello->version = PROTO_VERSION;
	hello->features = (uint32_t)rnd();
	bytes_fill(&hello->self, sizeof(hello->self));
	bytes_fill(&hello->peer, sizeof(hello->peer));
	hello->link_id = rnd();
	hello->attempt = (uint32_t)rnd();
	hello->kind = (uint8_t)(HELLO_NEW + rnd() % (HELLO_KIND_END - HELLO_NEW));
	hello->listen_port = (uint16_t)rnd();
	hello->pid = (uint32_t)rnd();
	text_fill(hello->host, sizeof(hello->host));
	hello->addr_count = (uint32_t)(rnd() % (HELLO_ADDRS_MAX + 1));
	for (uint32_t i = 0; i < hello->addr_count; i++) {
		hello->addrs[i].family = rnd() % 2 == 0 ? 4 : 6;
		bytes_fill(hello->addrs[i].bytes, 16);
	}
}

static void rail_fill(struct rail_desc *rail)
{
	text_fill(rail->name, sizeof(rail->name));
	rail->port = (uint8_t)rnd();
	rail->link_layer = rnd() % 2 == 0 ? RAIL_LINK_INFINIBAND : RAIL_LINK_ETHERNET;
	rail->mtu = (uint8_t)(1 + rnd() % 5);
	rail->dist = (uint8_t)rnd();
	rail->is_down = rnd() & 1;
	rail->lid = (uint16_t)rnd();
	rail->speed_mbps = (uint32_t)rnd();
	rail->guid = rnd();
	bytes_fill(rail->gid, sizeof(rail->gid));
}

static void rails_fill(uint32_t *count, struct rail_desc *rails)
{
	*count = (uint32_t)(rnd() % (PATHS_MAX + 1));
	for (uint32_t i = 0; i < *count; i++) {
		rail_fill(&rails[i]);
	}
}

static void qp_fill(struct qp_addr *qp)
{
	qp->qpn = rnd() & 0xffffff;
	qp->psn = rnd() & 0xffffff;
}

static void area_fill(struct frame_area *area)
{
	area->addr = rnd();
	area->len_bytes = (uint32_t)rnd();
	bytes_fill(area->rkeys, sizeof(area->rkeys));
}

static void open_fill(struct frame_open *open)
{
	bytes_fill(open->token, sizeof(open->token));
	open->src_comm = rnd();
	open->window_msgs = (uint32_t)rnd();
	open->pieces_max = (uint32_t)rnd();
	text_fill(open->dev, sizeof(open->dev));
	rails_fill(&open->rail_count, open->rails);
	area_fill(&open->cts);
	area_fill(&open->acks);
	area_fill(&open->probes);
	area_fill(&open->probes);
}

static void opened_fill(struct frame_opened *opened)
{
	opened->src_comm = rnd();
	text_fill(opened->dev, sizeof(opened->dev));
	rails_fill(&opened->rail_count, opened->rails);
	opened->path_count = opened->rail_count == 0 ? 0 : (uint32_t)(rnd() % (PATHS_MAX + 1));
	for (uint32_t i = 0; i < opened->path_count; i++) {
		opened->paths[i].local_rail = (uint8_t)(rnd() % opened->rail_count);
		opened->paths[i].remote_rail = (uint8_t)(rnd() % PATHS_MAX);
		qp_fill(&opened->paths[i].qp);
	}
	area_fill(&opened->records);
	area_fill(&opened->probes);
	area_fill(&opened->probes);
}

static void rejoin_fill(struct frame_rejoin *rejoin)
{
	rejoin->path = (uint8_t)(rnd() % PATHS_MAX);
	rejoin->epoch = (uint32_t)rnd();
	rejoin->err = -(int32_t)(rnd() % 4000);
	qp_fill(&rejoin->side.qp);
	rail_fill(&rejoin->side.rail);
	rejoin->side.ring_rkey = (uint32_t)rnd();
	rejoin->keys_seq = rnd();
	rejoin->key_count = (uint32_t)(rnd() % (WINDOW_MSGS + 1));
	rejoin->key_mask = (uint32_t)rnd();
	bytes_fill(rejoin->keys, rejoin->key_count * sizeof(rejoin->keys[0]));
}

static void paths_fill(struct frame_paths *paths)
{
	paths->path_count = (uint32_t)(rnd() % (PATHS_MAX + 1));
	for (uint32_t i = 0; i < paths->path_count; i++) {
		qp_fill(&paths->qps[i]);
	}
}

static void fenced_fill(struct frame_fenced *fenced)
{
	fenced->path = (uint8_t)(rnd() % PATHS_MAX);
	fenced->cause = (uint8_t)(rnd() % CAUSE_COUNT);
	fenced->epoch = (uint32_t)rnd();
	fenced->next_seq = rnd();
	bytes_fill(fenced->pieces, sizeof(fenced->pieces));
}

/** A valid frame of the given type with random contents; everything else is zero. */
static void frame_fill(struct frame *frame, enum frame_type type)
{
	memset(frame, 0, sizeof(*frame));
	frame->type = type;
	frame->dst_comm = rnd();
	switch (type) {
	case FRAME_HELLO:
		hello_fill(&frame->hello);
		return;
	case FRAME_OPEN:
		open_fill(&frame->open);
		return;
	case FRAME_OPENED:
		opened_fill(&frame->opened);
		return;
	case FRAME_PATHS:
		paths_fill(&frame->paths);
		return;
	case FRAME_READY:
		frame->ready.path_mask = (uint32_t)rnd();
		return;
	case FRAME_REFUSED:
		frame->refused.err = -1 - (int32_t)(rnd() % 4000);
		text_fill(frame->refused.reason, sizeof(frame->refused.reason));
		return;
	case FRAME_FENCE:
		frame->fence.path = (uint8_t)(rnd() % PATHS_MAX);
		frame->fence.cause = (uint8_t)(rnd() % CAUSE_COUNT);
		frame->fence.epoch = (uint32_t)rnd();
		return;
	case FRAME_FENCED:
		fenced_fill(&frame->fenced);
		return;
	case FRAME_CLOSE:
		frame->close.next_seq = rnd();
		return;
	case FRAME_REJOIN:
	case FRAME_REJOINED:
		rejoin_fill(&frame->rejoin);
		return;
	case FRAME_REJOIN_HINT:
	case FRAME_PROBED:
		frame->probed.path = (uint8_t)(rnd() % PATHS_MAX);
		frame->probed.epoch = (uint32_t)rnd();
		return;
	case FRAME_PING:
	case FRAME_PONG:
		frame->ping.cookie = rnd();
		return;
	case FRAME_NONE:
	case FRAME_GOODBYE:
	case FRAME_TYPE_COUNT:
		return;
	}
}

static void round_trip(void **state)
{
	uint8_t bytes[OOB_FRAME_MAX_BYTES];
	struct frame in, out;
	struct oob_head head;
	size_t len_bytes = 0;

	(void)state;
	rnd_state = 42;
	for (int i = 0; i < 200; i++) {
		for (int type = FRAME_NONE; type < FRAME_TYPE_COUNT; type++) {
			uint64_t seq = rnd(), ack = rnd();

			frame_fill(&in, (enum frame_type)type);
			assert_int_equal(oob_codec_put(&in, bytes, &len_bytes), 0);
			oob_codec_seal(bytes, len_bytes, seq, ack);
			assert_int_equal(decode(bytes, len_bytes, &head, &out), 0);
			assert_memory_equal(&in, &out, sizeof(in));
			assert_true(head.seq == seq && head.ack == ack);
			assert_true(head.dst_comm == in.dst_comm);
		}
	}
}

/** What a decoded frame promises to its readers. */
static void check_bounds(const struct frame *frame)
{
	switch (frame->type) {
	case FRAME_HELLO:
		assert_true(frame->hello.addr_count <= HELLO_ADDRS_MAX);
		assert_non_null(memchr(frame->hello.host, 0, sizeof(frame->hello.host)));
		return;
	case FRAME_OPEN:
		assert_true(frame->open.rail_count <= PATHS_MAX);
		assert_non_null(memchr(frame->open.dev, 0, sizeof(frame->open.dev)));
		for (uint32_t i = 0; i < frame->open.rail_count; i++) {
			assert_non_null(memchr(frame->open.rails[i].name, 0, RAIL_NAME_MAX));
		}
		return;
	case FRAME_OPENED:
		assert_true(frame->opened.rail_count <= PATHS_MAX);
		assert_true(frame->opened.path_count <= PATHS_MAX);
		for (uint32_t i = 0; i < frame->opened.path_count; i++) {
			assert_true(frame->opened.paths[i].local_rail < frame->opened.rail_count);
			assert_true(frame->opened.paths[i].remote_rail < PATHS_MAX);
		}
		return;
	case FRAME_PATHS:
		assert_true(frame->paths.path_count <= PATHS_MAX);
		return;
	case FRAME_REFUSED:
		assert_true(frame->refused.err < 0);
		assert_non_null(memchr(frame->refused.reason, 0, sizeof(frame->refused.reason)));
		return;
	case FRAME_FENCE:
		assert_true(frame->fence.path < PATHS_MAX && frame->fence.cause < CAUSE_COUNT);
		return;
	case FRAME_FENCED:
		assert_true(frame->fenced.path < PATHS_MAX && frame->fenced.cause < CAUSE_COUNT);
		return;
	case FRAME_REJOIN:
	case FRAME_REJOINED:
		assert_true(frame->rejoin.path < PATHS_MAX && frame->rejoin.err <= 0);
		assert_true(frame->rejoin.key_count <= WINDOW_MSGS);
		assert_non_null(memchr(frame->rejoin.side.rail.name, 0, RAIL_NAME_MAX));
		return;
	case FRAME_REJOIN_HINT:
	case FRAME_PROBED:
		assert_true(frame->probed.path < PATHS_MAX);
		return;
	case FRAME_READY:
	case FRAME_CLOSE:
	case FRAME_PING:
	case FRAME_PONG:
	case FRAME_GOODBYE:
	case FRAME_NONE:
		return;
	case FRAME_TYPE_COUNT:
		break;
	}
	fail();
}

enum {
	MUTATIONS = 100000
};

static void mutations(void **state)
{
	unsigned accepted_count = 0, refused_count = 0;

	(void)state;
	rnd_state = 20240607;
	for (int i = 0; i < MUTATIONS; i++) {
		uint8_t bytes[OOB_FRAME_MAX_BYTES];
		struct frame frame;
		struct oob_head head;
		size_t len_bytes = 0, changes = 1 + rnd() % 4;
		int err;

		frame_fill(&frame, (enum frame_type)(rnd() % FRAME_TYPE_COUNT));
		assert_int_equal(oob_codec_put(&frame, bytes, &len_bytes), 0);
		for (size_t c = 0; c < changes; c++) {
			/* half of them in the first bytes, where lengths, types and counts are */
			size_t reach = rnd() % 2 == 0 && len_bytes > 64 ? 64 : len_bytes;

			bytes[4 + rnd() % (reach - 4)] = (uint8_t)rnd();
		}
		/* mostly with a right crc, or nothing else would ever be looked at */
		if (rnd() % 8 != 0) {
			oob_codec_seal(bytes, len_bytes, rnd(), rnd());
		}
		err = decode(bytes, rnd() % 8 == 0 ? rnd() % len_bytes : len_bytes, &head, &frame);
		if (err == 0) {
			check_bounds(&frame);
			accepted_count++;
		} else {
			assert_true(err == -EAGAIN || err == -EBADMSG);
			refused_count++;
		}
	}
	/* both sides of the fence were visited */
	assert_true(accepted_count > MUTATIONS / 20);
	assert_true(refused_count > MUTATIONS / 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(mutations),
	};

	return cmocka_run_group_tests_name("oob_frames", tests, NULL, NULL);
}
