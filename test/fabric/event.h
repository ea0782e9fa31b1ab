/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_EVENT_H
#define BRAID_TEST_FABRIC_EVENT_H

#include "test/fabric/ctx.h"

/** Moves the instance's events that are due to the pipe behind async_fd; engine thread. Returns
 * when the next is due, UINT64_MAX = none waits. */
uint64_t fab_event_forward(struct fab_ctx *ctx);

/** Takes the events of a QP, CQ or SRQ that goes away back from the pipe, where nobody read them
 * yet, and off `told`, the count of those written. Its number is off the tables already. */
void fab_event_withdraw(struct fab_ctx *ctx, const void *object, uint32_t *told);

#endif
