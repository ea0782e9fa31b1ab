/* SPDX-License-Identifier: Apache-2.0 */
#include "include/log.h"
#include "oob/codec.h"
#include "test/unit/oob_rig.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * Whoever else comes to the control port, and peers of another version: refused in words at both
 * ends, counted, and without harm to the links that exist.
 */

static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
static char lines[65536]; /* all log lines of a test, under lines_lock */

static void sink(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[LOG_LINE_MAX_BYTES];
	va_list args;

	(void)level;
	(void)flags;
	(void)file;
	(void)line;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	pthread_mutex_lock(&lines_lock);
	if (strlen(lines) + strlen(text) + 2 < sizeof(lines)) {
		strcat(lines, text);
		strcat(lines, "\n");
	}
	pthread_mutex_unlock(&lines_lock);
}

static int said(const char *what)
{
	int found;

	pthread_mutex_lock(&lines_lock);
	found = strstr(lines, what) != NULL;
	pthread_mutex_unlock(&lines_lock);
	return found;
}

/** Two ends with a link between them, which must outlive whatever the test does. */
struct couple {
	struct rig a, b;
	struct oob_link *link;
};

static int couple_open(void **state)
{
	struct couple *couple = calloc(1, sizeof(*couple));

	assert_non_null(couple);
	pthread_mutex_lock(&lines_lock);
	lines[0] = '\0';
	pthread_mutex_unlock(&lines_lock);
	log_sink_set(sink);
	rig_open_with(&couple->a, 3000, 0);
	rig_open(&couple->b);
	couple->link = rig_get(&couple->a, &couple->b);
	rig_wait(&couple->b, up_count, 1);
	rig_wait(&couple->a, up_count, 1);
	*state = couple;
	return 0;
}

static int couple_close(void **state)
{
	struct couple *couple = *state;

	assert_int_equal(rig_send(couple->link, 9, 1), 0);
	rig_wait_stream(&couple->b, 9, 1);
	assert_int_equal(couple->a.lost_count + couple->b.lost_count, 0);
	assert_int_equal(couple->b.gone_count, 0);
	oob_link_put(couple->link);
	rig_close(&couple->a);
	rig_close(&couple->b);
	log_sink_set(NULL);
	free(couple);
	return 0;
}

static int raw_connect(const struct rig *rig)
{
	struct oob_addr addr;
	struct sockaddr_in to = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	oob_net_addr(rig->net, &addr);
	to.sin_port = htons(addr.port);
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	return fd;
}

/** Read until a whole frame is there, with a bound. 0, or -1 at the end of the stream. */
static int raw_frame(int fd, struct frame *frame)
{
	uint8_t bytes[OOB_FRAME_MAX_BYTES];
	struct oob_head head;
	size_t have = 0;

	for (;;) {
		struct pollfd ready = {.fd = fd, .events = POLLIN};
		int err = oob_codec_head(bytes, have, &head);
		ssize_t got;

		if (err == 0 && have >= OOB_HEAD_BYTES + head.body_bytes) {
			return oob_codec_get(bytes, &head, frame);
		}
		assert_true(err == 0 || err == -EAGAIN);
		assert_int_equal(poll(&ready, 1, RIG_WAIT_MS), 1);
		/* one byte at a time: what follows this frame stays in the socket */
		got = recv(fd, bytes + have, 1, 0);
		if (got <= 0) {
			return -1;
		}
		have += (size_t)got;
	}
}

/** The other end closes, by FIN or RST, within the bound. Returns how long that took. */
static uint64_t raw_wait_end_ms(int fd)
{
	uint64_t begin_ns = clock_mono_ns();
	char bytes[256];

	for (;;) {
		struct pollfd ready = {.fd = fd, .events = POLLIN};

		assert_int_equal(poll(&ready, 1, RIG_WAIT_MS), 1);
		if (recv(fd, bytes, sizeof(bytes), 0) <= 0) {
			return (clock_mono_ns() - begin_ns) / NS_PER_MS;
		}
	}
}

static void raw_send(int fd, const void *data, size_t len)
{
	assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
}

