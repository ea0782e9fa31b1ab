/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_PLUGIN_LISTEN_H
#define BRAID_PLUGIN_LISTEN_H

#include "include/frame.h"
#include "oob/link.h"

#include <stdint.h>

struct comm;
struct listener;

#define HANDLE_MAGIC 0x64617242u /* "Brad" */

/** What NCCL carries from listen to connect. The last field is the connecting process's own. */
struct handle {
	uint32_t magic;
	uint32_t version; /* PROTO_VERSION */
	uint8_t token[16];
	struct oob_addr addr;
	uint64_t connecting; /* id of connect's comm while it is under way, 0 at first */
};

/** OPEN came: create the comm and begin, or refuse. Loop thread. */
void listener_on_open(struct oob_link *link, const struct frame *frame);

/** A comm is ready for plugin_accept: takes over its reference. */
void listener_push(struct listener *listener, struct comm *comm);

void listener_put(struct listener *listener);

/** Close what is left: the last user has finalized. Bounded as closing is. Not from own threads. */
void listener_close_all(void);

#endif
