/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/comm.h"
#include "plugin/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	PAGE_BYTES = 4096
};

static size_t page_up(size_t len_bytes)
{
	return (len_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/*
 * Each ring on its own pages. Both ends have all three: a ring is written by the peer at one end
 * and is the source of those writes at the other.
 */
int comm_rings_create(struct comm *comm)
{
	struct comm_rings *rings = &comm->rings;
	size_t cts_len = page_up(sizeof(struct wire_cts) * WINDOW_MSGS);
	size_t ack_len = page_up(sizeof(struct wire_ack) * PATHS_MAX);
	size_t record_len = page_up(sizeof(struct wire_record) * WIRE_RECORDS);
	size_t probe_len = (size_t)comm->rail_count * WIRE_PROBE_BYTES;
	size_t len = cts_len + ack_len + record_len + 2 * probe_len;
	char *block;
	int rc;

	block = aligned_alloc(PAGE_BYTES, len);
	if (!block) {
		return -ENOMEM;
	}
	memset(block, 0, len);
	/* Ordered: these are polled while the HCA writes them. */
	rc = ib_mr_get(runtime_instance()->mrs, block, len, true, &rings->mr);
	if (rc) {
		free(block);
		return rc;
	}
	rings->block = block;
	rings->cts = (struct wire_cts *)(void *)block;
	rings->acks = (struct wire_ack *)(void *)(block + cts_len);
	rings->records = (struct wire_record *)(void *)(block + cts_len + ack_len);
	rings->probes_in = (uint8_t *)block + cts_len + ack_len + record_len;
	rings->probes_out = rings->probes_in + probe_len;
	return 0;
}

void comm_rings_destroy(struct comm *comm)
{
	ib_mr_put(runtime_instance()->mrs, comm->rings.mr);
	free(comm->rings.block);
	comm->rings = (struct comm_rings){0};
}
