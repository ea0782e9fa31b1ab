/* SPDX-License-Identifier: Apache-2.0 */
#include "repair/tx.h"

#include "include/log.h"

#include <errno.h>
#include <string.h>

static struct repair_tx *to_tx(struct repair_end *end)
{
	return (struct repair_tx *)end; /* first member */
}

static const struct repair_tx *to_const_tx(const struct repair_end *end)
{
	return (const struct repair_tx *)end;
}

static_assert(offsetof(struct repair_tx, end) == 0, "to_tx()");

static uint32_t all_pieces(struct plan_cut cut)
{
	return cut.pieces == 32 ? UINT32_MAX : (1u << cut.pieces) - 1;
}

/* One line of an entry, which the peer's HCA may be writing right now. */
static bool is_line_there(const void *line, uint64_t seq)
{
	const uint64_t *tail = (const uint64_t *)line + 7;

	return __atomic_load_n(tail, __ATOMIC_ACQUIRE) == seq &&
	       wire_line_check(line) == ((const uint32_t *)line)[13];
}

/* The second line is written, and read, only when there are paths for it. */
static bool is_entry_there(const struct repair_tx *tx, uint64_t seq)
{
	const struct wire_cts *entry = &tx->cts[wire_slot(seq)];

	return is_line_there(&entry->l0, seq) &&
	       (tx->end.path_count <= 8 || is_line_there(&entry->l1, seq));
}

static void fill_record(const struct repair_tx_msg *msg, unsigned int piece, uint32_t epoch,
			struct repair_piece *out)
{
	out->record_idx = wire_record_idx(msg->seq, piece);
	out->record.total_bytes = msg->size_bytes;
	out->record.offset_bytes = plan_piece_offset_bytes(msg->cut, piece);
	out->record.len_bytes = out->len_bytes;
	out->record.epoch = epoch;
	out->record.pieces = (uint16_t)msg->cut.pieces;
	out->record.reserved = 0;
}

/* What only a record needs is left alone for a whole message. */
static void fill_piece(const struct repair_tx *tx, const struct repair_tx_msg *msg,
		       unsigned int piece, struct repair_piece *out)
{
	const struct repair_path *path = &tx->end.paths[out->path];
	uint64_t offset = plan_piece_offset_bytes(msg->cut, piece);

	out->wr_id = repair_end_wr_id(&tx->end, out->path, WR_KIND_ITEM);
	out->cookie = msg->cookie;
	out->local_addr = msg->local_addr + offset;
	out->remote_addr = msg->remote_addr + offset;
	out->rkey = msg->rkeys[out->path];
	out->whole = msg->whole;
	out->needs_signal = repair_end_signal_due(path);
	out->record.seq = msg->seq;
	out->record.piece = (uint16_t)piece;
	out->imm = wire_imm_pack(
		(struct wire_imm){.kind = msg->whole ? WIRE_IMM_WHOLE : WIRE_IMM_RECORD,
				  .epoch_low = (uint8_t)path->epoch,
				  .piece = (uint8_t)piece,
				  .seq_low = (uint16_t)msg->seq});
	if (!msg->whole) {
		out->part_wr_id = repair_end_wr_id(&tx->end, out->path, WR_KIND_PART);
		fill_record(msg, piece, path->epoch, out);
	}
}

/* Small messages come in streams, which on many rails would only have more queues to be looked for
 * in. Half of the smallest piece is gone in a moment. */
static uint64_t idle_bytes(const struct repair_limits *limits, const struct repair_tx_msg *msg)
{
	return msg->size_bytes <= limits->small_bytes ? limits->piece_min_bytes / 2 : 0;
}

static int pick_path(struct repair_tx *tx, const struct repair_tx_msg *msg, uint32_t len_bytes)
{
	const struct repair_path *paths = tx->end.paths;
	struct plan_ask ask;
	int p = -1;

	if (tx->end.path_count == 1) { /* quickly: there may be many small messages */
		return paths[0].state == PATH_UP && msg->key_mask & 1 && wrq_has_room(&paths[0].sq)
			       ? 0
			       : -1;
	}
	if (msg->pace.is_timed) {
		p = pace_retry(&tx->end, &msg->pace, msg->key_mask);
	}
	ask = (struct plan_ask){.key_mask = msg->key_mask,
				.active_count = tx->end.active_count,
				.len_bytes = len_bytes,
				.weight_full = (uint64_t)tx->end.weight_max * PACE_FULL,
				.window_bytes = tx->end.limits.window_bytes,
				.idle_bytes = idle_bytes(&tx->end.limits, msg)};
	return p >= 0 ? p : plan_pick(paths, tx->end.path_count, &ask);
}

