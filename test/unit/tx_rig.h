/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_TX_RIG_H
#define BRAID_TEST_TX_RIG_H

/* A sender with three paths that are UP, and what its peer writes. */

#include "test/unit/fake_ops.h"

static struct repair_tx tx;
static struct wire_cts cts[WINDOW_MSGS];
static struct wire_ack acks[PATHS_MAX];
static uint8_t payload[64 * 1024];

static inline int setup(void **state)
{
	(void)state;
	memset(&fake, 0, sizeof(fake));
	memset(cts, 0, sizeof(cts));
	memset(acks, 0, sizeof(acks));
	repair_tx_init(&tx, &fake_ops, NULL, &fake_limits, cts, acks);
	fake_paths_up(&tx.end, 3);
	return 0;
}

/* The entry of seq, filled when every message below that one was complete. */
static inline void fill_entry(uint64_t seq, uint64_t size, uint32_t key_mask, uint64_t below)
{
	struct wire_cts *entry = &cts[wire_slot(seq)];

	memset(entry, 0, sizeof(*entry));
	entry->l0.addr = 0x100000 * seq;
	entry->l0.size_bytes = size;
	entry->l0.key_mask = (uint16_t)key_mask;
	for (unsigned int p = 0; p < 8; p++) {
		entry->l0.rkeys[p] = 100 + p;
		entry->l1.rkeys[p] = 108 + p;
	}
	entry->l0.behind = (uint16_t)(seq - below);
	entry->l0.seq = entry->l1.seq = seq;
	entry->l0.check = wire_line_check(&entry->l0);
	entry->l1.check = wire_line_check(&entry->l1);
}

/* Filled before anything was complete. */
static inline void clear_to_send(uint64_t seq, uint64_t size, uint32_t key_mask)
{
	fill_entry(seq, size, key_mask, 1);
}

static inline int send_bytes(uint64_t size, uint64_t *seq)
{
	struct repair_send send = {.cookie = payload,
				   .addr = (uint64_t)payload,
				   .size_bytes = size,
				   .key_mask = 0xffff};

	return repair_tx_send(&tx, &send, 1, seq);
}

/* The first message is under way, on a path of the mask. */
static inline void send_first(uint32_t key_mask)
{
	uint64_t seq;

	clear_to_send(1, 100, key_mask);
	assert_int_equal(send_bytes(100, &seq), 0);
}

static inline bool is_done(uint64_t seq)
{
	uint64_t size;

	return repair_tx_done(&tx, seq, &size);
}

/* Everything that was posted and not completed on a path completes, in order. */
static inline void complete_path(unsigned int path, enum cause cause)
{
	for (unsigned int i = 0; i < fake.piece_count; i++) {
		struct wr_id id = wr_id_unpack(fake.pieces[i].wr_id);

		if (id.path == path && wrq_knows(&tx.end.paths[path].sq, id.idx)) {
			fake_complete(&tx.end, fake.pieces[i].wr_id, cause, 2);
		}
	}
	for (unsigned int i = 0; i < fake.marker_count; i++) {
		struct wr_id id = wr_id_unpack(fake.markers[i].wr_id);

		if (id.path == path && wrq_knows(&tx.end.paths[path].sq, id.idx)) {
			fake_complete(&tx.end, fake.markers[i].wr_id, cause, 2);
		}
	}
}

#endif
