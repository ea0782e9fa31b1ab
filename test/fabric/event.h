/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_EVENT_H
#define BRAID_TEST_FABRIC_EVENT_H

#include "test/fabric/ctx.h"

/** Moves the instance's queued events to the pipe behind async_fd; engine thread. */
void fab_event_forward(struct fab_ctx *ctx);

#endif