static void raw_send_frame(int fd, const struct frame *frame, uint64_t seq)
{
	uint8_t bytes[OOB_FRAME_MAX_BYTES];
	size_t len = 0;

	assert_int_equal(oob_codec_put(frame, bytes, &len), 0);
	oob_codec_seal(bytes, len, seq, 0);
	raw_send(fd, bytes, len);
}

static void expect_refusal(int fd, int err, const char *words)
{
	struct frame frame;

	assert_int_equal(raw_frame(fd, &frame), 0);
	assert_int_equal(frame.type, FRAME_REFUSED);
	assert_int_equal(frame.refused.err, err);
	assert_non_null(strstr(frame.refused.reason, words));
	raw_wait_end_ms(fd);
	close(fd);
}

static void raw_hello(const struct rig *to, struct frame *frame)
{
	struct oob_addr addr;

	oob_net_addr(to->net, &addr);
	memset(frame, 0, sizeof(*frame));
	frame->type = FRAME_HELLO;
	frame->hello.version = PROTO_VERSION;
	frame->hello.kind = HELLO_NEW;
	frame->hello.peer = addr.proc;
	frame->hello.self.bytes[0] = 77;
	frame->hello.link_id = 4711;
	frame->hello.attempt = 1;
	frame->hello.pid = 1;
	strcpy(frame->hello.host, "forged");
}

static void garbage(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
	struct couple *couple = *state;
	uint8_t noise[4096];
	int fd = raw_connect(&couple->b);

	raw_send(fd, http, sizeof(http));
	expect_refusal(fd, -EPROTO, "Braid");
	assert_int_equal(oob_net_strangers(couple->b.net), 1);
	assert_true(said("a stranger at 127.0.0.1:"));
	assert_true(said("does not speak Braid"));
	srand(1);
	for (int i = 0; i < 20; i++) {
		for (size_t n = 0; n < sizeof(noise); n++) {
			noise[n] = (uint8_t)rand();
		}
		/* half of them begin well */
		if (i % 2 == 0) {
			memcpy(noise, "BRID", 4);
		}
		fd = raw_connect(&couple->b);
		raw_send(fd, noise, sizeof(noise));
		raw_wait_end_ms(fd);
		close(fd);
	}
	assert_int_equal(oob_net_strangers(couple->b.net), 21);
}

static void silence(void **state)
{
	struct couple *couple = *state;
	int fd = raw_connect(&couple->b), half = raw_connect(&couple->b);
	uint64_t took_ms;

	raw_send(half, "BRI", 3);
	took_ms = raw_wait_end_ms(fd);
	assert_true(took_ms >= 4500 && took_ms < 10000);
	raw_wait_end_ms(half);
	close(fd);
	close(half);
	assert_int_equal(oob_net_strangers(couple->b.net), 2);
	assert_true(said("did not introduce itself in time"));
}

static void other_version_connects(void **state)
{
	struct couple *couple = *state;
	int fd = raw_connect(&couple->b);
	struct frame hello;

	raw_hello(&couple->b, &hello);
	hello.hello.version = PROTO_VERSION + 1;
	raw_send_frame(fd, &hello, 0);
	expect_refusal(fd, -EPROTONOSUPPORT, "version 3");
	assert_int_equal(oob_net_strangers(couple->b.net), 1);
	assert_true(said("install the same Braid on both hosts"));
}

