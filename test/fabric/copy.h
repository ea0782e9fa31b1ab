/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_COPY_H
#define BRAID_TEST_FABRIC_COPY_H

#include "test/fabric/inst.h"

/** A scatter or gather list with a cursor. `pos_bytes` counts from its start. */
struct fab_list {
	const struct fab_sge *sge;
	uint64_t count;
	uint64_t pos_bytes;
};

/** What a copy came to. */
enum fab_copied {
	FAB_COPIED_OK,
	FAB_COPIED_GONE, /* the other process is no more */
	FAB_COPIED_BUSY, /* the other process is stopped and has to help (gpu.h): later again */
	FAB_COPIED_BAD_LOCAL, /* memory behind a valid key is not mapped here */
	FAB_COPIED_BAD_PEER,  /* ... or there */
};

/**
 * Moves `len` bytes from the local list into the peer's list, then stores `mark` in the peer's
 * 8-byte word `mark_word` (a pointer into this process's mapping of `peer`): with the same system
 * call, after the bytes. No cursor is moved. Within one process it is a plain copy that no
 * sanitizer looks at, as none sees what an adapter writes.
 */
enum fab_copied fab_copy_out(struct fab_inst *self, struct fab_inst *peer,
			     const struct fab_list *local, const struct fab_list *remote,
			     uint64_t len, _Atomic uint64_t *mark_word, uint64_t mark);
/** Copies `len` bytes of this process's list to `to`. False when not all of it is mapped. */
bool fab_copy_gather(const struct fab_list *local, uint64_t len, void *to);
/** The other way, for RDMA reads; no mark. */
enum fab_copied fab_copy_in(struct fab_inst *self, struct fab_inst *peer,
			    const struct fab_list *local, const struct fab_list *remote,
			    uint64_t len);

#endif
