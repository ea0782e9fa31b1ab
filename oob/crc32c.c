/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define CRC32C_POLY_REFLECTED 0x82f63b78u

static pthread_once_t crc_once = PTHREAD_ONCE_INIT;
/* written once below, read only after pthread_once */
static uint32_t crc_table[256];
static bool crc_has_instruction;

static void crc_init(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t crc = byte;

		for (int bit = 0; bit < 8; bit++) {
			crc = (crc >> 1) ^ ((crc & 1) != 0 ? CRC32C_POLY_REFLECTED : 0);
		}
		crc_table[byte] = crc;
	}
#if defined(__x86_64__)
	crc_has_instruction = __builtin_cpu_supports("sse4.2") != 0;
#endif
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t crc, const uint8_t *data,
							    size_t len_bytes)
{
	uint64_t state = ~crc;

	for (; len_bytes >= 8; data += 8, len_bytes -= 8) {
		uint64_t word;

		memcpy(&word, data, sizeof(word));
		state = __builtin_ia32_crc32di(state, word);
	}
	for (; len_bytes > 0; data++, len_bytes--) {
		state = __builtin_ia32_crc32qi((uint32_t)state, *data);
	}
	return ~(uint32_t)state;
}
#endif

uint32_t oob_crc32c_table(uint32_t crc, const void *data, size_t len_bytes)
{
	const uint8_t *bytes = data;

	pthread_once(&crc_once, crc_init);
	crc = ~crc;
	for (size_t i = 0; i < len_bytes; i++) {
		crc = (crc >> 8) ^ crc_table[(crc ^ bytes[i]) & 0xff];
	}
	return ~crc;
}

uint32_t oob_crc32c(uint32_t crc, const void *data, size_t len_bytes)
{
	pthread_once(&crc_once, crc_init);
#if defined(__x86_64__)
	if (crc_has_instruction) {
		return crc_sse42(crc, data, len_bytes);
	}
#endif
	return oob_crc32c_table(crc, data, len_bytes);
}
