/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Acknowledgements under load: how many words of their own they take, and that what counts open
 * requests and waiting comms ends at 0, also when threads close with requests open.
 */

#include "core_rig.h"
#include "plugin/ack_list.h"
#include "plugin/comm.h"

#include <pthread.h>

enum {
	LEN = 256,
	THREADS = 3,
	ROUNDS = 3,
	PAIRS_MAX = 32,
	OPEN_MAX = 4,
	MSGS = 300,
	WORDS_PERCENT = 10,
};

struct stream {
	struct rig_pair pair;
	uint8_t from[LEN], to[LEN];
	void *send_mh, *recv_mh;
	void *sends[OPEN_MAX], *recvs[OPEN_MAX];
	unsigned int sends_begun, sends_done, recvs_begun, recvs_done;
	unsigned int depth; /* of receives */
};

static struct stream streams[PAIRS_MAX];

static void open_stream(struct stream *stream, unsigned int depth)
{
	memset(stream, 0, sizeof(*stream));
	stream->depth = depth;
	rig_open(&stream->pair, 0);
	assert_int_equal(plugin_reg_mr(stream->pair.send, stream->from, LEN, NCCL_PTR_HOST,
				       &stream->send_mh),
			 0);
	assert_int_equal(
		plugin_reg_mr(stream->pair.recv, stream->to, LEN, NCCL_PTR_HOST, &stream->recv_mh),
		0);
}

static void close_stream(struct stream *stream)
{
	plugin_dereg_mr(stream->pair.send, stream->send_mh);
	plugin_dereg_mr(stream->pair.recv, stream->recv_mh);
	rig_close(&stream->pair);
}

static void check_none_left(void)
{
	plugin_finalize();
	assert_int_equal(rig_threads(), 0);
	assert_int_equal(atomic_load(&ack_list_open_count), 0);
	assert_int_equal(atomic_load(&ack_list_count), 0);
}

static void pass_recv(struct stream *stream)
{
	void *data = stream->to, *req = NULL;
	size_t len = LEN;
	int tag = 0, done = 0, size;

	if (stream->recvs_begun - stream->recvs_done < stream->depth &&
	    stream->recvs_begun < MSGS) {
		assert_int_equal(plugin_irecv(stream->pair.recv, 1, &data, &len, &tag,
					      &stream->recv_mh, &req),
				 0);
		if (req) {
			stream->recvs[stream->recvs_begun++ % OPEN_MAX] = req;
		}
	}
	if (stream->recvs_done < stream->recvs_begun) {
		req = stream->recvs[stream->recvs_done % OPEN_MAX];
		assert_int_equal(plugin_test(req, &done, &size), 0);
		stream->recvs_done += (unsigned int)done;
	}
}

static void pass_send(struct stream *stream)
{
	void *req = NULL;
	int done = 0, size;

	if (stream->sends_begun - stream->sends_done < OPEN_MAX && stream->sends_begun < MSGS) {
		assert_int_equal(plugin_isend(stream->pair.send, stream->from, LEN, 0,
					      stream->send_mh, &req),
				 0);
		if (req) {
			stream->sends[stream->sends_begun++ % OPEN_MAX] = req;
		}
	}
	if (stream->sends_done < stream->sends_begun) {
		req = stream->sends[stream->sends_done % OPEN_MAX];
		assert_int_equal(plugin_test(req, &done, &size), 0);
		stream->sends_done += (unsigned int)done;
	}
}

/* Ends with requests open, as an abort does. */
static void *work(void *arg)
{
	struct stream *stream = arg;
	uint64_t start_ns = clock_mono_ns();

	while (stream->recvs_done < MSGS - OPEN_MAX) {
		pass_recv(stream);
		pass_send(stream);
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
	close_stream(stream);
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < ROUNDS; i++) {
		pthread_t threads[THREADS];

		assert_int_equal(plugin_init(NULL, NULL), 0);
		for (unsigned int t = 0; t < THREADS; t++) {
			open_stream(&streams[t], 1 + t);
		}
		for (unsigned int t = 0; t < THREADS; t++) {
			assert_int_equal(pthread_create(&threads[t], NULL, work, &streams[t]), 0);
		}
		for (unsigned int t = 0; t < THREADS; t++) {
			assert_int_equal(pthread_join(threads[t], NULL), 0);
		}
		check_none_left();
	}
}

static void run_all(unsigned int count)
{
	uint64_t start_ns = clock_mono_ns();
	bool more = true;

	while (more) {
		more = false;
		for (unsigned int t = 0; t < count; t++) {
			pass_recv(&streams[t]);
			pass_send(&streams[t]);
			more = more || streams[t].recvs_done < MSGS || streams[t].sends_done < MSGS;
		}
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
}

/* However many comms one thread serves, the next receive carries nearly all of them. */
static void test_words(void **state)
{
	static const unsigned int counts[] = {1, 4, PAIRS_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		unsigned int msgs = counts[i] * MSGS, posted = 0;

		assert_int_equal(plugin_init(NULL, NULL), 0);
		for (unsigned int t = 0; t < counts[i]; t++) {
			open_stream(&streams[t], OPEN_MAX);
		}
		run_all(counts[i]);
		for (unsigned int t = 0; t < counts[i]; t++) {
			struct comm *comm = streams[t].pair.recv;

			posted += wrq_next(&comm->end.paths[0].sq);
			close_stream(&streams[t]);
		}
		check_none_left();
		assert_in_range(posted, msgs, msgs + msgs * WORDS_PERCENT / 100);
	}
}

/* A request that was told an error is not asked for again, so nobody may wait for it. */
static void test_error_ends_it(void **state)
{
	struct stream *stream = &streams[0];
	uint64_t start_ns = clock_mono_ns();
	void *req;
	int done = 0, size, rc = 0;

	(void)state;
	assert_int_equal(plugin_init(NULL, NULL), 0);
	open_stream(stream, 1);
	req = rig_irecv(&stream->pair, stream->to, LEN, stream->recv_mh);
	assert_int_equal(atomic_load(&ack_list_open_count), 1);
	plugin_dereg_mr(stream->pair.send, stream->send_mh);
	plugin_close_send(stream->pair.send);
	while (!rc) {
		rc = plugin_test(req, &done, &size);
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
	assert_int_equal(atomic_load(&ack_list_open_count), 0);
	assert_int_not_equal(plugin_test(req, &done, &size), 0);
	plugin_dereg_mr(stream->pair.recv, stream->recv_mh);
	plugin_close_recv(stream->pair.recv);
	check_none_left();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_error_ends_it),
	};

	return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