/* Post one pending piece. False when no path can take it now. */
static bool post_piece(struct repair_tx *tx, struct repair_tx_msg *msg, unsigned int piece)
{
	uint32_t len = plan_piece_len_bytes(msg->cut, msg->size_bytes, piece);
	int p = pick_path(tx, msg, len);
	uint64_t load_bytes = 0;
	struct repair_piece out; /* fill_piece() sets what is read */
	int rc;
	struct wrq_item item = {.kind = WRQ_PIECE,
				.slot = (uint8_t)wire_slot(msg->seq),
				.piece = (uint8_t)piece,
				.signalled = true,
				.len_bytes = len};

	if (p < 0) {
		return false;
	}
	out.path = (unsigned int)p;
	out.len_bytes = len;
	fill_piece(tx, msg, piece, &out);
	/* Booked before the attempt: a post that fails half way is the path's until it is fenced.
	 */
	msg->pending &= ~(1u << piece);
	msg->sent[p] |= 1u << piece;
	msg->wrs_out++;
	if (msg->pace.is_timed) {
		load_bytes = share_load_bytes(&tx->end.paths[p]);
	}
	rc = tx->end.ops->post_piece(tx->end.ctx, &out);
	if (rc == REPAIR_COPIED) {
		/* Its bytes are few, and count as outstanding far longer than they are. */
		item.kind = WRQ_COPY;
		item.signalled = out.needs_signal;
		item.len_bytes = 0;
		msg->wrs_out--;
		rc = 0;
	}
	if (repair_end_posted(&tx->end, out.path, item, rc)) {
		msg->pending |= 1u << piece;
		msg->sent[p] &= ~(1u << piece);
		msg->wrs_out--;
		return false;
	}
	if (msg->pace.is_timed && item.kind == WRQ_PIECE) {
		pace_post(&tx->end, &msg->pace, out.path, load_bytes, len);
	}
	return true;
}

/*
 * Oldest first: nothing overtakes a message that waits. The cursor is raised by what is seen, never
 * by what was posted, and read anew after each post: a post may end in tx_reconcile(), which takes
 * it back.
 */
static void tx_pump(struct repair_end *end)
{
	struct repair_tx *tx = to_tx(end);

	if (tx->pump_seq < tx->released_seq) {
		tx->pump_seq = tx->released_seq;
	}
	while (tx->pump_seq < tx->next_seq) {
		struct repair_tx_msg *msg = &tx->msgs[wire_slot(tx->pump_seq)];

		if (!msg->pending) {
			tx->pump_seq++;
		} else if (end->failed ||
			   !post_piece(tx, msg, (unsigned int)__builtin_ctz(msg->pending))) {
			return;
		}
	}
}

static void tx_arrived(struct repair_end *end, unsigned int path, uint32_t imm, uint32_t len_bytes)
{
	(void)imm;
	(void)len_bytes;
	repair_end_fail(end, CAUSE_PROTOCOL, path, "a receiver sent data to a sender");
}

static void tx_retire(struct repair_end *end, unsigned int path, struct wrq_item item)
{
	struct repair_tx *tx = to_tx(end);
	struct repair_tx_msg *msg = &tx->msgs[item.slot];

	if (item.kind != WRQ_PIECE) {
		return;
	}
	ASSERT(msg->wrs_out > 0);
	msg->wrs_out--;
	if (msg->pace.is_timed) {
		pace_retire(end, &msg->pace, path, msg->wrs_out == 0 && !msg->pending);
	}
}

/* Which clear-to-send entries have arrived: the receiver writes the others again. */
static void tx_read_out(const struct repair_end *end, struct frame_fenced *out)
{
	const struct repair_tx *tx = to_const_tx(end);

	out->next_seq = tx->next_seq;
	for (unsigned int i = 0; i < WINDOW_MSGS; i++) {
		out->pieces[i] = is_entry_there(tx, tx->next_seq + i) ? 1 : 0;
	}
}

/*
 * The receiver's book says so: by acknowledgement word, entry, FENCED or CLOSE. A message with a
 * piece that is on no path can't be complete there: such a word is a lie or a bug, and believing it
 * would free a buffer that is to be sent again.
 */
static void note_acked(struct repair_tx *tx, uint64_t next_seq)
{
	bool is_sent = next_seq <= tx->next_seq;

	for (uint64_t seq = tx->acked_seq; is_sent && seq < next_seq; seq++) {
		is_sent = tx->msgs[wire_slot(seq)].pending == 0;
	}
	if (!is_sent) {
		repair_end_fail(&tx->end, CAUSE_PROTOCOL, PATHS_MAX,
				"the receiver acknowledged what was not sent");
	} else if (next_seq > tx->acked_seq) {
		tx->acked_seq = next_seq;
	}
}

