/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_INST_H
#define BRAID_TEST_FABRIC_INST_H

#include "test/fabric/root.h"

#include <stdbool.h>
#include <stddef.h>

/**
 * An instance is one opened device: a row in the root and the file inst-N.shm. Creates one in `dir`
 * for the device of `host` whose ports are the `rail_count` rails from `rail` on. Returns 0 or
 * -errno; -ENOSPC when the ids are used up.
 */
struct fab_inst_ports {
	uint32_t host;
	uint32_t rail;
	uint32_t rail_count;
};
int fab_inst_create(struct fab_root *root, const char *dir, const struct fab_inst_ports *ports,
		    struct fab_inst **inst);

/** Marks the instance closed, removes its file and unmaps it. Peers may keep it mapped. */
void fab_inst_close(struct fab_root *root, const char *dir, struct fab_inst *inst);

/**
 * The mapping of a peer's instance, or NULL when it was closed or its file cannot be mapped. Mapped
 * at first use and kept until fab_inst_forget_peers(). Any thread.
 */
struct fab_inst *fab_inst_peer(struct fab_root *root, const char *dir, uint32_t id);
void fab_inst_forget_peers(void);

/** Wakes the instance's engine if it sleeps. From any process. */
void fab_inst_ring(struct fab_inst *inst);

/** Sleeps until the doorbell differs from `seen` or `timeout_ns` passed (UINT64_MAX = no limit). */
void fab_inst_wait(struct fab_inst *inst, uint32_t seen, uint64_t timeout_ns);

/** Queues an asynchronous event for the instance and rings it. Drops it when the queue is full. */
void fab_inst_post_event(struct fab_inst *inst, const struct fab_event *event);
/** The oldest event, once its time has come. In order: one that waits keeps those behind it. When
 * there is none, *due_ns is when the next may be told, UINT64_MAX = never. */
bool fab_inst_take_event(struct fab_inst *inst, struct fab_event *event, uint64_t *due_ns);

enum fab_life {
	FAB_LIFE_RUNS,
	FAB_LIFE_STOPPED,
	FAB_LIFE_GONE,
};

/** What became of the process of instance `id`; reads /proc, so not for every packet. */
enum fab_life fab_inst_life(struct fab_root *root, uint32_t id);

/** Calls fn for each live instance that has (host, rail) among its ports. */
void fab_inst_each(struct fab_root *root, const char *dir, uint32_t host, uint32_t rail,
		   void (*fn)(struct fab_inst *inst, void *arg), void *arg);

static inline void *fab_inst_at(struct fab_inst *inst, uint64_t offset)
{
	return (char *)inst + offset;
}

/** Opened before its adapter was unplugged: verbs go on, but nothing gets in or out any more. */
static inline bool fab_inst_pulled(struct fab_root *root, const struct fab_inst *inst)
{
	return fab_root_pulls(root, inst->host, inst->rail, inst->rail_count) != inst->pull_count;
}

#endif
