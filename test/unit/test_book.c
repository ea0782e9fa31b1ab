/* SPDX-License-Identifier: Apache-2.0 */
#include "include/log.h"
#include "repair/book.h"

#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

static struct book book;
static const char *why;

static int setup(void **state)
{
	(void)state;
	book_init(&book);
	why = NULL;
	return 0;
}

/* What an honest sender writes for one piece. */
static struct wire_record record_of(uint64_t seq, uint64_t total, struct plan_cut cut,
				    uint32_t piece)
{
	return (struct wire_record){.seq = seq,
				    .total_bytes = total,
				    .offset_bytes = plan_piece_offset_bytes(cut, piece),
				    .len_bytes = plan_piece_len_bytes(cut, total, piece),
				    .epoch = 1,
				    .piece = (uint16_t)piece,
				    .pieces = (uint16_t)cut.pieces};
}

static int enter(const struct wire_record *rec)
{
	struct wire_imm imm = {WIRE_IMM_RECORD, 1, (uint8_t)rec->piece, (uint16_t)rec->seq};

	return book_enter_record(&book, imm, rec, &why);
}

/* A refused entry leaves no trace but the count. */
static void refused(struct wire_imm imm, const struct wire_record *rec)
{
	struct book before = book;

	why = NULL;
	assert_int_equal(book_enter_record(&book, imm, rec, &why), -EPROTO);
	assert_non_null(why);
	assert_int_equal(book.violation_count, before.violation_count + 1);
	book.violation_count = before.violation_count;
	assert_memory_equal(&book, &before, sizeof(book));
}

static void test_whole_in_order(void **state)
{
	(void)state;
	for (uint64_t seq = 1; seq <= 100; seq++) {
		assert_true(book_post(&book, 1000) == seq);
		assert_false(book_is_complete(&book, seq));
		assert_int_equal(book_enter_whole(&book, (uint16_t)seq, (uint32_t)seq, &why), 0);
		assert_true(book_is_complete(&book, seq));
		assert_true(book_msg(&book, seq)->total_bytes == seq);
		assert_true(book.next_seq == seq + 1);
	}
	assert_int_equal(book.bytes_total, 5050);
}

static void test_whole_refused(void **state)
{
	(void)state;
	assert_int_equal(book_enter_whole(&book, 1, 0, &why), -EPROTO); /* nothing posted */
	book_post(&book, 100);
	assert_int_equal(book_enter_whole(&book, 1, 101, &why), -EPROTO);
	assert_int_equal(book_enter_whole(&book, 2, 1, &why), -EPROTO);
	assert_int_equal(book_enter_whole(&book, 0, 1, &why), -EPROTO);
	assert_int_equal(book_enter_whole(&book, 0x8001, 1, &why), -EPROTO);
	assert_true(book.next_seq == 1);
	assert_int_equal(book_enter_whole(&book, 1, 100, &why), 0);
	assert_int_equal(book_enter_whole(&book, 1, 100, &why), -EPROTO); /* complete */
	book_post(&book, 100);
	book_post(&book, 100);
	assert_int_equal(book_enter_whole(&book, 3, 5, &why), 0);
	assert_int_equal(book_enter_whole(&book, 3, 5, &why), -EPROTO); /* twice, still open */
	assert_int_equal(book.violation_count, 7);
	assert_true(book.next_seq == 2);
}

/* Pieces in any order, messages in any order: done exactly when the last bit is in. */
static void test_pieces_any_order(void **state)
{
	uint32_t draw = 7;

	(void)state;
	for (unsigned int round = 0; round < 200; round++) {
		uint64_t total = 128 * 31 + 1 + round % 120;
		struct plan_cut cut = plan_cut(total, 128);
		uint64_t first = book.posted_seq;
		unsigned int left = 4 * cut.pieces;
		bool in[4][PIECES_MAX] = {{false}};

		for (unsigned int m = 0; m < 4; m++) {
			book_post(&book, total + round % 3);
		}
		while (left > 0) {
			unsigned int m = (draw >> 16) % 4, piece = (draw >> 20) % cut.pieces;
			struct wire_record rec = record_of(first + m, total, cut, piece);

			draw = draw * 1664525u + 1013904223u;
			if (in[m][piece]) {
				assert_int_equal(enter(&rec), -EPROTO);
				continue;
			}
			assert_int_equal(enter(&rec), 0);
			in[m][piece] = true;
			left--;
		}
		assert_true(book.next_seq == first + 4);
	}
}