/** A listener that plays a Braid of another version. */
static void other_version_listens(void **state)
{
	struct couple *couple = *state;
	struct sockaddr_in at = {.sin_family = AF_INET};
	struct oob_addr addr = {.addr_count = 1};
	socklen_t len = sizeof(at);
	struct oob_link *link;
	struct frame frame;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	addr.port = ntohs(at.sin_port);
	addr.addrs[0].family = AF_INET;
	memcpy(addr.addrs[0].bytes, &at.sin_addr, 4);
	memset(addr.proc.bytes, 5, sizeof(addr.proc.bytes));
	assert_int_equal(oob_link_get(couple->a.net, &addr, &link), 0);
	fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	assert_int_equal(raw_frame(fd, &frame), 0);
	assert_int_equal(frame.type, FRAME_HELLO);
	assert_memory_equal(&frame.hello.peer, &addr.proc, sizeof(addr.proc));
	frame.hello.version = PROTO_VERSION + 7;
	raw_send_frame(fd, &frame, 0);
	expect_refusal(fd, -EPROTONOSUPPORT, "version 9");
	rig_wait(&couple->a, gone_count, 1);
	assert_int_equal(couple->a.gone_err, -EPROTONOSUPPORT);
	assert_non_null(strstr(couple->a.gone_why, "install the same Braid on both hosts"));
	assert_true(said("install the same Braid on both hosts"));
	oob_link_put(link);
	close(listener);
}

static void former_process(void **state)
{
	struct couple *couple = *state;
	int fd = raw_connect(&couple->b);
	struct frame hello;

	raw_hello(&couple->b, &hello);
	hello.hello.peer.bytes[3] ^= 0x40;
	raw_send_frame(fd, &hello, 0);
	expect_refusal(fd, -ESRCH, "another process");
	assert_int_equal(oob_net_strangers(couple->b.net), 1);
	assert_int_equal(couple->b.up_count, 1);
}

static void not_introduced(void **state)
{
	struct couple *couple = *state;
	int fd = raw_connect(&couple->b);
	struct frame frame = {.type = FRAME_FENCED};

	raw_send_frame(fd, &frame, 1);
	expect_refusal(fd, -EPROTO, "HELLO");
	assert_int_equal(oob_net_strangers(couple->b.net), 1);
}

static void unknown_link(void **state)
{
	struct couple *couple = *state;
	int fd = raw_connect(&couple->b);
	struct frame hello;

	raw_hello(&couple->b, &hello);
	hello.hello.kind = HELLO_RESUME;
	raw_send_frame(fd, &hello, 0);
	expect_refusal(fd, -ESTALE, "closed");
	fd = raw_connect(&couple->b);
	hello.hello.kind = HELLO_PROBE;
	raw_send_frame(fd, &hello, 0);
	expect_refusal(fd, -ESTALE, "closed");
	/* peers of this job, if late: not strangers */
	assert_int_equal(oob_net_strangers(couple->b.net), 0);
}

/** A peer that was let in and then breaks the rules loses its link; its former attempts are void.
 */
static void gap_in_numbers(void **state)
{
	struct couple *couple = *state;
	int fd = raw_connect(&couple->b);
	struct frame hello, frame = {.type = FRAME_FENCED, .dst_comm = 1};

	raw_hello(&couple->b, &hello);
	hello.hello.attempt = 5;
	raw_send_frame(fd, &hello, 0);
	rig_wait(&couple->b, up_count, 2);
	frame.fenced.next_seq = 1;
	raw_send_frame(fd, &frame, 1);
	raw_send_frame(fd, &frame, 1); /* repeated: dropped */
	rig_wait_stream(&couple->b, 1, 1);
	raw_send_frame(fd, &frame, 3);
	rig_wait(&couple->b, lost_count, 1);
	raw_wait_end_ms(fd);
	close(fd);
	assert_true(said("FENCED frame 3 (ack 0) after frame 1"));
	fd = raw_connect(&couple->b);
	raw_send_frame(fd, &hello, 0);
	expect_refusal(fd, -EAGAIN, "younger");
	/* the next attempt goes on where the link was */
	hello.hello.attempt = 6;
	hello.hello.kind = HELLO_RESUME;
	fd = raw_connect(&couple->b);
	raw_send_frame(fd, &hello, 0);
	rig_wait(&couple->b, up_count, 3);
	frame.fenced.next_seq = 2;
	raw_send_frame(fd, &frame, 2);
	rig_wait_stream(&couple->b, 1, 2);
	frame = (struct frame){.type = FRAME_GOODBYE};
	raw_send_frame(fd, &frame, 3);
	raw_wait_end_ms(fd);
	close(fd);
	/* for the check at the end: that one loss was this link's */
	pthread_mutex_lock(&couple->b.lock);
	couple->b.lost_count = 0;
	pthread_mutex_unlock(&couple->b.lock);
}