/* Most times nothing has come, and one look at one word tells. */
static inline bool is_line_new(const struct repair_tx *tx)
{
	return __atomic_load_n(&tx->cts[wire_slot(tx->seen_seq)].l0.seq, __ATOMIC_RELAXED) ==
	       tx->seen_seq;
}

/* In order, as they are used. One that is missing is on a path that will be fenced: then FENCED
 * acknowledges. */
static void look_at_entries(struct repair_tx *tx)
{
	while (tx->seen_seq - tx->next_seq < WINDOW_MSGS && is_entry_there(tx, tx->seen_seq)) {
		uint64_t acks = wire_cts_acks(&tx->cts[wire_slot(tx->seen_seq)].l0);

		tx->seen_seq++;
		if (acks > tx->acked_seq) {
			note_acked(tx, acks);
		}
	}
}

static uint64_t pieces_len_bytes(const struct repair_tx_msg *msg, uint32_t pieces)
{
	uint64_t sum = 0;

	for (; pieces; pieces &= pieces - 1) {
		sum += plan_piece_len_bytes(msg->cut, msg->size_bytes,
					    (uint32_t)__builtin_ctz(pieces));
	}
	return sum;
}

/*
 * Both ends are fenced. What was ever posted on the path in this epoch and is not in the receiver's
 * book goes back to pending, whether or not a completion said it was sent: an HCA may acknowledge
 * and die before it places (P3).
 */
static void tx_reconcile(struct repair_end *end, unsigned int path, const struct frame_fenced *peer,
			 struct repair_report *report)
{
	struct repair_tx *tx = to_tx(end);

	note_acked(tx, peer->next_seq);
	tx->pump_seq = tx->released_seq; /* any of them may have to wait again */
	pace_forget(&end->paths[path]);
	for (uint64_t seq = tx->released_seq; seq < tx->next_seq; seq++) {
		struct repair_tx_msg *msg = &tx->msgs[wire_slot(seq)];
		uint32_t missing = 0;

		pace_drop(end, &msg->pace);
		if (msg->open && seq >= peer->next_seq && seq >= tx->acked_seq) {
			uint64_t ahead = seq - peer->next_seq;

			missing = msg->sent[path] &
				  (ahead < WINDOW_MSGS ? ~peer->pieces[ahead] : UINT32_MAX);
		}
		msg->sent[path] = 0;
		msg->pending |= missing;
		report->replay_bytes += pieces_len_bytes(msg, missing);
		report->replay_pieces += (uint32_t)__builtin_popcount(missing);
	}
}

static bool tx_starved(const struct repair_end *end)
{
	const struct repair_tx *tx = to_const_tx(end);
	uint32_t up = repair_end_up_mask(end);

	for (uint64_t seq = tx->released_seq; seq < tx->next_seq; seq++) {
		const struct repair_tx_msg *msg = &tx->msgs[wire_slot(seq)];

		if (msg->pending && !(msg->key_mask & up)) {
			return true;
		}
	}
	return up == 0;
}

static bool tx_waits(const struct repair_end *end)
{
	return to_const_tx(end)->acked_seq < to_const_tx(end)->next_seq;
}

/* Key and mask bit of message seq on path p, if a REJOINED had them. */
static bool find_key(const struct repair_tx *tx, unsigned int p, uint64_t seq, uint32_t *rkey,
		     bool *is_there)
{
	const struct repair_tx_keys *keys = &tx->rekeyed[p];
	uint64_t i = seq - keys->first_seq;

	if (i >= keys->count) {
		return false;
	}
	*rkey = keys->keys[i];
	*is_there = keys->mask >> i & 1;
	return true;
}

/* The buffers of a message on hand, as both ends have them registered now. */
static void renew_key(struct repair_tx *tx, unsigned int p, struct repair_tx_msg *msg)
{
	uint32_t unused;
	bool is_there;

	if (!msg->size_bytes || !find_key(tx, p, msg->seq, &msg->rkeys[p], &is_there)) {
		return;
	}
	msg->key_mask &= ~(1u << p);
	if (is_there && tx->end.ops->key(tx->end.ctx, p, msg->cookie, &unused)) {
		msg->key_mask |= 1u << p;
	}
}

