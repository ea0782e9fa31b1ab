/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_SIBLING_H
#define BRAID_PLUGIN_SIBLING_H

#include "include/cause.h"
#include "plugin/comm.h"

/**
 * A path between two rails was given up because packets do not get through. Other comms with the
 * same peer process over the same two rails would each find out by themselves, one retry time after
 * their next post, one after the other: they are fenced at once instead, so that one dead cable
 * costs a job one pause. Causes that concern one QP, one port or one device are not passed on this
 * way (port and device events reach every comm anyway). Lock of `comm` held; acts later on the loop
 * thread.
 */
void sibling_tell(struct comm *comm, unsigned int path, enum cause cause);

#endif
