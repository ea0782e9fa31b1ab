/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/unit/fake_ops.h"

/*
 * Real senders over rails that are only numbers: a rail moves one piece after the other at its rate
 * and completes it a latency later. Time is simulated, so the shares are those of the decisions.
 */

enum {
	RAILS = 4,
	COMMS_MAX = 6,
	PIECE_BYTES = 64 << 10,
	QUEUE_MAX = 4096,
	RATE = 1000, /* bytes per us */
	LATENCY_NS = 10000,
	WINDOW_MAX = 8,
};

struct job {
	struct model_comm *comm;
	uint64_t wr_id, done_ns;
	uint32_t len_bytes;
};

struct rail {
	uint64_t free_ns, rate, sent_bytes;
	struct job jobs[QUEUE_MAX];
	unsigned int head, tail;
};

struct model_comm {
	struct repair_tx tx;
	struct wire_cts cts[WINDOW_MSGS];
	struct wire_ack acks[PATHS_MAX];
	unsigned int left[WINDOW_MSGS]; /* pieces of a message that are not there */
	uint64_t next_seq, done_seq;
	unsigned int first_rail;
};

static struct rail rails[RAILS];
static struct repair_share shares[RAILS];
static struct model_comm comms[COMMS_MAX];
static uint64_t size_bytes;  /* of each message */
static uint64_t small_every; /* message is a small one; 0: none */
static unsigned int window, jitter_percent, stall_permille;
static unsigned int slow_count, sound_count;
static uint64_t now_ns, dice;

static uint64_t roll(uint64_t below)
{
	dice ^= dice << 13;
	dice ^= dice >> 7;
	dice ^= dice << 17;
	return dice % below;
}

static int model_post_piece(void *ctx, const struct repair_piece *piece)
{
	struct model_comm *comm = ctx;
	struct rail *rail = &rails[(comm->first_rail + piece->path) % RAILS];
	uint64_t took_ns = piece->len_bytes * 1000ull / rail->rate;

	took_ns += took_ns * roll(jitter_percent + 1) / 100;
	if (roll(1000) < stall_permille) {
		took_ns += 3000000; /* an engine that gets no CPU */
	}
	rail->free_ns = (rail->free_ns > now_ns ? rail->free_ns : now_ns) + took_ns;
	rail->sent_bytes += piece->len_bytes;
	assert_true(rail->tail - rail->head < QUEUE_MAX);
	rail->jobs[rail->tail++ % QUEUE_MAX] = (struct job){.comm = comm,
							    .wr_id = piece->wr_id,
							    .done_ns = rail->free_ns + LATENCY_NS,
							    .len_bytes = piece->len_bytes};
	comm->left[wire_slot(piece->record.seq)]++;
	return 0;
}

static void model_report(void *ctx, const struct repair_report *report)
{
	(void)ctx;
	slow_count += report->kind == REPAIR_REPORT_SLOW;
	sound_count += report->kind == REPAIR_REPORT_SOUND;
}

static void send_more(struct model_comm *comm)
{
	while (comm->next_seq - comm->done_seq < window) {
		struct wire_cts *entry = &comm->cts[wire_slot(comm->next_seq)];
		struct repair_send send = {
			.addr = 4096, .size_bytes = size_bytes, .key_mask = 0xffff};
		uint64_t seq;

		if (small_every && comm->next_seq % small_every == 0) {
			send.size_bytes = 8192;
		}
		memset(entry, 0, sizeof(*entry));
		entry->l0.addr = 4096;
		entry->l0.size_bytes = size_bytes;
		entry->l0.key_mask = 0xff;
		entry->l0.seq = comm->next_seq;
		entry->l0.behind = (uint16_t)(comm->next_seq - comm->done_seq);
		entry->l0.check = wire_line_check(&entry->l0);
		assert_int_equal(repair_tx_send(&comm->tx, &send, now_ns, &seq), 0);
		assert_true(seq == comm->next_seq);
		comm->next_seq++;
	}
}