static void test_records_mutated(void **state)
{
	const uint64_t total = 5000;
	struct plan_cut cut = plan_cut(total, 512);
	const uint64_t values[] = {0,    1,      2,          127,        128,        511,
				   513,  4999,   5001,       32,         33,         64,
				   9999, 0xffff, 0xffffffff, 1ull << 32, 1ull << 63, UINT64_MAX};

	(void)state;
	book_post(&book, total);
	for (uint32_t first = 0; first < 2; first++) {
		/* With nothing in yet, and with the cut already fixed by another record. */
		for (uint32_t piece = 2; piece < cut.pieces; piece++) {
			struct wire_imm imm = {WIRE_IMM_RECORD, 1, (uint8_t)piece, 1};

			for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
				struct wire_record rec = record_of(1, total, cut, piece);
				uint64_t x = values[v];

				rec.seq = x;
				if (x != 1) {
					refused(imm, &rec);
				}
				rec = record_of(1, total, cut, piece);
				rec.offset_bytes = x;
				if (x != plan_piece_offset_bytes(cut, piece)) {
					refused(imm, &rec);
				}
				rec = record_of(1, total, cut, piece);
				rec.len_bytes = (uint32_t)x;
				if ((uint32_t)x != plan_piece_len_bytes(cut, total, piece)) {
					refused(imm, &rec);
				}
				rec = record_of(1, total, cut, piece);
				rec.piece = (uint16_t)x;
				if ((uint16_t)x != piece) {
					refused(imm, &rec);
				}
				rec = record_of(1, total, cut, piece);
				rec.pieces = (uint16_t)x;
				if ((uint16_t)x != cut.pieces) {
					refused(imm, &rec);
				}
				rec = record_of(1, total, cut, piece);
				rec.total_bytes = x;
				if (first || x > total || x + 512 <= total) {
					refused(imm, &rec);
				}
			}
		}
		if (first == 0) {
			struct wire_record rec = record_of(1, total, cut, 0);

			assert_int_equal(enter(&rec), 0);
		}
	}
	for (uint32_t piece = 1; piece < cut.pieces; piece++) {
		struct wire_record rec = record_of(1, total, cut, piece);

		assert_int_equal(enter(&rec), 0);
	}
	assert_true(book_is_complete(&book, 1));
}

/* Two cuts of one message into as many pieces: the first record decides, later ones must agree. */
static void test_cut_is_fixed(void **state)
{
	struct wire_record rec = {
		.seq = 1, .total_bytes = 1000, .len_bytes = 512, .epoch = 1, .pieces = 2};

	(void)state;
	book_post(&book, 1000);
	assert_int_equal(enter(&rec), 0);
	rec = (struct wire_record){.seq = 1,
				   .total_bytes = 1000,
				   .offset_bytes = 640,
				   .len_bytes = 360,
				   .epoch = 1,
				   .piece = 1,
				   .pieces = 2};
	refused((struct wire_imm){WIRE_IMM_RECORD, 1, 1, 1}, &rec);
	rec.offset_bytes = 512;
	rec.len_bytes = 488;
	assert_int_equal(enter(&rec), 0);
}

/* A single piece with a record: larger than small_bytes, not worth a cut. */
static void test_one_piece(void **state)
{
	struct wire_record rec = {
		.seq = 1, .total_bytes = 1000, .len_bytes = 1000, .epoch = 1, .pieces = 1};
	struct wire_record bad = rec;

	(void)state;
	book_post(&book, 1000);
	bad.len_bytes = 999;
	refused((struct wire_imm){WIRE_IMM_RECORD, 1, 0, 1}, &bad);
	bad = rec;
	bad.offset_bytes = 1;
	refused((struct wire_imm){WIRE_IMM_RECORD, 1, 0, 1}, &bad);
	bad = rec;
	bad.total_bytes = bad.len_bytes = 1001; /* fits itself, not the receive */
	refused((struct wire_imm){WIRE_IMM_RECORD, 1, 0, 1}, &bad);
	assert_int_equal(enter(&rec), 0);
	assert_true(book_is_complete(&book, 1));
}

/* The immediate names what the record says, or the entry is refused. */
static void test_imm_mutated(void **state)
{
	struct plan_cut cut = plan_cut(1000, 128);
	struct wire_record rec;

	(void)state;
	book_post(&book, 1000);
	book_post(&book, 1000);
	rec = record_of(1, 1000, cut, 3);
	for (unsigned int seq_low = 0; seq_low < 0x10000; seq_low++) {
		if (seq_low != 1) {
			refused((struct wire_imm){WIRE_IMM_RECORD, 1, 3, (uint16_t)seq_low}, &rec);
		}
	}
	for (unsigned int piece = 0; piece < 64; piece++) {
		if (piece != 3) {
			refused((struct wire_imm){WIRE_IMM_RECORD, 1, (uint8_t)piece, 1}, &rec);
		}
	}
	assert_int_equal(enter(&rec), 0);
}

