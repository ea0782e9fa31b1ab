/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/rx.h"

#include "include/log.h"

#include <errno.h>
#include <string.h>

enum {
	RECV_BATCH = 32, /* receives posted again at once */
};

static struct repair_rx *to_rx(struct repair_end *end)
{
	return (struct repair_rx *)end; /* first member */
}

static_assert(offsetof(struct repair_rx, end) == 0, "to_rx()");

/* Tell the sender's responder nothing it can't take: one receive per piece that may be
 * unacknowledged. */
static void post_recvs(struct repair_rx *rx, unsigned int p)
{
	struct repair_path *path = &rx->end.paths[p];
	unsigned int want = RECV_WRS + RECV_BATCH - path->recvs_out;
	unsigned int posted = 0;
	int rc;

	if ((path->state != PATH_UP && path->state != PATH_PROBING) || want < RECV_BATCH) {
		return;
	}
	rc = rx->end.ops->post_recvs(rx->end.ctx, p, repair_end_wr_id(&rx->end, p, WR_KIND_RECV),
				     want, &posted);
	path->recvs_out += posted;
	if (rc) {
		repair_end_fault(&rx->end, p, CAUSE_POST_FAILED, rx->end.now_ns);
	}
}

static void note_size(struct repair_rx *rx, uint64_t size_bytes)
{
	rx->pace.count_max =
		size_bytes > rx->end.limits.ack_large_bytes ? ACK_LARGE_MAX : ACK_MSGS_MAX;
}

static void enter_whole(struct repair_rx *rx, unsigned int p, struct wire_imm imm,
			uint32_t len_bytes)
{
	const char *why = NULL;
	uint64_t seq = 0;

	if (book_resolve(&rx->book, imm.seq_low, &seq)) {
		rx->slots[wire_slot(seq)].path_mask |= 1u << p;
	}
	if (book_enter_whole(&rx->book, imm.seq_low, len_bytes, &why)) {
		repair_end_fail(&rx->end, CAUSE_PROTOCOL, p, why);
	}
	note_size(rx, len_bytes);
}

static void enter_record(struct repair_rx *rx, unsigned int p, struct wire_imm imm)
{
	const char *why = NULL;
	struct wire_record rec;
	uint64_t seq;

	if (imm.piece >= PIECES_MAX || !book_resolve(&rx->book, imm.seq_low, &seq)) {
		repair_end_fail(&rx->end, CAUSE_PROTOCOL, p, "record for no open receive");
		return;
	}
	/* A copy: the peer could change it between two looks. */
	memcpy(&rec, &rx->records[wire_record_idx(seq, imm.piece)], sizeof(rec));
	if (rec.epoch != rx->end.paths[p].epoch) {
		repair_end_fail(&rx->end, CAUSE_PROTOCOL, p, "record of another epoch");
		return;
	}
	rx->slots[wire_slot(seq)].path_mask |= 1u << p;
	if (book_enter_record(&rx->book, imm, &rec, &why)) {
		repair_end_fail(&rx->end, CAUSE_PROTOCOL, p, why);
	}
	note_size(rx, rec.total_bytes);
}

/*
 * A completion with immediate. RC completes it after the writes before it on this QP were placed,
 * so the range it names is there.
 */
static void rx_arrived(struct repair_end *end, unsigned int p, uint32_t raw, uint32_t len_bytes)
{
	struct repair_rx *rx = to_rx(end);
	struct wire_imm imm = wire_imm_unpack(raw);

	if (imm.epoch_low != (uint8_t)end->paths[p].epoch) {
		repair_end_fail(end, CAUSE_PROTOCOL, p, "immediate of another epoch");
		return;
	}
	switch ((int)imm.kind) {
	case WIRE_IMM_WHOLE:
		enter_whole(rx, p, imm, len_bytes);
		break;
	case WIRE_IMM_RECORD:
		enter_record(rx, p, imm);
		break;
	default:
		repair_end_fail(end, CAUSE_PROTOCOL, p, "immediate of an unknown kind");
		return;
	}
	if (end->paths[p].recvs_out <= RECV_WRS) {
		post_recvs(rx, p);
	}
}

static void rx_retire(struct repair_end *end, unsigned int path, struct wrq_item item)
{
	(void)end;
	(void)path;
	(void)item;
}

static void rx_read_out(const struct repair_end *end, struct frame_fenced *out)
{
	book_read_out(&((const struct repair_rx *)end)->book, out);
}