static void finish(const struct job *job)
{
	struct model_comm *comm = job->comm;
	uint64_t size;

	fake_complete(&comm->tx.end, job->wr_id, CAUSE_NONE, now_ns);
	for (;
	     comm->done_seq < comm->next_seq && !comm->tx.msgs[wire_slot(comm->done_seq)].pending &&
	     !comm->tx.msgs[wire_slot(comm->done_seq)].wrs_out;
	     comm->done_seq++) {
		comm->acks[0].next_seq = comm->done_seq + 1;
		repair_tx_poll_acks(&comm->tx);
		assert_true(repair_tx_done(&comm->tx, comm->done_seq, &size));
		repair_tx_release(&comm->tx, comm->done_seq);
	}
	repair_end_pump(&comm->tx.end, now_ns);
	send_more(comm);
}

/* The next completion of all rails. */
static void step(void)
{
	struct rail *next = NULL;

	for (unsigned int r = 0; r < RAILS; r++) {
		struct rail *rail = &rails[r];

		if (rail->head != rail->tail &&
		    (!next || rail->jobs[rail->head % QUEUE_MAX].done_ns <
				      next->jobs[next->head % QUEUE_MAX].done_ns)) {
			next = rail;
		}
	}
	assert_non_null(next);
	now_ns = next->jobs[next->head % QUEUE_MAX].done_ns;
	finish(&next->jobs[next->head++ % QUEUE_MAX]);
}

static const uint32_t alike[RAILS] = {1, 1, 1, 1};

static void start(unsigned int count, const uint32_t *weights)
{
	static struct repair_ops ops;
	static const struct repair_limits limits = {.small_bytes = 16384,
						    .piece_min_bytes = PIECE_BYTES,
						    .window_bytes = 4 << 20,
						    .alone_bytes = 4 << 20,
						    .large_bytes = 16384,
						    .no_path_ms = 1000};

	ops = fake_ops;
	ops.post_piece = model_post_piece;
	ops.report = model_report;
	memset(rails, 0, sizeof(rails));
	memset(shares, 0, sizeof(shares));
	memset(comms, 0, sizeof(comms));
	size_bytes = 512 << 10;
	small_every = 0;
	window = count % 2 ? 2 : WINDOW_MAX; /* messages of each */
	jitter_percent = stall_permille = slow_count = sound_count = 0;
	now_ns = NS_PER_SEC;
	dice = 88172645463325252ull;
	for (unsigned int r = 0; r < RAILS; r++) {
		rails[r].rate = RATE;
	}
	for (unsigned int c = 0; c < count; c++) {
		struct model_comm *comm = &comms[c];

		repair_tx_init(&comm->tx, &ops, comm, &limits, comm->cts, comm->acks);
		comm->next_seq = comm->done_seq = 1;
		comm->first_rail = c % RAILS;
		comm->tx.end.path_count = comm->tx.end.active_count = RAILS;
		for (unsigned int p = 0; p < RAILS; p++) {
			unsigned int r = (comm->first_rail + p) % RAILS;

			comm->tx.end.paths[p].share = &shares[r];
			repair_end_ready(&comm->tx.end, p, weights[r], now_ns);
		}
	}
	for (unsigned int c = 0; c < count; c++) {
		send_more(&comms[c]);
	}
}

/* Runs for ms, then returns the bytes moved meanwhile as a part of what the rails could. */
static double run_ms(uint64_t ms)
{
	uint64_t end_ns = now_ns + ms * MS, sum = 0, could = 0;

	for (unsigned int r = 0; r < RAILS; r++) {
		rails[r].sent_bytes = 0;
	}
	while (now_ns < end_ns) {
		step();
	}
	for (unsigned int r = 0; r < RAILS; r++) {
		sum += rails[r].sent_bytes;
		could += rails[r].rate * ms * 1000;
	}
	return (double)sum / (double)could;
}

/* Of what rail r carried, as a part of an even share of all. */
static double share_of(unsigned int r)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < RAILS; i++) {
		sum += rails[i].sent_bytes;
	}
	return (double)rails[r].sent_bytes * RAILS / (double)sum;
}

static void check_even(double within)
{
	for (unsigned int r = 0; r < RAILS; r++) {
		assert_true(share_of(r) > 1 - within && share_of(r) < 1 + within);
	}
}

static void test_even(void **state)
{
	(void)state;
	for (unsigned int count = 1; count <= COMMS_MAX; count++) {
		start(count, alike);
		assert_true(run_ms(1000) > 0.8);
		check_even(0.02);
		assert_int_equal(slow_count, 0);
	}
}

