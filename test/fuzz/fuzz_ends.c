/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile peer against a sender and a receiver: frames with any values, immediates, records, CTS
 * entries and acknowledgement words with any bytes, completions in any order. Nothing may index out
 * of bounds or trip an ASSERT: a peer must be able to fail its comm, and no more.
 */
#include "include/log.h"
#include "repair/fence.h"
#include "repair/rejoin.h"
#include "repair/rx.h"
#include "repair/tx.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
	PATHS = 3,
	STEPS_MAX = 400,
	MS = 1000000
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

struct reader {
	const uint8_t *at;
	size_t left_bytes;
};

struct host {
	struct repair_end *end;
	uint32_t fence_wanted, cut_wanted, rebuild_wanted, join_wanted; /* bit per path */
	uint32_t epochs[PATHS];
	unsigned int send_count, later_count;
	uint64_t now_ns;
};

static struct wire_cts cts[WINDOW_MSGS];
static struct wire_ack acks[PATHS_MAX];
static struct wire_record records[WIRE_RECORDS];
static uint8_t probes[2][PATHS_MAX * WIRE_PROBE_BYTES];

static void take(struct reader *reader, void *out, size_t len_bytes)
{
	size_t part = len_bytes < reader->left_bytes ? len_bytes : reader->left_bytes;

	memset(out, 0, len_bytes);
	memcpy(out, reader->at, part);
	reader->at += part;
	reader->left_bytes -= part;
}

static int op_post_piece(void *ctx, const struct repair_piece *piece)
{
	(void)ctx;
	return piece->path < PATHS ? 0 : (abort(), 0);
}

static int op_post_cts(void *ctx, unsigned int path, unsigned int slot, uint64_t wr_id,
		       bool signalled)
{
	(void)ctx;
	(void)wr_id;
	(void)signalled;
	return path < PATHS && slot < WINDOW_MSGS ? 0 : (abort(), 0);
}

static int op_post_ack(void *ctx, unsigned int path, uint64_t next_seq, uint64_t wr_id,
		       bool signalled)
{
	(void)ctx;
	(void)next_seq;
	(void)wr_id;
	(void)signalled;
	return path < PATHS ? 0 : (abort(), 0);
}

/* Rounds now and then. */
static bool op_ack_later(void *ctx)
{
	struct host *host = ctx;

	return ++host->later_count % 2 == 0;
}

static int op_post_one(void *ctx, unsigned int path, uint64_t wr_id)
{
	(void)ctx;
	(void)wr_id;
	return path < PATHS ? 0 : (abort(), 0);
}

static int op_post_recvs(void *ctx, unsigned int path, uint64_t wr_id, unsigned int count,
			 unsigned int *posted)
{
	(void)ctx;
	(void)path;
	(void)wr_id;
	*posted = count;
	return 0;
}

static void op_fence(void *ctx, unsigned int path)
{
	((struct host *)ctx)->fence_wanted |= 1u << path;
}

static void op_cut(void *ctx, unsigned int path)
{
	((struct host *)ctx)->cut_wanted |= 1u << path;
}

static void op_rebuild(void *ctx, unsigned int path, uint32_t epoch)
{
	((struct host *)ctx)->rebuild_wanted |= 1u << path;
	((struct host *)ctx)->epochs[path] = epoch;
}

static bool op_key(void *ctx, unsigned int path, void *cookie, uint32_t *rkey)
{
	(void)ctx;
	(void)cookie;
	*rkey = path;
	return path % 2 == 0;
}

static void op_join(void *ctx, unsigned int path, uint32_t epoch, const struct path_side *peer)
{
	(void)peer;
	((struct host *)ctx)->join_wanted |= 1u << path;
	((struct host *)ctx)->epochs[path] = epoch;
}

/* A link that has no room now and then. */
static int op_send(void *ctx, const struct frame *frame)
{
	struct host *host = ctx;

	(void)frame;
	return ++host->send_count % 3 == 0 ? -ENOBUFS : 0;
}

static int op_ask(void *ctx)
{
	return op_send(ctx, NULL);
}

static void op_report(void *ctx, const struct repair_report *report)
{
	(void)ctx;
	(void)report;
}

static const struct repair_ops ops = {
	.post_piece = op_post_piece,
	.post_cts = op_post_cts,
	.post_ack = op_post_ack,
	.ack_later = op_ack_later,
	.post_marker = op_post_one,
	.post_probe = op_post_one,
	.post_recvs = op_post_recvs,
	.fence = op_fence,
	.cut = op_cut,
	.rebuild = op_rebuild,
	.join = op_join,
	.key = op_key,
	.send = op_send,
	.ask = op_ask,
	.report = op_report,
};