/* The sender's ring, looked at after its fence: it has the entry, or has taken it already. */
static bool is_entry_there(const struct frame_fenced *sender, uint64_t seq)
{
	uint64_t ahead = seq - sender->next_seq;

	return seq < sender->next_seq || (ahead < WINDOW_MSGS && sender->pieces[ahead] != 0);
}

static void rx_reconcile(struct repair_end *end, unsigned int path, const struct frame_fenced *peer,
			 struct repair_report *report)
{
	struct repair_rx *rx = to_rx(end);

	rx->cts_seq = rx->book.next_seq; /* any of them may be wanted again */
	for (uint64_t seq = rx->book.next_seq; seq < rx->book.posted_seq; seq++) {
		struct repair_rx_slot *slot = &rx->slots[wire_slot(seq)];

		if (slot->cts_path != (int)path) {
			continue;
		}
		slot->cts_path = -1;
		if (!is_entry_there(peer, seq)) {
			slot->cts_wanted = true;
			report->again_count++;
		}
	}
}

/* On its way, or lost with its path. */
static void note_told(struct repair_rx *rx, uint64_t next_seq)
{
	if (next_seq > rx->acked_seq) {
		rx->acked_seq = next_seq;
	}
}

/* False when no path can take it now. */
static bool post_cts(struct repair_rx *rx, struct repair_rx_slot *slot)
{
	int p = plan_pick_tiny(rx->end.paths, rx->end.path_count);
	struct wrq_item item = {.kind = WRQ_CTS, .slot = (uint8_t)wire_slot(slot->seq)};
	int rc;

	if (p < 0) {
		return false;
	}
	item.signalled = repair_end_signal_due(&rx->end.paths[p]);
	rc = rx->end.ops->post_cts(rx->end.ctx, (unsigned int)p, item.slot,
				   repair_end_wr_id(&rx->end, (unsigned int)p, WR_KIND_ITEM),
				   item.signalled);
	if (rc == -EAGAIN) {
		return false;
	}
	slot->cts_wanted = false;
	slot->cts_path = (int8_t)p;
	note_told(rx, wire_cts_acks(&rx->cts[item.slot].l0));
	repair_end_posted(&rx->end, (unsigned int)p, item, rc);
	return true;
}

static void post_ack_on(struct repair_rx *rx, unsigned int p, bool signalled)
{
	struct wrq_item item = {.kind = WRQ_ACK, .signalled = signalled};
	uint64_t next_seq = rx->book.next_seq;
	int rc;

	rc = rx->end.ops->post_ack(rx->end.ctx, p, next_seq,
				   repair_end_wr_id(&rx->end, p, WR_KIND_ITEM), signalled);
	if (rc == -EAGAIN) {
		return;
	}
	note_told(rx, next_seq);
	repair_end_posted(&rx->end, p, item, rc);
}

static void post_ack(struct repair_rx *rx)
{
	int p = plan_pick_tiny(rx->end.paths, rx->end.path_count);

	if (p >= 0) {
		post_ack_on(rx, (unsigned int)p, repair_end_signal_due(&rx->end.paths[p]));
	}
}

static bool may_wait(struct repair_rx *rx)
{
	if (!repair_rx_ack_may_wait(rx)) {
		return false;
	}
	if (!rx->pace.is_listed) {
		rx->pace.is_listed = rx->end.ops->ack_later(rx->end.ctx);
		rx->pace.round_seq = rx->acked_seq;
	}
	return rx->pace.is_listed;
}

static bool rx_waits(const struct repair_end *end)
{
	const struct book *book = &((const struct repair_rx *)end)->book;

	return book->next_seq < book->posted_seq;
}

/* Unsignalled entries may be lost on a silent rail: the word once more, signalled, tells. */
static void rx_probe(struct repair_end *end, unsigned int p)
{
	if (wrq_has_room(&end->paths[p].sq)) {
		post_ack_on(to_rx(end), p, true);
	}
}

/* Oldest first. The cursor is raised by what is seen, and read anew after each post: a post may end
 * in rx_reconcile(), which takes it back. */
static void post_wanted_cts(struct repair_rx *rx)
{
	if (rx->cts_seq < rx->book.next_seq) {
		rx->cts_seq = rx->book.next_seq;
	}
	while (rx->cts_seq < rx->book.posted_seq) {
		struct repair_rx_slot *slot = &rx->slots[wire_slot(rx->cts_seq)];

		if (!slot->cts_wanted) {
			rx->cts_seq++;
		} else if (!post_cts(rx, slot)) {
			return;
		}
	}
}

