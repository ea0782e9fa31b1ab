/* SPDX-License-Identifier: Apache-2.0 */
#include "test/sim/sim.h"

#include <errno.h>
#include <string.h>

enum {
	FILL_POSTED = 0xee, /* what a receive buffer holds before anything arrives */
	FILL_DONE = 0xdd    /* what a user writes into a buffer once its send is done */
};

void user_init(struct sim *sim)
{
	struct user *user = &sim->user;
	const struct sim_conf *conf = &sim->conf;

	memset(user, 0, offsetof(struct user, mem));
	for (unsigned int s = 0; s < SIDE_COUNT; s++) {
		user->next_seq[s] = conf->first_seq;
		for (unsigned int i = 0; i < SIM_DEPTH_MAX; i++) {
			user->bufs[s][i].mem = user->mem[s][i];
		}
	}
	for (uint64_t seq = conf->first_seq; seq < conf->first_seq + conf->msg_count; seq++) {
		uint32_t sent = conf_send_bytes(conf, seq), room = conf_recv_bytes(conf, seq);

		user->total_bytes += sent < room ? sent : room;
	}
	if (conf->first_seq < 65536 && conf->first_seq + conf->msg_count > 65537) {
		SIM_MARK(sim, SEQ_WRAP);
	}
}

static struct user_buf *buf_of(struct sim *sim, unsigned int side, uint64_t seq)
{
	return &sim->user.bufs[side][seq % sim->conf.depth];
}

static uint64_t word_of(const struct sim *sim, uint64_t seq, uint32_t i)
{
	return (sim->conf.seed * 31 + seq) * 0x9e3779b97f4a7c15ull + i * 0xd6e8feb86659fd93ull;
}

static void fill(const struct sim *sim, struct user_buf *buf)
{
	for (uint32_t i = 0; i < (buf->size_bytes + 7) / 8; i++) {
		uint64_t word = word_of(sim, buf->seq, i);

		memcpy(buf->mem + 8 * (size_t)i, &word, 8);
	}
}

static void check_data(struct sim *sim, const struct user_buf *buf, uint32_t size)
{
	for (uint32_t i = 0; i < buf->size_bytes; i++) {
		uint64_t word = word_of(sim, buf->seq, i / 8);
		uint8_t want = i < size ? ((const uint8_t *)&word)[i % 8] : FILL_POSTED;

		if (i < size && i % 8 == 0 && i + 8 <= size && !memcmp(buf->mem + i, &word, 8)) {
			i += 7;
		} else if (buf->mem[i] != want) {
			sim_fail(sim, "seq %llu: byte %u of %u is 0x%02x, not 0x%02x",
				 (unsigned long long)buf->seq, i, size, buf->mem[i], want);
			return;
		}
	}
}

bool user_key(const struct sim *sim, unsigned int side, uint64_t seq, unsigned int path,
	      uint32_t *rkey)
{
	uint32_t gen = sim->net.nics[side][path].gen;

	*rkey = (uint32_t)(seq * 131 + path * 7 + gen * 1000003 + 1);
	return conf_key_mask(&sim->conf, (enum sim_side)side, seq, gen) >> path & 1;
}

static bool post_recv(struct sim *sim, struct user_buf *buf)
{
	uint64_t seq = sim->user.next_seq[SIDE_RX], got = 0;
	struct repair_recv recv = {.addr = (uint64_t)buf->mem,
				   .size_bytes = conf_recv_bytes(&sim->conf, seq),
				   .cookie = buf};
	int rc;

	for (unsigned int p = 0; p < sim->conf.path_count; p++) {
		recv.key_mask |= (uint32_t)user_key(sim, SIDE_RX, seq, p, &recv.rkeys[p]) << p;
	}
	if (buf->seq != seq) { /* first attempt */
		memset(buf->mem, FILL_POSTED, recv.size_bytes);
		buf->size_bytes = (uint32_t)recv.size_bytes;
		buf->seq = seq;
	}
	buf->path_mask = 0;
	buf->open = true; /* the entry may be on its way before the call returns */
	rc = repair_rx_recv(&sim->rx, &recv, sim->now_ns, &got);
	if (rc) {
		buf->open = false;
		if (rc == -EAGAIN) {
			SIM_MARK(sim, WINDOW_FULL);
		}
		return false;
	}
	if (got != seq) {
		sim_fail(sim, "receive got seq %llu, not %llu", (unsigned long long)got,
			 (unsigned long long)seq);
	}
	TRACE(sim, "rx user posts seq %llu, %u bytes", (unsigned long long)seq, buf->size_bytes);
	return true;
}

