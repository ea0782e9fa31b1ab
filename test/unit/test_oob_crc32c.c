/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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
	for (size_t i = 0; i < sizeof(bytes); i++) {
		bytes[i] = (uint8_t)(i * i * 167 + i / 3);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc_vectors),
		cmocka_unit_test(crc_ways_agree),
	};

	return cmocka_run_group_tests_name("oob_crc32c", tests, NULL, NULL);
}
