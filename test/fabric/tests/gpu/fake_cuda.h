/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_FAKE_CUDA_H
#define BRAID_TEST_FABRIC_FAKE_CUDA_H

/* What the stand-in for CUDA's driver library offers beside CUDA's own calls; looked up by dlsym.
 */

/** From now on each copy pauses so long in the middle. */
void fake_cuda_delay(unsigned int ms);
/** Copies made so far. */
unsigned int fake_cuda_copies(void);
/** Where the byte at a device address really is. */
char *fake_cuda_look(unsigned long long addr);

#endif