/* The own side is honest: jobs that were asked for answer, a completion is of something posted. */
static void finish_jobs(struct host *host, uint8_t choice)
{
	struct path_side side = {.qp = {.qpn = 7, .psn = 9}, .rail = {.port = 1}};

	for (unsigned int p = 0; p < PATHS; p++) {
		uint32_t bit = 1u << p;

		if (host->fence_wanted & bit) {
			host->fence_wanted &= ~bit;
			repair_fence_errored(host->end, p,
					     choice % 7 == 6 ? FENCE_DEAD : FENCE_ERRORED,
					     host->now_ns);
		}
		if (host->cut_wanted & bit) {
			host->cut_wanted &= ~bit;
			repair_fence_cut(host->end, p, 0, host->now_ns);
		}
		if (host->rebuild_wanted & bit) {
			host->rebuild_wanted &= ~bit;
			repair_rejoin_built(host->end, p, host->epochs[p],
					    choice % 5 == 4 ? -ENETDOWN : 0, &side, host->now_ns);
		} else if (host->join_wanted & bit) {
			host->join_wanted &= ~bit;
			repair_rejoin_joined(host->end, p, host->epochs[p],
					     choice % 5 == 3 ? -EINVAL : 0, host->now_ns);
		}
	}
}

static void complete(struct host *host, struct reader *reader)
{
	struct repair_wc wc = {0};
	struct repair_path *path;
	uint8_t raw[8];

	take(reader, raw, sizeof(raw));
	path = &host->end->paths[raw[0] % PATHS];
	wc.cause = raw[1] < 200 ? CAUSE_NONE : (enum cause)(raw[1] % CAUSE_COUNT);
	memcpy(&wc.imm, raw + 4, sizeof(wc.imm));
	wc.len_bytes = raw[2] * 64u;
	if (raw[3] & 1 && path->recvs_out > 0) {
		wc.wr_id = wr_id_pack((struct wr_id){.kind = WR_KIND_RECV,
						     .path = raw[0] % PATHS,
						     .epoch_low = (uint16_t)path->epoch});
	} else if (wrq_out(&path->sq) > 0) {
		wc.wr_id = wr_id_pack(
			(struct wr_id){.kind = WR_KIND_ITEM,
				       .path = raw[0] % PATHS,
				       .epoch_low = (uint16_t)path->epoch,
				       .idx = path->sq.done + raw[3] % wrq_out(&path->sq)});
	} else {
		return;
	}
	repair_end_completed(host->end, &wc, host->now_ns);
}

static void hear(struct host *host, struct reader *reader)
{
	struct frame frame = {0};
	uint8_t raw[2];

	take(reader, raw, sizeof(raw));
	if (raw[0] % 4 == 0) {
		take(reader, &frame.fence, sizeof(frame.fence));
		frame.fence.epoch = raw[1] & 1 ? host->end->paths[0].epoch : frame.fence.epoch;
		repair_end_on_fence(host->end, &frame.fence, host->now_ns);
	} else if (raw[0] % 4 == 1) {
		take(reader, &frame.fenced, sizeof(frame.fenced));
		frame.fenced.epoch = raw[1] & 1 ? host->end->paths[0].epoch : frame.fenced.epoch;
		repair_end_on_fenced(host->end, &frame.fenced, host->now_ns);
	} else if (raw[0] % 4 == 2) {
		frame.type = raw[1] & 1 ? FRAME_REJOIN : FRAME_REJOINED;
		take(reader, &frame.rejoin, sizeof(frame.rejoin));
		frame.rejoin.err = raw[1] & 2 ? 0 : -EBUSY;
		frame.rejoin.epoch = raw[1] & 4 ? host->end->paths[0].epoch : frame.rejoin.epoch;
		repair_rejoin_on_frame(host->end, &frame, host->now_ns);
	} else {
		frame.type = raw[1] & 1 ? FRAME_PROBED : FRAME_REJOIN_HINT;
		take(reader, &frame.probed, sizeof(frame.probed));
		frame.probed.epoch = raw[1] & 4 ? host->end->paths[0].epoch : frame.probed.epoch;
		repair_rejoin_on_frame(host->end, &frame, host->now_ns);
	}
}

static void common(struct host *host, struct reader *reader, uint8_t choice)
{
	switch (choice % 6) {
	case 0:
		complete(host, reader);
		break;
	case 1:
		hear(host, reader);
		break;
	case 2:
		finish_jobs(host, choice);
		break;
	case 3:
		host->now_ns += (uint64_t)choice * 20 * MS;
		repair_end_tick(host->end, host->now_ns);
		break;
	case 4:
		repair_end_answered(host->end, host->now_ns);
		break;
	default:
		repair_end_pump(host->end, host->now_ns);
		break;
	}
}