/* Times that differ by half, and now and then by fifty times: nobody is slow. */
static void test_jitter(void **state)
{
	(void)state;
	for (unsigned int count = 1; count <= COMMS_MAX; count++) {
		start(count, alike);
		jitter_percent = 50;
		stall_permille = 2;
		run_ms(5000);
		check_even(0.02);
		assert_int_equal(slow_count, 0);
	}
}

/* All of them slow is none of them slow. */
static void test_all_slow(void **state)
{
	(void)state;
	start(2, alike);
	run_ms(100);
	for (unsigned int r = 0; r < RAILS; r++) {
		rails[r].rate = RATE / 10;
	}
	run_ms(2000);
	check_even(0.02);
	assert_int_equal(slow_count, 0);
}

/* A tenth of its rate: what is lost is little more than the rail; and it is back within a second.
 */
static void check_slow(unsigned int count, unsigned int r, uint64_t rate)
{
	double healthy, slow;

	start(count, alike);
	healthy = run_ms(500);
	rails[r].rate = rate;
	run_ms(1000); /* much is out on it, and has to come back first */
	assert_int_equal(slow_count, 1);
	slow = run_ms(2000);
	assert_true(slow > healthy / 1.2);
	assert_int_equal(slow_count, 1);
	assert_int_equal(sound_count, 0);
	rails[r].rate = RATE;
	run_ms(1000);
	assert_int_equal(sound_count, 1);
	run_ms(1000);
	check_even(0.02);
	assert_int_equal(slow_count, 1);
}

static void test_slow(void **state)
{
	(void)state;
	for (unsigned int count = 1; count <= COMMS_MAX; count++) {
		for (unsigned int r = 0; r < RAILS; r++) {
			check_slow(count, r, RATE / 10);
		}
	}
	check_slow(1, 2, RATE / 50);
	check_slow(1, 2, RATE / 4);
}

/* Two at once, one of them mended. */
static void test_two_slow(void **state)
{
	(void)state;
	start(4, alike);
	run_ms(500);
	rails[0].rate = rails[3].rate = RATE / 10;
	run_ms(1500);
	assert_int_equal(slow_count, 2);
	assert_true(run_ms(2000) > 0.7);
	rails[3].rate = RATE;
	run_ms(1000);
	assert_int_equal(sound_count, 1);
	assert_true(run_ms(1000) > 0.7);
	assert_true(share_of(3) > 1.2);
	assert_true(share_of(0) < 0.3);
}

/* Cards of different speed are as they say. */
static void test_weights(void **state)
{
	static const uint32_t weights[RAILS] = {800, 400, 200, 100};

	(void)state;
	start(3, weights);
	for (unsigned int r = 0; r < RAILS; r++) {
		rails[r].rate = weights[r];
	}
	run_ms(2000);
	assert_int_equal(slow_count, 0);
	assert_true(share_of(0) > 1.9 && share_of(3) < 0.4);
}

/* Between a half and three quarters what was stays. */
static void test_dead_band(void **state)
{
	(void)state;
	start(3, alike);
	rails[1].rate = RATE * 6 / 10;
	run_ms(3000);
	assert_int_equal(slow_count, 0);
	rails[1].rate = RATE * 4 / 10;
	run_ms(3000);
	assert_int_equal(slow_count, 1);
	rails[1].rate = RATE * 6 / 10;
	run_ms(3000);
	assert_int_equal(sound_count, 0);
	rails[1].rate = RATE * 9 / 10;
	run_ms(3000);
	assert_int_equal(sound_count, 1);
	assert_int_equal(slow_count, 1);
}

/* An adapter that stands still for 40 ms now and then is not slow, whatever waited for it. */
static void test_pauses(void **state)
{
	(void)state;
	for (unsigned int count = 1; count <= COMMS_MAX; count++) {
		start(count, alike);
		for (unsigned int i = 0; i < 30; i++) {
			run_ms(60);
			rails[roll(RAILS)].free_ns = now_ns + 40 * MS;
		}
		assert_int_equal(slow_count, 0);
	}
}

static void set_rates(uint64_t rate)
{
	for (unsigned int r = 0; r < RAILS; r++) {
		rails[r].rate = rate;
	}
}