/**
 * A connector whose link came from an address that its listener does not have: that it is gone is
 * believed only when all its listener's addresses refuse.
 */
static void refusals_of_unlisted_address(void **state)
{
	struct couple *couple = *state;
	struct sockaddr_in at = {.sin_family = AF_INET};
	int fd = raw_connect(&couple->b), listener;
	socklen_t len = sizeof(at);
	struct frame hello;

	/* one address refuses, at the other there is somebody, though not a Braid */
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 7);
	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 8), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	raw_hello(&couple->b, &hello);
	hello.hello.listen_port = ntohs(at.sin_port);
	hello.hello.addr_count = 2;
	for (int i = 0; i < 2; i++) {
		hello.hello.addrs[i].family = 4;
		memcpy(hello.hello.addrs[i].bytes, (uint8_t[]){127, 0, 0, (uint8_t)(7 + i)}, 4);
	}
	raw_send_frame(fd, &hello, 0);
	rig_wait(&couple->b, up_count, 2);
	pthread_mutex_lock(&couple->b.lock);
	oob_link_hold(couple->b.link);
	pthread_mutex_unlock(&couple->b.lock);
	close(fd);
	rig_wait(&couple->b, lost_count, 1);
	fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	close(fd);
	assert_false(rig_wait_ms(&couple->b, &couple->b.gone_count, 1, 300));
	close(listener);
	rig_wait(&couple->b, gone_count, 1);
	assert_int_equal(couple->b.gone_err, -ECONNREFUSED);
	oob_link_put(couple->b.link);
	/* for the check at the end: these were that link's */
	pthread_mutex_lock(&couple->b.lock);
	couple->b.lost_count = 0;
	couple->b.gone_count = 0;
	pthread_mutex_unlock(&couple->b.lock);
}

static int descriptor_count(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL) {
		count++;
	}
	closedir(dir);
	return count;
}

/** More silent connections than may be undecided at once: the rest waits, nobody is harmed. */
static void crowd(void **state)
{
	enum {
		CROWD = 1100
	};
	struct couple *couple = *state;
	static int fds[CROWD];
	int before = descriptor_count();
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_cur < 3 * CROWD) {
		print_message("needs %d open files, has %llu\n", 3 * CROWD,
			      (unsigned long long)limit.rlim_cur);
		skip();
	}
	for (int i = 0; i < CROWD; i++) {
		fds[i] = raw_connect(&couple->b);
	}
	/* each is a round through b's loop, and each round accepts some of the crowd */
	for (uint64_t i = 1; i <= 5000; i++) {
		assert_int_equal(rig_send(couple->link, 0, i), 0);
		rig_wait_stream(&couple->b, 0, i);
		if (i >= 50 && descriptor_count() - before >= CROWD + 1000) {
			break;
		}
	}
	assert_true(descriptor_count() - before <= CROWD + 1024);
	assert_true(descriptor_count() - before >= CROWD + 1000);
	for (int i = 0; i < CROWD; i++) {
		close(fds[i]);
	}
	/* and the door is open again */
	oob_link_put(couple->link);
	couple->link = rig_get(&couple->a, &couple->b);
	rig_wait(&couple->b, up_count, 2);
}

#define COUPLE_TEST(name) cmocka_unit_test_setup_teardown(name, couple_open, couple_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		COUPLE_TEST(garbage),
		COUPLE_TEST(silence),
		COUPLE_TEST(other_version_connects),
		COUPLE_TEST(other_version_listens),
		COUPLE_TEST(former_process),
		COUPLE_TEST(not_introduced),
		COUPLE_TEST(unknown_link),
		COUPLE_TEST(gap_in_numbers),
		COUPLE_TEST(refusals_of_unlisted_address),
		COUPLE_TEST(crowd),
	};

	return cmocka_run_group_tests_name("oob_stranger", tests, NULL, NULL);
}