static const struct repair_limits limits = {.small_bytes = 1024,
					    .piece_min_bytes = 4096,
					    .window_bytes = 1 << 20,
					    .alone_bytes = 16384,
					    .ack_large_bytes = 4096,
					    .reap_ms = 200,
					    .no_path_ms = 5000,
					    .stall_ms = 500,
					    .rejoin_min_ms = 100,
					    .rejoin_max_ms = 1000};

static void begin(struct host *host, struct repair_end *end)
{
	*host = (struct host){.end = end, .now_ns = MS};
	end->path_count = PATHS;
	end->active_count = PATHS;
	end->probes_in = probes[0];
	end->probes_out = probes[1];
	for (unsigned int p = 0; p < PATHS; p++) {
		repair_end_ready(end, p, 100000, MS);
	}
}

/* The peer writes an entry: often well formed, with hostile addresses and sizes, and often with an
 * acknowledgement that may be. */
static void write_cts(struct repair_tx *tx, struct reader *reader, uint8_t choice)
{
	struct wire_cts *entry = &cts[wire_slot(tx->next_seq)];

	take(reader, entry, sizeof(*entry));
	if (choice & 1) {
		entry->l0.seq = tx->next_seq;
		if (choice & 6) {
			entry->l0.behind = choice >> 3;
		}
		entry->l0.check = wire_line_check(&entry->l0);
	}
}

static void run_tx(struct reader *reader)
{
	struct repair_send send = {.addr = 4096, .key_mask = 7};
	static struct repair_tx tx;
	struct host host;
	uint8_t raw[2];

	repair_tx_init(&tx, &ops, &host, &limits, cts, acks);
	begin(&host, &tx.end);
	for (unsigned int i = 0; i < STEPS_MAX && reader->left_bytes > 0; i++) {
		uint64_t seq, size;

		take(reader, raw, sizeof(raw));
		if (raw[0] % 8 == 0) {
			send.size_bytes = (uint64_t)raw[1] << (raw[0] % 16);
			(void)repair_tx_send(&tx, &send, host.now_ns, &seq);
		} else if (raw[0] % 8 == 1) {
			write_cts(&tx, reader, raw[1]);
		} else if (raw[0] % 8 == 2) {
			acks[raw[1] % PATHS_MAX].next_seq = raw[1] / 8;
			repair_tx_poll_acks(&tx);
		} else if (raw[0] % 8 == 3 && tx.released_seq < tx.next_seq) {
			if (repair_tx_done(&tx, tx.released_seq, &size)) {
				repair_tx_release(&tx, tx.released_seq);
			}
		} else {
			common(&host, reader, raw[1]);
		}
	}
}

static void run_rx(struct reader *reader)
{
	struct repair_recv recv = {.addr = 4096, .key_mask = 7};
	static struct repair_rx rx;
	struct host host;
	uint8_t raw[2];

	repair_rx_init(&rx, &ops, &host, &limits, cts, records);
	begin(&host, &rx.end);
	for (unsigned int i = 0; i < STEPS_MAX && reader->left_bytes > 0; i++) {
		uint32_t mask;
		uint64_t seq, size;

		take(reader, raw, sizeof(raw));
		if (raw[0] % 8 == 0) {
			recv.size_bytes = (uint64_t)raw[1] << (raw[0] % 16);
			(void)repair_rx_recv(&rx, &recv, host.now_ns, &seq);
		} else if (raw[0] % 8 == 1) {
			take(reader, &records[raw[1] % WIRE_RECORDS], sizeof(records[0]));
		} else if (raw[0] % 8 == 2 && rx.released_seq < rx.book.posted_seq) {
			if (repair_rx_done(&rx, rx.released_seq, &size, &mask)) {
				repair_rx_release(&rx, rx.released_seq);
			}
		} else if (raw[0] % 8 == 3 && rx.pace.is_listed) {
			(void)repair_rx_ack_round(&rx, raw[1] & 1, host.now_ns);
		} else {
			common(&host, reader, raw[1]);
		}
	}
}

static void sink(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	(void)fmt;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	struct reader reader = {.at = data, .left_bytes = len_bytes};
	uint8_t side;

	log_sink_set(sink);
	memset(cts, 0, sizeof(cts));
	memset(acks, 0, sizeof(acks));
	memset(records, 0, sizeof(records));
	take(&reader, &side, sizeof(side));
	if (side & 1) {
		run_tx(&reader);
	} else {
		run_rx(&reader);
	}
	return 0;
}