static bool post_send(struct sim *sim, struct user_buf *buf)
{
	uint64_t seq = sim->user.next_seq[SIDE_TX], got = 0;
	struct repair_send send = {.cookie = buf,
				   .addr = (uint64_t)buf->mem,
				   .size_bytes = conf_send_bytes(&sim->conf, seq)};
	const struct wire_cts *cts = &sim->cts[wire_slot(seq)];
	uint32_t unused;

	for (unsigned int p = 0; p < sim->conf.path_count; p++) {
		send.key_mask |= (uint32_t)user_key(sim, SIDE_TX, seq, p, &unused) << p;
	}

	if (buf->seq != seq) { /* first attempt */
		buf->seq = seq;
		buf->size_bytes = (uint32_t)send.size_bytes;
		fill(sim, buf);
	}
	if (cts->l0.check != wire_line_check(&cts->l0) && cts->l0.seq) {
		SIM_MARK(sim, CTS_HALF);
	}
	buf->open = true; /* the HCA may read before the call returns */
	if (repair_tx_send(&sim->tx, &send, sim->now_ns, &got)) {
		buf->open = false;
		return false;
	}
	if (got != seq) {
		sim_fail(sim, "send got seq %llu, not %llu", (unsigned long long)got,
			 (unsigned long long)seq);
	}
	TRACE(sim, "tx user sends seq %llu, %u bytes", (unsigned long long)seq, buf->size_bytes);
	return true;
}

static void check_done(struct sim *sim, unsigned int side, uint64_t seq, uint64_t size)
{
	uint32_t sent = conf_send_bytes(&sim->conf, seq), room = conf_recv_bytes(&sim->conf, seq);

	TRACE(sim, "%s seq %llu done, %llu bytes", side == SIDE_TX ? "tx" : "rx",
	      (unsigned long long)seq, (unsigned long long)size);
	if (size != (sent < room ? sent : room)) {
		sim_fail(sim, "%s seq %llu done with %llu bytes; sent %u, room %u",
			 side == SIDE_TX ? "tx" : "rx", (unsigned long long)seq,
			 (unsigned long long)size, sent, room);
	}
	if (sent > room) {
		SIM_MARK(sim, CLAMPED);
	}
	if (sent == 0) {
		SIM_MARK(sim, EMPTY);
	}
}

/* True when the request is done and its buffer the user's again. */
static bool test_one(struct sim *sim, unsigned int side, struct user_buf *buf)
{
	uint64_t size = 0;

	if (side == SIDE_TX) {
		if (!repair_tx_done(&sim->tx, buf->seq, &size)) {
			if (buf->seq < sim->tx.acked_seq) {
				SIM_MARK(sim, DONE_WAITS_WRS);
			}
			return false;
		}
		check_done(sim, side, buf->seq, size);
		repair_tx_release(&sim->tx, buf->seq);
		memset(buf->mem, FILL_DONE, buf->size_bytes);
	} else {
		uint32_t mask = 0;

		if (!repair_rx_done(&sim->rx, buf->seq, &size, &mask)) {
			return false;
		}
		check_done(sim, side, buf->seq, size);
		check_data(sim, buf, (uint32_t)size);
		if (buf->path_mask & ~mask) {
			sim_fail(sim, "seq %llu: paths 0x%x brought data, 0x%x are to be flushed",
				 (unsigned long long)buf->seq, buf->path_mask, mask);
		}
		repair_rx_release(&sim->rx, buf->seq);
	}
	buf->open = false;
	sim->user.done_count[side]++;
	return true;
}

static void test_all(struct sim *sim, unsigned int side)
{
	struct user *user = &sim->user;
	uint64_t seq = user->next_seq[side] > sim->conf.depth + sim->conf.first_seq
			       ? user->next_seq[side] - sim->conf.depth
			       : sim->conf.first_seq;

	for (; seq < user->next_seq[side]; seq++) {
		struct user_buf *buf = buf_of(sim, side, seq);

		if (buf->open && buf->seq == seq && !test_one(sim, side, buf) &&
		    !sim->conf.any_order) {
			return;
		}
	}
}

void user_step(struct sim *sim, unsigned int side)
{
	struct user *user = &sim->user;
	const struct sim_conf *conf = &sim->conf;
	struct host *host = &sim->hosts[side];

	test_all(sim, side);
	while (sim->now_ns >= host->next_post_ns &&
	       user->next_seq[side] < conf->first_seq + conf->msg_count && !sim->failed) {
		struct user_buf *buf = buf_of(sim, side, user->next_seq[side]);

		if (buf->open || !(side == SIDE_TX ? post_send(sim, buf) : post_recv(sim, buf))) {
			break;
		}
		user->next_seq[side]++;
		if (side == SIDE_TX && conf->pace_ns) {
			host->next_post_ns = sim->now_ns + rng_next(&sim->rng) % conf->pace_ns;
			host_wake(sim, side, host->next_post_ns);
			sim_disturb(sim, host->next_post_ns);
		}
		host_wake(sim, side, sim->now_ns);
	}
	if (user->done_count[side] == conf->msg_count && !host->user_done) {
		host->user_done = true;
		if (side == SIDE_RX && conf->rx_closes) {
			sim_push(sim, (struct ev){.at_ns = sim->now_ns +
							   rng_spread(&sim->rng, 1000, 10000000),
						  .type = EV_CLOSE,
						  .side = SIDE_RX});
		}
	}
}

