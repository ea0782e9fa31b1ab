/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_IB_RANDOM_H
#define BRAID_IB_RANDOM_H

#include <stdint.h>

/** 32 random bits from the kernel; from clock and process id where it has none to give. Any thread.
 */
uint32_t ib_random_u32(void);

#endif
