/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/codec.h"
#include "oob/crc32c.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A small generator (xorshift) so that a failing case is found again from its seed. */
static uint64_t rnd_state;

static uint64_t rnd(void)
{
	rnd_state ^= rnd_state << 13;
	rnd_state ^= rnd_state >> 7;
	rnd_state ^= rnd_state << 17;
	return rnd_state;
}

static void crc_vectors(void **state)
{
	uint8_t bytes[32];

	(void)state;
	/* RFC 3720, appendix B.4, and the customary check value */
	assert_int_equal(oob_crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(oob_crc32c_table(0, "123456789", 9), 0xe3069283);
	memset(bytes, 0, sizeof(bytes));
	assert_int_equal(oob_crc32c(0, bytes, 32), 0x8a9136aa);
	assert_int_equal(oob_crc32c_table(0, bytes, 32), 0x8a9136aa);
	memset(bytes, 0xff, sizeof(bytes));
	assert_int_equal(oob_crc32c(0, bytes, 32), 0x62a8ab43);
	for (uint8_t i = 0; i < 32; i++) {
		bytes[i] = i;
	}
	assert_int_equal(oob_crc32c(0, bytes, 32), 0x46dd794e);
	for (uint8_t i = 0; i < 32; i++) {
		bytes[i] = (uint8_t)(31 - i);
	}
	assert_int_equal(oob_crc32c(0, bytes, 32), 0x113fdb5c);
	assert_int_equal(oob_crc32c_table(0, bytes, 32), 0x113fdb5c);
}

static void crc_ways_agree(void **state)
{
	uint8_t bytes[300];

	(void)state;
	rnd_state = 1;
	for (size_t i = 0; i < sizeof(bytes); i++) {
		bytes[i] = (uint8_t)rnd();
	}
	for (size_t from = 0; from < 9; from++) {
		for (size_t len = 0; len + from <= sizeof(bytes); len++) {
			uint32_t whole = oob_crc32c(0, bytes + from, len);
			uint32_t split = oob_crc32c(0, bytes + from, len / 3);

			assert_int_equal(whole, oob_crc32c_table(0, bytes + from, len));
			split = oob_crc32c(split, bytes + from + len / 3, len - len / 3);
			assert_int_equal(whole, split);
		}
	}
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
}

static void rejoin_fill(struct frame_rejoin *rejoin)
{
	rejoin->path = (uint8_t)(rnd() % PATHS_MAX);
	rejoin->epoch = (uint32_t)rnd();
	rejoin->err = -(int32_t)(rnd() % 4000);
	qp_fill(&rejoin->qp);
	rail_fill(&rejoin->rail);
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
		frame->paths.path_count = (uint32_t)(rnd() % (PATHS_MAX + 1));
		for (uint32_t i = 0; i < frame->paths.path_count; i++) {
			qp_fill(&frame->paths.qps[i]);
		}
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
		frame->fenced.path = (uint8_t)(rnd() % PATHS_MAX);
		frame->fenced.cause = (uint8_t)(rnd() % CAUSE_COUNT);
		frame->fenced.epoch = (uint32_t)rnd();
		frame->fenced.next_seq = rnd();
		bytes_fill(frame->fenced.pieces, sizeof(frame->fenced.pieces));
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

/** Decode len_bytes from a heap block of exactly that size, so that ASan sees any step beyond. */
static int decode(const uint8_t *bytes, size_t len_bytes, struct oob_head *head,
		  struct frame *frame)
{
	uint8_t *block = malloc(len_bytes > 0 ? len_bytes : 1);
	int err;

	assert_non_null(block);
	memcpy(block, bytes, len_bytes);
	err = oob_codec_head(block, len_bytes, head);
	if (err == 0 && OOB_HEAD_BYTES + (size_t)head->body_bytes > len_bytes) {
		err = -EAGAIN;
	}
	if (err == 0) {
		err = oob_codec_get(block, head, frame);
	}
	free(block);
	return err;
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

/** The layout is fixed: another machine's build must read these bytes. */
static void layout(void **state)
{
	static const uint8_t expected[] = {
		'B',  'R', 'I', 'D', 12, 0, 0, 0, FRAME_REFUSED, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1,
		0x11, 0,   0,   0,   0,  0, 0, 0, 0x22,          0, 0, 0, 0, 0, 0, 0,
	};
	static const uint8_t body[] = {0x91, 0xff, 0xff, 0xff, 7,   'b',
				       'e',  'c',  'a',  'u',  's', 'e'};
	struct frame frame = {.type = FRAME_REFUSED, .dst_comm = 0x0102030405060708};
	uint8_t bytes[OOB_FRAME_MAX_BYTES];
	size_t len_bytes = 0;

	(void)state;
	frame.refused.err = -ECONNREFUSED;
	strcpy(frame.refused.reason, "because");
	assert_int_equal(oob_codec_put(&frame, bytes, &len_bytes), 0);
	oob_codec_seal(bytes, len_bytes, 0x11, 0x22);
	assert_int_equal(len_bytes, OOB_HEAD_BYTES + sizeof(body));
	assert_memory_equal(bytes, expected, sizeof(expected));
	assert_memory_equal(bytes + OOB_HEAD_BYTES, body, sizeof(body));
}

static void head_refused(void **state)
{
	struct frame in = {.type = FRAME_GOODBYE}, out;
	uint8_t bytes[OOB_FRAME_MAX_BYTES], bad[OOB_FRAME_MAX_BYTES];
	struct oob_head head;
	size_t len_bytes = 0;

	(void)state;
	assert_int_equal(oob_codec_put(&in, bytes, &len_bytes), 0);
	oob_codec_seal(bytes, len_bytes, 1, 0);
	for (size_t i = 0; i < len_bytes; i++) {
		assert_int_equal(decode(bytes, i, &head, &out), -EAGAIN);
	}
	for (size_t i = 0; i < 4; i++) {
		memcpy(bad, bytes, len_bytes);
		bad[i] ^= 1;
		/* said before the rest has come */
		assert_int_equal(decode(bad, i + 1, &head, &out), -EPROTO);
	}
	memcpy(bad, bytes, len_bytes);
	bad[5] = 0x10; /* body of 4096 bytes: waits for them */
	assert_int_equal(decode(bad, len_bytes, &head, &out), -EAGAIN);
	bad[4] = 1; /* 4097: never */
	assert_int_equal(decode(bad, len_bytes, &head, &out), -EBADMSG);
	memcpy(bad, bytes, len_bytes);
	bad[8] = FRAME_TYPE_COUNT;
	assert_int_equal(decode(bad, len_bytes, &head, &out), -EBADMSG);
	memcpy(bad, bytes, len_bytes);
	bad[10] = 1; /* flags */
	assert_int_equal(decode(bad, len_bytes, &head, &out), -EBADMSG);
	memcpy(bad, bytes, len_bytes);
	bad[21] ^= 1; /* any byte under the crc */
	assert_int_equal(decode(bad, len_bytes, &head, &out), -EBADMSG);
}

/** Overwrite one body byte of an encoded frame, seal it again, and expect a refusal. */
static void expect_refused(const struct frame *frame, size_t body_at, uint8_t value)
{
	uint8_t bytes[OOB_FRAME_MAX_BYTES];
	struct oob_head head;
	struct frame out;
	size_t len_bytes = 0;

	assert_int_equal(oob_codec_put(frame, bytes, &len_bytes), 0);
	bytes[OOB_HEAD_BYTES + body_at] = value;
	oob_codec_seal(bytes, len_bytes, 1, 0);
	assert_int_equal(decode(bytes, len_bytes, &head, &out), -EBADMSG);
}

static void ranges_refused(void **state)
{
	struct frame frame = {.type = FRAME_PATHS};
	uint8_t bytes[OOB_FRAME_MAX_BYTES];
	size_t len_bytes;

	(void)state;
	frame.paths.path_count = 1;
	expect_refused(&frame, 0, PATHS_MAX + 1);
	expect_refused(&frame, 0, 0); /* bytes left over */
	expect_refused(&frame, 0, 2); /* bytes missing */
	expect_refused(&frame, 7, 1); /* qpn of more than 24 bits */
	frame.paths.path_count = PATHS_MAX + 1;
	assert_int_equal(oob_codec_put(&frame, bytes, &len_bytes), -EINVAL);

	frame = (struct frame){.type = FRAME_FENCED};
	expect_refused(&frame, 0, PATHS_MAX);
	expect_refused(&frame, 1, CAUSE_COUNT);
	frame = (struct frame){.type = FRAME_FENCE};
	expect_refused(&frame, 0, PATHS_MAX);
	expect_refused(&frame, 1, CAUSE_COUNT);
	frame.fence.cause = CAUSE_COUNT;
	assert_int_equal(oob_codec_put(&frame, bytes, &len_bytes), -EINVAL);

	frame = (struct frame){.type = FRAME_OPEN};
	expect_refused(&frame, 16 + 8 + 4 + 4 + 1, PATHS_MAX + 1); /* rail_count */
	expect_refused(&frame, 16 + 8 + 4 + 4, RAIL_NAME_MAX);     /* length of dev */
	frame.open.rail_count = PATHS_MAX + 1;
	assert_int_equal(oob_codec_put(&frame, bytes, &len_bytes), -EINVAL);

	frame = (struct frame){.type = FRAME_OPENED};
	expect_refused(&frame, 8 + 1, PATHS_MAX + 1);
	expect_refused(&frame, 8 + 1 + 4, PATHS_MAX + 1);
	/* a path on a rail that the frame does not list */
	frame.opened.path_count = 1;
	assert_int_equal(oob_codec_put(&frame, bytes, &len_bytes), -EINVAL);

	frame = (struct frame){.type = FRAME_REFUSED};
	assert_int_equal(oob_codec_put(&frame, bytes, &len_bytes), -EINVAL);
	frame = (struct frame){.type = FRAME_TYPE_COUNT};
	assert_int_equal(oob_codec_put(&frame, bytes, &len_bytes), -EINVAL);
}

enum {
	RAIL_BYTES = 35, /* of a rail without a name */
	PATH_BYTES = 10,
	OPEN_COUNT_AT = 33 /* rail_count in the body of OPEN without a device name */
};

/** One element more than the array takes, and all of it there: refused for the count alone. */
static void expect_count_refused(const struct frame *frame, size_t count_at, size_t element_bytes)
{
	uint8_t bytes[OOB_FRAME_MAX_BYTES];
	uint8_t *count = bytes + OOB_HEAD_BYTES + count_at, *elements = count + 4;
	struct oob_head head;
	struct frame out;
	size_t len_bytes = 0;

	assert_int_equal(oob_codec_put(frame, bytes, &len_bytes), 0);
	assert_int_equal(*count, PATHS_MAX);
	memmove(elements + element_bytes, elements, len_bytes - (size_t)(elements - bytes));
	memcpy(elements, elements + element_bytes, element_bytes);
	*count = PATHS_MAX + 1;
	len_bytes += element_bytes;
	bytes[4] = (uint8_t)(len_bytes - OOB_HEAD_BYTES);
	bytes[5] = (uint8_t)((len_bytes - OOB_HEAD_BYTES) >> 8);
	oob_codec_seal(bytes, len_bytes, 1, 0);
	assert_int_equal(decode(bytes, len_bytes, &head, &out), -EBADMSG);
}

static void one_too_many_refused(void **state)
{
	struct frame frame = {.type = FRAME_OPEN};

	(void)state;
	frame.open.rail_count = PATHS_MAX;
	for (size_t i = 0; i < PATHS_MAX; i++) {
		frame.open.rails[i].link_layer = RAIL_LINK_ETHERNET;
		frame.open.rails[i].mtu = 3;
	}
	expect_count_refused(&frame, OPEN_COUNT_AT, RAIL_BYTES);

	frame = (struct frame){.type = FRAME_OPENED};
	frame.opened.rail_count = 1;
	frame.opened.rails[0].link_layer = RAIL_LINK_ETHERNET;
	frame.opened.rails[0].mtu = 3;
	frame.opened.path_count = PATHS_MAX;
	expect_count_refused(&frame, 8 + 1 + 4 + RAIL_BYTES, PATH_BYTES);

	frame = (struct frame){.type = FRAME_PATHS};
	frame.paths.path_count = PATHS_MAX;
	expect_count_refused(&frame, 0, 8);
}

static void text_is_tamed(void **state)
{
	struct frame in = {.type = FRAME_REFUSED}, out;
	uint8_t bytes[OOB_FRAME_MAX_BYTES];
	struct oob_head head;
	size_t len_bytes = 0;

	(void)state;
	in.refused.err = -EPERM;
	memset(in.refused.reason, 'x', sizeof(in.refused.reason)); /* not terminated */
	in.refused.reason[1] = '\n';
	in.refused.reason[2] = '\x1b';
	assert_int_equal(oob_codec_put(&in, bytes, &len_bytes), 0);
	bytes[OOB_HEAD_BYTES + 5 + 3] = 0;
	oob_codec_seal(bytes, len_bytes, 1, 0);
	assert_int_equal(decode(bytes, len_bytes, &head, &out), 0);
	assert_int_equal(strlen(out.refused.reason), sizeof(out.refused.reason) - 1);
	assert_memory_equal(out.refused.reason, "x???x", 5);
}

static void other_version(void **state)
{
	struct frame in, out;
	uint8_t bytes[OOB_FRAME_MAX_BYTES];
	struct oob_head head;
	size_t len_bytes = 0;

	(void)state;
	rnd_state = 7;
	frame_fill(&in, FRAME_HELLO);
	in.hello.version = PROTO_VERSION + 1;
	assert_int_equal(oob_codec_put(&in, bytes, &len_bytes), 0);
	oob_codec_seal(bytes, len_bytes, 0, 0);
	assert_int_equal(decode(bytes, len_bytes, &head, &out), 0);
	assert_int_equal(out.hello.version, PROTO_VERSION + 1);
	assert_int_equal(out.hello.link_id, 0);
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
		assert_non_null(memchr(frame->rejoin.rail.name, 0, RAIL_NAME_MAX));
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
		cmocka_unit_test(crc_vectors),          cmocka_unit_test(crc_ways_agree),
		cmocka_unit_test(round_trip),           cmocka_unit_test(layout),
		cmocka_unit_test(head_refused),         cmocka_unit_test(ranges_refused),
		cmocka_unit_test(one_too_many_refused), cmocka_unit_test(text_is_tamed),
		cmocka_unit_test(other_version),        cmocka_unit_test(mutations),
	};

	return cmocka_run_group_tests_name("oob_codec", tests, NULL, NULL);
}