/* Pieces take up to 100 us, but for the bounds. */
static void test_pieces(void **state)
{
	static const struct {
		uint64_t rate, piece_bytes;
	} cases[] = {
		{250, PIECE_BYTES},
		{RATE, PIECE_BYTES},
		{RATE * 5 / 2, 2 * PIECE_BYTES},
		{RATE * 8, PACE_GROWTH * PIECE_BYTES},
		{RATE * 50, PACE_GROWTH * PIECE_BYTES},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		start(2, alike);
		assert_true(comms[0].tx.end.piece_bytes == PIECE_BYTES); /* nothing is known */
		set_rates(cases[i].rate);
		run_ms(300);
		assert_true(comms[0].tx.end.piece_bytes == cases[i].piece_bytes);
		check_even(0.03);
	}
}

/* Few messages under way fill the rails as well: a piece as long as its message would not. */
static void test_few(void **state)
{
	static const struct {
		uint64_t size_bytes;
		unsigned int window;
		double least;
	} cases[] = {
		{2 * PIECE_BYTES, 4, 0.55}, {2 * PIECE_BYTES, 8, 0.9}, {4 * PIECE_BYTES, 2, 0.8},
		{8 * PIECE_BYTES, 1, 0.55}, {8 * PIECE_BYTES, 2, 0.9}, {16 * PIECE_BYTES, 2, 0.9},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		start(1, alike);
		size_bytes = cases[i].size_bytes;
		window = cases[i].window;
		set_rates(8 * RATE);
		run_ms(300);
		assert_true(run_ms(300) > cases[i].least);
		check_even(0.05);
	}
}

/* A small window is not used up by one piece. */
static void test_small_window(void **state)
{
	(void)state;
	for (uint64_t window_bytes = 2 * PIECE_BYTES; window_bytes <= 16 * PIECE_BYTES;
	     window_bytes *= 2) {
		start(1, alike);
		comms[0].tx.end.limits.window_bytes = window_bytes;
		size_bytes = 16 * PIECE_BYTES;
		window = 2 * WINDOW_MAX;
		set_rates(8 * RATE);
		run_ms(300);
		assert_true(run_ms(300) > 0.85);
	}
}

/* With messages of two pieces, few or many of them, and with small ones in between. */
static void test_slow_among_fast(void **state)
{
	(void)state;
	for (unsigned int many = 1; many <= WINDOW_MAX; many *= 2) {
		for (unsigned int slow = 0; slow < 2; slow++) {
			start(1, alike);
			size_bytes = 2 * PIECE_BYTES;
			small_every = many == WINDOW_MAX ? 2 : 0;
			window = many;
			set_rates(8 * RATE);
			run_ms(300);
			assert_int_equal(slow_count, 0);
			rails[slow].rate = RATE * 8 / 20;
			run_ms(3000);
			assert_true(slow_count > 0);
			assert_true(comms[0].tx.end.paths[slow].is_slow);
			/* What so few fill, or nearly all of three rails of four. */
			assert_true(run_ms(500) > (many < 4 ? 0.25 * many : 0.8));
		}
	}
}

/* A path that was down begins anew, and so does the rail's count of those that find it slow. */
static void test_forget(void **state)
{
	struct repair_path *path;

	(void)state;
	start(1, alike);
	path = &comms[0].tx.end.paths[1];
	rails[1].rate = RATE / 10;
	run_ms(300);
	assert_true(path->is_slow);
	assert_true(path->speed < PACE_FULL / 4);
	assert_int_equal(atomic_load(&shares[1].slow_count), 1);
	pace_forget(path);
	assert_false(path->is_slow);
	assert_int_equal(path->speed, PACE_FULL);
	assert_int_equal(atomic_load(&shares[1].slow_count), 0);
	run_ms(300);
	assert_true(path->is_slow);
	assert_int_equal(slow_count, 1); /* said less than 10 s ago */
	repair_end_forget(&comms[0].tx.end);
	for (unsigned int r = 0; r < RAILS; r++) {
		assert_int_equal(atomic_load(&shares[r].slow_count), 0);
		assert_true(atomic_load(&shares[r].load_bytes) == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_even),
		cmocka_unit_test(test_jitter),
		cmocka_unit_test(test_all_slow),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_two_slow),
		cmocka_unit_test(test_weights),
		cmocka_unit_test(test_dead_band),
		cmocka_unit_test(test_pauses),
		cmocka_unit_test(test_forget),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_few),
		cmocka_unit_test(test_small_window),
		cmocka_unit_test(test_slow_among_fast),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