static void test_kinds_do_not_mix(void **state)
{
	struct plan_cut cut = plan_cut(1000, 128);
	struct wire_record rec;

	(void)state;
	book_post(&book, 1000);
	rec = record_of(1, 1000, cut, 0);
	assert_int_equal(enter(&rec), 0);
	assert_int_equal(book_enter_whole(&book, 1, 10, &why), -EPROTO);
	book_post(&book, 1000);
	assert_int_equal(book_enter_whole(&book, 2, 10, &why), 0);
	rec = record_of(2, 1000, cut, 1);
	refused((struct wire_imm){WIRE_IMM_RECORD, 1, 1, 2}, &rec);
}

/* Seq numbers pass 2^16 and 2^32 with a full window. */
static void test_seq_wrap(void **state)
{
	const uint64_t starts[] = {65536 - 8, 2 * 65536 - 1, (1ull << 32) - 8};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		uint64_t seq = 0;

		book_init(&book);
		book.next_seq = starts[i];
		book.posted_seq = starts[i];
		for (unsigned int m = 0; m < WINDOW_MSGS; m++) {
			assert_true(book_post(&book, 64) == starts[i] + m);
		}
		assert_false(book_resolve(&book, (uint16_t)(starts[i] - 1), &seq));
		assert_false(book_resolve(&book, (uint16_t)(starts[i] + WINDOW_MSGS), &seq));
		for (unsigned int m = WINDOW_MSGS; m-- > 0;) {
			assert_true(book_resolve(&book, (uint16_t)(starts[i] + m), &seq));
			assert_true(seq == starts[i] + m);
			assert_int_equal(book_enter_whole(&book, (uint16_t)seq, 64, &why), 0);
			assert_true(book.next_seq == (m ? starts[i] : starts[i] + WINDOW_MSGS));
		}
	}
}

static void test_read_out(void **state)
{
	struct plan_cut cut = plan_cut(1000, 128);
	struct frame_fenced out;
	struct wire_record rec;

	(void)state;
	memset(&out, 0xff, sizeof(out));
	book_read_out(&book, &out);
	assert_true(out.next_seq == 1);
	for (unsigned int i = 0; i < WINDOW_MSGS; i++) {
		assert_int_equal(out.pieces[i], 0);
	}
	for (unsigned int i = 0; i < WINDOW_MSGS; i++) {
		book_post(&book, 1000);
	}
	assert_int_equal(book_enter_whole(&book, 1, 7, &why), 0);
	assert_int_equal(book_enter_whole(&book, 3, 7, &why), 0);
	rec = record_of(2, 1000, cut, 5);
	assert_int_equal(enter(&rec), 0);
	rec = record_of(16, 1000, cut, 7);
	assert_int_equal(enter(&rec), 0);
	book_read_out(&book, &out);
	assert_true(out.next_seq == 2);
	assert_int_equal(out.pieces[0], 1u << 5);
	assert_int_equal(out.pieces[1], 1);
	assert_int_equal(out.pieces[14], 1u << 7);
	assert_int_equal(out.pieces[15], 0);
}

static void test_all_32_pieces(void **state)
{
	struct plan_cut cut = plan_cut(32 * 128, 128);

	(void)state;
	assert_int_equal(cut.pieces, 32);
	book_post(&book, 32 * 128);
	for (uint32_t piece = 0; piece < 32; piece++) {
		struct wire_record rec = record_of(1, 32 * 128, cut, piece);

		assert_false(book_is_complete(&book, 1));
		assert_int_equal(enter(&rec), 0);
	}
	assert_true(book_is_complete(&book, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_whole_in_order, setup),
		cmocka_unit_test_setup(test_whole_refused, setup),
		cmocka_unit_test_setup(test_pieces_any_order, setup),
		cmocka_unit_test_setup(test_records_mutated, setup),
		cmocka_unit_test_setup(test_cut_is_fixed, setup),
		cmocka_unit_test_setup(test_one_piece, setup),
		cmocka_unit_test_setup(test_imm_mutated, setup),
		cmocka_unit_test_setup(test_kinds_do_not_mix, setup),
		cmocka_unit_test_setup(test_seq_wrap, setup),
		cmocka_unit_test_setup(test_read_out, setup),
		cmocka_unit_test_setup(test_all_32_pieces, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