static void tx_take_keys(struct repair_end *end, unsigned int p, const struct frame_rejoin *frame)
{
	struct repair_tx *tx = to_tx(end);
	struct repair_tx_keys *keys = &tx->rekeyed[p];

	keys->first_seq = frame->keys_seq;
	keys->count = frame->key_count;
	keys->mask = frame->key_mask;
	memcpy(keys->keys, frame->keys, sizeof(keys->keys));
	if (keys->first_seq + keys->count > tx->rekeyed_seq) {
		tx->rekeyed_seq = keys->first_seq + keys->count;
	}
	for (uint64_t seq = tx->released_seq; seq < tx->next_seq; seq++) {
		struct repair_tx_msg *msg = &tx->msgs[wire_slot(seq)];

		if (msg->open) {
			renew_key(tx, p, msg);
		}
	}
}

static void tx_probe(struct repair_end *end, unsigned int path)
{
	struct wrq_item item = {.kind = WRQ_MARKER, .signalled = true};

	if (wrq_has_room(&end->paths[path].sq)) {
		repair_end_posted(end, path, item,
				  end->ops->post_marker(end->ctx, path,
							repair_end_wr_id(end, path, WR_KIND_ITEM)));
	}
}

static const struct repair_role tx_role = {
	.offers = true,
	.arrived = tx_arrived,
	.retire = tx_retire,
	.read_out = tx_read_out,
	.reconcile = tx_reconcile,
	.pump = tx_pump,
	.take_keys = tx_take_keys,
	.starved = tx_starved,
	.waits = tx_waits,
	.probe = tx_probe,
};

void repair_tx_init(struct repair_tx *tx, const struct repair_ops *ops, void *ctx,
		    const struct repair_limits *limits, const struct wire_cts *cts,
		    const struct wire_ack *acks)
{
	memset(tx, 0, sizeof(*tx));
	repair_end_init(&tx->end, &tx_role, ops, ctx, limits);
	tx->cts = cts;
	tx->acks = acks;
	tx->next_seq = 1;
	tx->seen_seq = 1;
	tx->acked_seq = 1;
	tx->released_seq = 1;
	tx->pump_seq = 1;
}

/* One path carries it, unless more come back meanwhile. */
static bool is_alone(const struct repair_tx *tx, uint32_t key_mask)
{
	return tx->end.active_count == 1 ||
	       plan_usable_count(tx->end.paths, tx->end.path_count, key_mask) <= 1;
}

/* Of a message that several paths share: as many as there are paths, but for the bounds. */
static uint64_t piece_bytes(const struct repair_end *end, uint64_t size_bytes)
{
	uint64_t len = size_bytes / end->active_count / PIECE_ALIGN_BYTES * PIECE_ALIGN_BYTES;

	len = len < end->piece_bytes ? len : end->piece_bytes;
	return len > end->limits.piece_min_bytes ? len : end->limits.piece_min_bytes;
}

/*
 * Cutting is for sharing. Where there is nobody to share with, pieces only bound what a failure
 * sends again and what the stall clock allows for (alone_bytes). A message of one piece needs no
 * record: its length is the completion's, and RC completes the immediate behind the data.
 */
static void cut_msg(const struct repair_tx *tx, struct repair_tx_msg *msg)
{
	const struct repair_limits *limits = &tx->end.limits;
	bool alone;

	msg->whole = msg->size_bytes <= limits->small_bytes;
	if (msg->whole) {
		msg->cut = (struct plan_cut){1, msg->size_bytes};
		return;
	}
	alone = is_alone(tx, msg->key_mask);
	msg->cut = plan_cut(msg->size_bytes,
			    alone ? limits->alone_bytes : piece_bytes(&tx->end, msg->size_bytes));
	msg->whole = limits->uncut_whole && msg->cut.pieces == 1;
}

/* The receiver's keys, of the entry but for paths that have rejoined since it was written. Returns
 * on which paths its buffer is registered. */
static uint32_t take_rkeys(const struct repair_tx *tx, const struct wire_cts *cts,
			   struct repair_tx_msg *msg)
{
	uint32_t mask = cts->l0.key_mask;
	bool is_there;

	memcpy(msg->rkeys, cts->l0.rkeys, sizeof(cts->l0.rkeys));
	if (tx->end.path_count > 8) {
		memcpy(msg->rkeys + 8, cts->l1.rkeys, sizeof(cts->l1.rkeys));
	}
	for (unsigned int p = 0; msg->seq < tx->rekeyed_seq && p < tx->end.path_count; p++) {
		if (find_key(tx, p, msg->seq, &msg->rkeys[p], &is_there)) {
			mask = (mask & ~(1u << p)) | (uint32_t)is_there << p;
		}
	}
	return mask;
}