void user_leave(struct sim *sim, unsigned int side)
{
	for (unsigned int i = 0; i < SIM_DEPTH_MAX; i++) {
		if (sim->user.bufs[side][i].open) {
			SIM_MARK(sim, LEFT_BUSY);
		}
		sim->user.bufs[side][i].open = false;
	}
}

void user_on_read(struct sim *sim, const struct net_wr *wr)
{
	const struct user_buf *buf = buf_of(sim, SIDE_TX, wr->note.seq);

	if (!buf->open || buf->seq != wr->note.seq) {
		sim_fail(sim,
			 "the HCA reads the buffer of seq %llu, piece %u, after its send was "
			 "reported done",
			 (unsigned long long)wr->note.seq, wr->note.piece);
	}
}

static void reset_slot(struct user *user, uint64_t seq)
{
	unsigned int slot = wire_slot(seq);

	if (user->slot_seq[slot] != seq) {
		user->slot_seq[slot] = seq;
		user->completed[slot] = 0;
		memset(user->posts[slot], 0, sizeof(user->posts[slot]));
		memset(user->placed[slot], 0, sizeof(user->placed[slot]));
	}
}

void user_on_place(struct sim *sim, const struct net_chunk *chunk, unsigned int path)
{
	uint64_t seq = chunk->note.seq;
	const struct user_buf *buf = buf_of(sim, SIDE_RX, seq);

	if (!buf->open || buf->seq != seq) {
		sim_fail(sim,
			 "path %u writes seq %llu, piece %u into a buffer that was reported done",
			 path, (unsigned long long)seq, chunk->note.piece);
		return;
	}
	if (chunk->dst < buf->mem || chunk->dst + chunk->len_bytes > buf->mem + buf->size_bytes) {
		sim_fail(sim, "seq %llu, piece %u is placed outside its buffer",
			 (unsigned long long)seq, chunk->note.piece);
		return;
	}
	TRACE(sim, "path %u places seq %llu piece %u, %u bytes at %u", path,
	      (unsigned long long)seq, chunk->note.piece, chunk->len_bytes,
	      (unsigned int)(chunk->dst - buf->mem));
	reset_slot(&sim->user, seq);
	sim->user.placed[wire_slot(seq)][chunk->note.piece] += chunk->len_bytes;
	fault_on_bytes(sim, chunk->len_bytes);
}

void user_on_post(struct sim *sim, const struct repair_piece *piece)
{
	struct user *user = &sim->user;
	uint64_t seq = piece->record.seq;
	unsigned int slot = wire_slot(seq), i = piece->record.piece;
	uint32_t rkey, unused;
	bool is_right = user_key(sim, SIDE_TX, seq, piece->path, &unused) &&
			user_key(sim, SIDE_RX, seq, piece->path, &rkey) && piece->rkey == rkey;

	reset_slot(user, seq);
	TRACE(sim, "tx posts seq %llu piece %u, %u bytes, on path %u, time %u",
	      (unsigned long long)seq, i, piece->len_bytes, piece->path, user->posts[slot][i] + 1u);
	if (piece->len_bytes && !is_right) {
		sim_fail(sim, "seq %llu posted on path %u with a wrong key",
			 (unsigned long long)seq, piece->path);
	}
	if (piece->len_bytes && piece->path < 8 &&
	    piece->rkey != sim->cts[slot].l0.rkeys[piece->path]) {
		SIM_MARK(sim, REKEYED);
	}
	if (piece->path >= sim->conf.active_count) {
		SIM_MARK(sim, STANDBY_USED);
	}
	if (sim->tx.end.paths[piece->path].epoch > 1) {
		SIM_MARK(sim, DATA_AFTER_BACK);
	}
	if (sim->conf.absent_mask >> piece->path & 1) {
		SIM_MARK(sim, ABSENT_BACK);
	}
	if (user->posts[slot][i]++ > 0) {
		SIM_MARK(sim, REPLAY);
		if (user->posts[slot][i] > 2) {
			SIM_MARK(sim, REPLAY_TWICE);
		}
		if (user->completed[slot] >> i & 1) {
			SIM_MARK(sim, COMPLETED_REPLAYED);
		}
		if (user->placed[slot][i] >= piece->len_bytes && piece->len_bytes) {
			SIM_MARK(sim, PLACED_UNBOOKED);
		} else if (user->placed[slot][i] > 0) {
			SIM_MARK(sim, HALF_WRITE);
		}
		fault_hook(sim, WHEN_REPLAY);
	}
}

void user_on_arrived(struct sim *sim, unsigned int path, uint32_t imm)
{
	uint64_t seq;

	if (book_resolve(&sim->rx.book, wire_imm_unpack(imm).seq_low, &seq)) {
		buf_of(sim, SIDE_RX, seq)->path_mask |= 1u << path;
	}
}
