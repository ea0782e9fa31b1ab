/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_FLUSH_H
#define BRAID_PLUGIN_FLUSH_H

#include "plugin/comm.h"

#include <stdbool.h>

/** Progress of a flush request: true when every read is back. Lock held. */
bool flush_poll(struct comm *comm, struct request *request);

#endif