/* Every field by itself: the record is large, and most of it is keys that are copied anyway. */
static void open_msg(struct repair_tx *tx, const struct repair_send *send,
		     const struct wire_cts *cts)
{
	struct repair_tx_msg *msg = &tx->msgs[wire_slot(tx->next_seq)];
	uint64_t size_bytes = send->size_bytes;
	/* Once: the peer could change it between two looks. */
	uint64_t room_bytes = __atomic_load_n(&cts->l0.size_bytes, __ATOMIC_RELAXED);
	uint32_t mask;

	if (size_bytes > room_bytes) {
		size_bytes = room_bytes;
	}
	msg->seq = tx->next_seq;
	msg->open = true;
	msg->cookie = send->cookie;
	msg->local_addr = send->addr;
	msg->remote_addr = cts->l0.addr;
	msg->size_bytes = size_bytes;
	/* Nothing is read or written by an empty message: every path will do. */
	mask = take_rkeys(tx, cts, msg);
	msg->key_mask = size_bytes ? send->key_mask & mask : UINT32_MAX;
	cut_msg(tx, msg);
	msg->pending = all_pieces(msg->cut);
	memset(msg->sent, 0, sizeof(msg->sent));
	msg->wrs_out = 0;
	if (msg->cut.pieces > 1 && repair_tx_wants_time(tx, size_bytes)) {
		pace_begin(&tx->end, &msg->pace);
	}
}

int repair_tx_send(struct repair_tx *tx, const struct repair_send *send, uint64_t now_ns,
		   uint64_t *seq)
{
	repair_end_at(&tx->end, now_ns);
	if (tx->seen_seq == tx->next_seq && is_line_new(tx)) {
		look_at_entries(tx);
	}
	if (tx->end.failed) {
		return -EIO;
	}
	if (tx->end.peer_closed) {
		repair_end_fail(&tx->end, CAUSE_PEER_CLOSED, PATHS_MAX,
				"send to a receiver that has closed");
		return -EIO;
	}
	if (tx->next_seq - tx->released_seq >= WINDOW_MSGS || tx->seen_seq == tx->next_seq) {
		return -EAGAIN;
	}
	open_msg(tx, send, &tx->cts[wire_slot(tx->next_seq)]);
	*seq = tx->next_seq++;
	tx_pump(&tx->end);
	return 0;
}

void repair_tx_poll_acks(struct repair_tx *tx)
{
	for (unsigned int p = 0; p < tx->end.path_count; p++) {
		uint64_t next_seq = __atomic_load_n(&tx->acks[p].next_seq, __ATOMIC_ACQUIRE);

		if (next_seq > tx->acked_seq) {
			note_acked(tx, next_seq);
		}
	}
	if (is_line_new(tx)) {
		look_at_entries(tx);
	}
}

bool repair_tx_done(const struct repair_tx *tx, uint64_t seq, uint64_t *size_bytes)
{
	const struct repair_tx_msg *msg = &tx->msgs[wire_slot(seq)];

	ASSERT(msg->seq == seq && msg->open);
	if (seq >= tx->acked_seq || msg->wrs_out > 0) {
		return false;
	}
	ASSERT(msg->pending == 0);
	*size_bytes = msg->size_bytes;
	return true;
}

void repair_tx_release(struct repair_tx *tx, uint64_t seq)
{
	ASSERT(tx->msgs[wire_slot(seq)].seq == seq);
	tx->msgs[wire_slot(seq)].open = false;
	while (tx->released_seq < tx->next_seq && !tx->msgs[wire_slot(tx->released_seq)].open) {
		tx->released_seq++;
	}
}

/* Does a message wait for work requests to come back? */
static bool is_work_out(const struct repair_tx *tx)
{
	uint64_t seq = tx->released_seq;

	while (seq < tx->next_seq && tx->msgs[wire_slot(seq)].wrs_out == 0) {
		seq++;
	}
	return seq < tx->next_seq;
}

void repair_tx_on_close(struct repair_tx *tx, uint64_t next_seq, uint64_t now_ns)
{
	struct repair_end *end = &tx->end;

	repair_end_at(end, now_ns);
	note_acked(tx, next_seq);
	end->peer_closed = true;
	if (tx->acked_seq < tx->next_seq) {
		repair_end_fail(end, CAUSE_PEER_CLOSED, PATHS_MAX,
				"the receiver closed before it had every message");
	}
	if (!is_work_out(tx)) {
		return;
	}
	/* The receiver's QPs are gone, so nothing that is out may ever be acknowledged. */
	for (unsigned int p = 0; p < end->path_count; p++) {
		if (end->paths[p].state == PATH_UP && wrq_out(&end->paths[p].sq) > 0) {
			repair_end_fault(end, p, CAUSE_PEER_CLOSED, now_ns);
		}
	}
}
