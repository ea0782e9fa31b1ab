/* SPDX-License-Identifier: Apache-2.0 */
#include "test/unit/oob_decode.h"

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
	RAIL_BYTES = 36, /* of a rail without a name */
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
	memset(&in, 0, sizeof(in));
	in.type = FRAME_HELLO;
	in.hello.kind = HELLO_NEW;
	in.hello.link_id = 77;
	in.hello.version = PROTO_VERSION + 1;
	assert_int_equal(oob_codec_put(&in, bytes, &len_bytes), 0);
	oob_codec_seal(bytes, len_bytes, 0, 0);
	assert_int_equal(decode(bytes, len_bytes, &head, &out), 0);
	assert_int_equal(out.hello.version, PROTO_VERSION + 1);
	assert_int_equal(out.hello.link_id, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layout),         cmocka_unit_test(head_refused),
		cmocka_unit_test(ranges_refused), cmocka_unit_test(one_too_many_refused),
		cmocka_unit_test(text_is_tamed),  cmocka_unit_test(other_version),
	};

	return cmocka_run_group_tests_name("oob_codec", tests, NULL, NULL);
}