static void rx_pump(struct repair_end *end)
{
	struct repair_rx *rx = to_rx(end);

	for (unsigned int p = 0; p < end->path_count; p++) {
		if (end->paths[p].recvs_out <= RECV_WRS) {
			post_recvs(rx, p);
		}
	}
	if (rx->cts_seq < rx->book.posted_seq) {
		post_wanted_cts(rx);
	}
	if (rx->book.next_seq > rx->acked_seq && !may_wait(rx)) {
		post_ack(rx);
	}
}

static void rx_tell_keys(const struct repair_end *end, unsigned int p, struct frame_rejoin *out)
{
	const struct repair_rx *rx = (const struct repair_rx *)end;

	out->keys_seq = rx->book.next_seq;
	for (uint64_t seq = out->keys_seq; seq < rx->book.posted_seq; seq++) {
		unsigned int i = out->key_count++;

		if (end->ops->key(end->ctx, p, rx->slots[wire_slot(seq)].cookie, &out->keys[i])) {
			out->key_mask |= 1u << i;
		}
	}
}

bool repair_rx_ack_round(struct repair_rx *rx, bool is_last, uint64_t now_ns)
{
	struct ack_pace *pace = &rx->pace;

	repair_end_at(&rx->end, now_ns);
	if (!rx->end.failed && rx->book.next_seq > rx->acked_seq &&
	    (is_last || pace->round_seq == rx->acked_seq)) {
		post_ack(rx); /* else what waits may be here since a moment ago */
	}
	pace->round_seq = rx->acked_seq;
	/* Should it have found no path or no room, the next round tries again. */
	pace->is_listed = !rx->end.failed && rx->book.next_seq > rx->acked_seq;
	return pace->is_listed;
}

static bool rx_starved(const struct repair_end *end)
{
	return repair_end_up_count(end) == 0;
}

static const struct repair_role rx_role = {
	.arrived = rx_arrived,
	.retire = rx_retire,
	.read_out = rx_read_out,
	.reconcile = rx_reconcile,
	.pump = rx_pump,
	.tell_keys = rx_tell_keys,
	.starved = rx_starved,
	.waits = rx_waits,
	.probe = rx_probe,
};

void repair_rx_init(struct repair_rx *rx, const struct repair_ops *ops, void *ctx,
		    const struct repair_limits *limits, struct wire_cts *cts,
		    const struct wire_record *records)
{
	memset(rx, 0, sizeof(*rx));
	repair_end_init(&rx->end, &rx_role, ops, ctx, limits);
	book_init(&rx->book);
	rx->pace.count_max = ACK_MSGS_MAX;
	rx->cts = cts;
	rx->records = records;
	rx->released_seq = 1;
	rx->acked_seq = 1;
}

/* The second line is written, and sent, only when there are paths for it. */
static void fill_cts(struct repair_rx *rx, const struct repair_recv *recv, uint64_t seq)
{
	struct wire_cts *entry = &rx->cts[wire_slot(seq)];

	entry->l0 = (struct wire_cts_line0){.addr = recv->addr,
					    .size_bytes = recv->size_bytes,
					    .key_mask = (uint16_t)recv->key_mask,
					    .behind = (uint16_t)(seq - rx->book.next_seq),
					    .seq = seq};
	memcpy(entry->l0.rkeys, recv->rkeys, sizeof(entry->l0.rkeys));
	entry->l0.check = wire_line_check(&entry->l0);
	if (rx->end.path_count <= 8) {
		return;
	}
	entry->l1 = (struct wire_cts_line1){.seq = seq};
	memcpy(entry->l1.rkeys, recv->rkeys + 8, sizeof(entry->l1.rkeys));
	entry->l1.check = wire_line_check(&entry->l1);
}

int repair_rx_recv(struct repair_rx *rx, const struct repair_recv *recv, uint64_t now_ns,
		   uint64_t *seq)
{
	struct repair_rx_slot *slot = &rx->slots[wire_slot(rx->book.posted_seq)];

	repair_end_at(&rx->end, now_ns);
	if (rx->end.failed) {
		return -EIO;
	}
	if (rx->book.posted_seq - rx->released_seq >= WINDOW_MSGS) {
		return -EAGAIN;
	}
	*seq = book_post(&rx->book, recv->size_bytes);
	*slot = (struct repair_rx_slot){.seq = *seq,
					.open = true,
					.cts_wanted = true,
					.cts_path = -1,
					.cookie = recv->cookie};
	fill_cts(rx, recv, *seq);
	post_wanted_cts(rx);
	return 0;
}
