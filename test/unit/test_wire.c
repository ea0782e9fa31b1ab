/* SPDX-License-Identifier: Apache-2.0 */
#include "include/wire.h"
#include "include/wr_id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_imm_round_trip(void **state)
{
	const uint16_t seqs[] = {0, 1, 0x7fff, 0x8000, 0xffff};
	const uint8_t epochs[] = {0, 1, 0x7f, 0x80, 0xff};

	(void)state;
	for (unsigned int kind = 0; kind < 4; kind++) {
		for (unsigned int piece = 0; piece < 64; piece++) {
			for (size_t i = 0; i < 5; i++) {
				for (size_t j = 0; j < 5; j++) {
					struct wire_imm imm = {(enum wire_imm_kind)kind, epochs[j],
							       (uint8_t)piece, seqs[i]};
					struct wire_imm back = wire_imm_unpack(wire_imm_pack(imm));

					assert_int_equal(back.kind, kind);
					assert_int_equal(back.piece, piece);
					assert_int_equal(back.seq_low, seqs[i]);
					assert_int_equal(back.epoch_low, epochs[j]);
				}
			}
		}
	}
}

/* Each bit belongs to exactly one field: any value survives, so no bit is read twice or dropped. */
static void test_imm_any_value(void **state)
{
	uint32_t raw = 1;

	(void)state;
	for (unsigned int i = 0; i < 100000; i++) {
		assert_int_equal(wire_imm_pack(wire_imm_unpack(raw)), raw);
		raw = raw * 1664525u + 1013904223u;
	}
	for (unsigned int bit = 0; bit < 32; bit++) {
		assert_int_equal(wire_imm_pack(wire_imm_unpack(1u << bit)), 1u << bit);
	}
	assert_int_equal(wire_imm_pack((struct wire_imm){WIRE_IMM_RECORD, 0x12, 0x15, 0xabcd}),
			 2u << 30 | 0x12u << 22 | 0x15u << 16 | 0xabcdu);
}

static void test_wr_id_round_trip(void **state)
{
	uint64_t raw = 3;

	(void)state;
	for (unsigned int i = 0; i < 100000; i++) {
		assert_true(wr_id_pack(wr_id_unpack(raw)) == raw);
		raw = raw * 6364136223846793005ull + 1442695040888963407ull;
	}
	assert_true(wr_id_pack((struct wr_id){WR_KIND_RECV, 0x12, 0x3456, 0x789abcde}) ==
		    ((uint64_t)WR_KIND_RECV << 56 | 0x12ull << 48 | 0x3456ull << 32 | 0x789abcde));
}

/* A line with any one bit changed, and any mix of two entries at a word boundary, is refused. */
static void test_line_check(void **state)
{
	struct wire_cts_line0 old = {.addr = 0x1000, .size_bytes = 4096, .key_mask = 3, .seq = 5};
	struct wire_cts_line0 line = {
		.addr = 0x7f0012345678, .size_bytes = 99, .key_mask = 3, .seq = 5 + WINDOW_MSGS};

	(void)state;
	for (unsigned int i = 0; i < 8; i++) {
		old.rkeys[i] = 100 + i;
		line.rkeys[i] = 900 + i;
	}
	old.check = wire_line_check(&old);
	line.check = wire_line_check(&line);
	for (unsigned int bit = 0; bit < 512; bit++) {
		uint32_t words[16];

		if (bit / 32 == 13) {
			continue; /* the check itself: compared, not summed */
		}
		memcpy(words, &line, 64);
		words[bit / 32] ^= 1u << bit % 32;
		assert_int_not_equal(wire_line_check(words), words[13]);
	}
	for (unsigned int cut = 1; cut < 16; cut++) {
		uint32_t front[16], back[16];

		memcpy(front, &old, 64);
		memcpy(front, &line, cut * 4); /* new bytes in front, the old ones behind */
		memcpy(back, &line, 64);
		memcpy(back, &old, cut * 4);
		if (memcmp(front, &line, 64) && memcmp(front, &old, 64)) {
			assert_int_not_equal(wire_line_check(front), front[13]);
		}
		if (memcmp(back, &line, 64) && memcmp(back, &old, 64)) {
			assert_int_not_equal(wire_line_check(back), back[13]);
		}
	}
}

/* Keys that all changed alike, as those of HCAs side by side do: any run of words left old shows.
 */
static void test_line_check_of_like_keys(void **state)
{
	struct wire_cts_line0 old = {.addr = 0x1000, .size_bytes = 4096, .key_mask = 3, .seq = 5};
	struct wire_cts_line0 line = {
		.addr = 0x1000, .size_bytes = 4096, .key_mask = 3, .seq = 5 + WINDOW_MSGS};

	(void)state;
	for (unsigned int i = 0; i < 8; i++) {
		old.rkeys[i] = 0x1100;
		line.rkeys[i] = 0x2200;
	}
	old.check = wire_line_check(&old);
	line.check = wire_line_check(&line);
	for (unsigned int from = 0; from < 14; from++) {
		for (unsigned int to = from + 1; to <= 14; to++) {
			uint32_t mix[16];

			memcpy(mix, &line, 64);
			memcpy(mix + from, (const uint32_t *)(const void *)&old + from,
			       (to - from) * 4);
			if (memcmp(mix, &line, 64)) {
				assert_int_not_equal(wire_line_check(mix), mix[13]);
			}
		}
	}
}

/* Records of the messages in a window never share a place. */
static void test_record_places(void **state)
{
	bool used[WIRE_RECORDS] = {false};

	(void)state;
	for (uint64_t seq = 65530; seq < 65530 + WINDOW_MSGS; seq++) {
		for (unsigned int piece = 0; piece < PIECES_MAX; piece++) {
			unsigned int idx = wire_record_idx(seq, piece);

			assert_in_range(idx, 0, WIRE_RECORDS - 1);
			assert_false(used[idx]);
			used[idx] = true;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_imm_round_trip),
		cmocka_unit_test(test_imm_any_value),
		cmocka_unit_test(test_wr_id_round_trip),
		cmocka_unit_test(test_line_check),
		cmocka_unit_test(test_line_check_of_like_keys),
		cmocka_unit_test(test_record_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
