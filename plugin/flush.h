/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_FLUSH_H
#define BRAID_PLUGIN_FLUSH_H

#include "plugin/comm.h"

#include <stdbool.h>

/**
 * GPU memory was registered: make the loopback queue pairs of a receiver, so that iflush never has
 * to. Failure shows at iflush. Blocks as verbs do: service thread, no lock held.
 */
void flush_prepare(struct comm *comm);

/** The path is made anew: so is its loopback queue pair. 0 or -errno. Rail's worker. */
int flush_rebuild(struct comm_path *path);

/** Progress of a flush request: true when every read is back. Lock held. */
bool flush_poll(struct comm *comm, struct request *request, uint64_t now_ns);

#endif
