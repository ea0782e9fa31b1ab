/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_CRC32C_H
#define BRAID_OOB_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/**
 * CRC-32C (Castagnoli, RFC 3720 section 12.1) of `len_bytes` bytes, continued from `crc`: 0 for the
 * first call, the last result for the next. Uses the SSE4.2 instruction where the CPU has it.
 * Any thread.
 */
uint32_t oob_crc32c(uint32_t crc, const void *data, size_t len_bytes);

/** The same by table only: what machines without the instruction run. Any thread. */
uint32_t oob_crc32c_table(uint32_t crc, const void *data, size_t len_bytes);

#endif
