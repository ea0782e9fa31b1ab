/* SPDX-License-Identifier: Apache-2.0 */
#include "include/log.h"
#include "test/unit/oob_rig.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* Links between nets of one process. */

static void exchange(void **state)
{
	struct rig a, b;
	struct oob_link *link, *again;
	struct proc_id peer;
	struct oob_addr addr;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	b.echo = 1;
	link = rig_get(&a, &b);
	again = rig_get(&a, &b);
	assert_ptr_equal(link, again);
	/* queued before the link is up */
	for (uint64_t i = 1; i <= 100; i++) {
		assert_int_equal(rig_send(link, 3, i), 0);
	}
	rig_wait_stream(&b, 3, 100);
	rig_wait_stream(&a, 3, 100);
	rig_wait(&a, up_count, 1);
	assert_non_null(strstr(oob_link_name(link), "127.0.0.1"));
	oob_net_addr(b.net, &addr);
	peer = oob_link_peer(link);
	assert_memory_equal(&peer, &addr.proc, sizeof(peer));
	oob_link_put(again);
	oob_link_put(link);
	rig_close(&a);
	rig_close(&b);
	assert_int_equal(a.lost_count + b.lost_count, 0);
	assert_int_equal(a.up_count, 1);
	assert_int_equal(b.up_count, 1);
}

/** Both families at once, on one port; the peer is reached by the family it listens on. */
static void families(void **state)
{
	static const int family[] = {AF_INET6, 0};
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int have_v6 = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0;

	(void)state;
	close(fd);
	if (!have_v6) {
		print_message("this machine has no ::1\n");
		skip();
	}
	for (size_t i = 0; i < 2; i++) {
		struct oob_link *link;
		struct oob_addr addr;
		struct rig a, b;

		rig_open_family(&a, family[i], 0, 0);
		rig_open_family(&b, family[i], 0, 0);
		oob_net_addr(b.net, &addr);
		assert_int_equal(addr.addr_count, family[i] == 0 ? 2 : 1);
		/* the last address is IPv6 in both cases: use that one alone */
		addr.addrs[0] = addr.addrs[addr.addr_count - 1];
		addr.addr_count = 1;
		assert_int_equal(addr.addrs[0].family, AF_INET6);
		assert_int_equal(oob_link_get(a.net, &addr, &link), 0);
		assert_non_null(strstr(oob_link_name(link), " at [::1]:"));
		assert_int_equal(rig_send(link, 0, 1), 0);
		rig_wait_stream(&b, 0, 1);
		oob_link_put(link);
		rig_close(&a);
		rig_close(&b);
	}
}

static void goodbye_to_users(void **state)
{
	struct rig a, b;
	struct oob_link *link;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	link = rig_get(&a, &b);
	rig_wait(&b, up_count, 1);
	rig_wait(&a, up_count, 1);
	rig_close(&b);
	rig_wait(&a, gone_count, 1);
	assert_int_equal(a.gone_err, -ESHUTDOWN);
	assert_int_equal(a.lost_count, 0);
	assert_int_equal(rig_send(link, 0, 1), -EPIPE);
	oob_link_put(link);
	rig_close(&a);
	assert_int_equal(a.gone_count, 1);
}

static void goodbye_to_acceptor(void **state)
{
	struct rig a, b;
	struct oob_link *link;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	link = rig_get(&a, &b);
	rig_wait(&b, up_count, 1);
	oob_link_hold(b.link);
	/* queued frames leave before the goodbye */
	for (uint64_t i = 1; i <= 1000; i++) {
		assert_int_equal(rig_send(link, 0, i), 0);
	}
	oob_link_put(link);
	rig_wait(&b, gone_count, 1);
	assert_int_equal(b.gone_err, -ESHUTDOWN);
	rig_wait_stream(&b, 0, 1000);
	assert_int_equal(rig_send(b.link, 0, 1), -EPIPE);
	oob_link_put(b.link);
	/* a new link to the same process, after and beside the old one */
	link = rig_get(&a, &b);
	rig_wait(&b, up_count, 2);
	oob_link_put(link);
	rig_close(&a);
	rig_close(&b);
	assert_int_equal(a.gone_count, 0);
	assert_int_equal(b.gone_count, 1);
}

static void put_before_up_delivers(void **state)
{
	struct rig a, b;
	struct oob_link *link;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	link = rig_get(&a, &b);
	assert_int_equal(rig_send(link, 2, 1), 0);
	oob_link_put(link);
	rig_wait_stream(&b, 2, 1);
	/* and one that has nothing to say */
	oob_link_put(rig_get(&a, &b));
	rig_close(&a);
	rig_close(&b);
}

static void put_after_net_close(void **state)
{
	struct rig a, b;
	struct oob_link *link, *other;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	link = rig_get(&a, &b);
	rig_wait(&b, up_count, 1);
	other = b.link;
	oob_link_hold(other);
	rig_close(&a);
	rig_close(&b);
	assert_int_equal(rig_send(link, 0, 1), -EPIPE);
	oob_link_hold(link);
	oob_link_put(link);
	oob_link_put(link);
	oob_link_put(other);
}

static void ping_is_answered(void **state)
{
	struct frame ping = {.type = FRAME_PING};
	struct rig a, b;
	struct oob_link *link;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	link = rig_get(&a, &b);
	ping.ping.cookie = 0x1234567890;
	assert_int_equal(oob_link_send(link, &ping), 0);
	rig_wait(&a, other_count, 1);
	assert_int_equal(a.last.type, FRAME_PONG);
	assert_int_equal(a.last.ping.cookie, 0x1234567890);
	assert_int_equal(b.other_count, 0);
	oob_link_put(link);
	rig_close(&a);
	rig_close(&b);
}

static void big_frame(struct frame *frame)
{
	memset(frame, 0, sizeof(*frame));
	frame->type = FRAME_OPENED;
	frame->dst_comm = 99;
	memset(frame->opened.dev, 'd', sizeof(frame->opened.dev) - 1);
	frame->opened.rail_count = PATHS_MAX;
	frame->opened.path_count = PATHS_MAX;
	for (unsigned i = 0; i < PATHS_MAX; i++) {
		memset(frame->opened.rails[i].name, 'n', RAIL_NAME_MAX - 1);
		frame->opened.rails[i].link_layer = RAIL_LINK_ETHERNET;
		frame->opened.rails[i].mtu = 5;
		frame->opened.rails[i].guid = ~0ull;
		frame->opened.paths[i].local_rail = (uint8_t)i;
		frame->opened.paths[i].qp.qpn = 0xffffff;
	}
}

static void big_frames(void **state)
{
	struct frame frame;
	struct rig a, b;
	struct oob_link *link;
	unsigned rounds = 3, count = 1000;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	link = rig_get(&a, &b);
	big_frame(&frame);
	/* all rounds together are more than the queue holds: acks must make room, with no frame
	 * going the other way to carry them */
	assert_true(rounds * count * 1500 > 4 << 20);
	for (unsigned round = 1; round <= rounds; round++) {
		for (unsigned i = 0; i < count; i++) {
			assert_int_equal(oob_link_send(link, &frame), 0);
		}
		rig_wait(&b, other_count, round * count);
	}
	assert_memory_equal(&b.last, &frame, sizeof(frame));
	oob_link_put(link);
	rig_close(&a);
	rig_close(&b);
}

static void queue_is_bounded(void **state)
{
	const struct oob_addr nowhere = {.port = 1,
					 .addr_count = 1,
					 .addrs = {{.family = AF_INET, .bytes = {127, 0, 0, 1}}}};
	struct frame frame;
	struct rig a;
	struct oob_link *link;
	unsigned count = 0;
	int err = 0;

	(void)state;
	rig_open_with(&a, 300, 0);
	assert_int_equal(oob_link_get(a.net, &nowhere, &link), 0);
	big_frame(&frame);
	for (; err == 0; count++) {
		err = oob_link_send(link, &frame);
	}
	assert_int_equal(err, -ENOBUFS);
	assert_true(count > 1000);
	/* the last word of a comm is taken all the same */
	assert_int_equal(oob_link_send(link, &(struct frame){.type = FRAME_CLOSE}), 0);
	/* refused connections are tried again until the time is over */
	rig_wait(&a, gone_count, 1);
	assert_int_equal(a.gone_err, -ETIMEDOUT);
	assert_non_null(strstr(a.gone_why, "refused"));
	assert_int_equal(oob_link_send(link, &frame), -EPIPE);
	oob_link_put(link);
	rig_close(&a);
	assert_int_equal(a.up_count, 0);
}

enum {
	SENDERS = 8,
	SENDS = 3000
};

struct sender {
	pthread_t thread;
	struct oob_link *link;
	unsigned stream;
};

static void *sender_main(void *arg)
{
	struct sender *sender = arg;

	for (uint64_t i = 1; i <= SENDS; i++) {
		assert_int_equal(rig_send(sender->link, sender->stream, i), 0);
	}
	return NULL;
}

static void senders_start(struct sender *senders, struct oob_link *link)
{
	for (unsigned i = 0; i < SENDERS; i++) {
		senders[i].link = link;
		senders[i].stream = i;
		assert_int_equal(pthread_create(&senders[i].thread, NULL, sender_main, &senders[i]),
				 0);
	}
}

/* Each end connects to the other at the same moment, and many threads send on both links. */
static void senders_both_ways(void **state)
{
	struct sender ab[SENDERS], ba[SENDERS];
	struct oob_link *to_b, *to_a;
	struct rig a, b;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	to_b = rig_get(&a, &b);
	to_a = rig_get(&b, &a);
	senders_start(ab, to_b);
	senders_start(ba, to_a);
	for (unsigned i = 0; i < SENDERS; i++) {
		pthread_join(ab[i].thread, NULL);
		pthread_join(ba[i].thread, NULL);
	}
	for (unsigned i = 0; i < SENDERS; i++) {
		rig_wait_stream(&a, i, SENDS);
		rig_wait_stream(&b, i, SENDS);
	}
	/* two links, each of them up at both ends */
	assert_int_equal(a.up_count, 2);
	assert_int_equal(b.up_count, 2);
	oob_link_put(to_b);
	oob_link_put(to_a);
	rig_close(&a);
	rig_close(&b);
}

static void *churn_main(void *arg)
{
	struct rig *pair = arg;

	for (int i = 0; i < 200; i++) {
		struct oob_link *link = rig_get(&pair[0], &pair[1]);
		struct frame ping = {.type = FRAME_PING};

		oob_link_hold(link);
		(void)oob_link_send(link, &ping);
		oob_link_put(link);
		oob_link_put(link);
	}
	return NULL;
}

/* Users that come and go on several threads: the count of users must never slip. */
static void users_come_and_go(void **state)
{
	struct rig pair[2];
	pthread_t threads[4];

	(void)state;
	rig_open(&pair[0]);
	rig_open(&pair[1]);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_create(&threads[i], NULL, churn_main, pair), 0);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
	}
	rig_close(&pair[0]);
	rig_close(&pair[1]);
	assert_int_equal(pair[0].gone_count, 0);
	assert_int_equal(pair[0].lost_count, 0);
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

static void many_nets_leave_nothing(void **state)
{
	int before = descriptor_count();
	struct rig hub, ends[8];
	struct oob_link *links[8];

	(void)state;
	rig_open(&hub);
	for (int i = 0; i < 8; i++) {
		rig_open(&ends[i]);
		links[i] = rig_get(&ends[i], &hub);
		assert_int_equal(rig_send(links[i], (unsigned)i, 1), 0);
	}
	for (unsigned i = 0; i < 8; i++) {
		rig_wait_stream(&hub, i, 1);
	}
	for (int i = 0; i < 8; i++) {
		if (i % 2 == 0) {
			oob_link_put(links[i]);
		}
		rig_close(&ends[i]);
		if (i % 2 == 1) {
			oob_link_put(links[i]);
		}
	}
	rig_close(&hub);
	assert_int_equal(descriptor_count(), before);
}

/* Without descriptors accepting pauses; with descriptors it goes on, and nothing else broke. */
static void out_of_descriptors(void **state)
{
	struct rlimit old, tight;
	struct oob_link *first, *second;
	struct rig a, b;
	int ends[2], extras[256], extra_count = 0;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	first = rig_get(&a, &b);
	rig_wait(&b, up_count, 1);
	rig_wait(&a, up_count, 1);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(pipe(ends), 0);
	/* exactly the descriptors in use, so neither connect nor accept gets one */
	tight = old;
	tight.rlim_cur = (rlim_t)ends[1] + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	while (extra_count < 256 && (extras[extra_count] = dup(ends[0])) >= 0) {
		extra_count++;
	}
	assert_int_equal(errno, EMFILE);
	/* room for the connecting end only */
	close(ends[1]);
	second = rig_get(&b, &a);
	assert_int_equal(rig_send(first, 0, 1), 0);
	rig_wait_stream(&b, 0, 1);
	assert_false(rig_wait_ms(&b, &b.up_count, 2, 300));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	rig_wait(&b, up_count, 2);
	rig_wait(&a, up_count, 2);
	while (extra_count > 0) {
		close(extras[--extra_count]);
	}
	close(ends[0]);
	oob_link_put(first);
	oob_link_put(second);
	rig_close(&a);
	rig_close(&b);
	assert_int_equal(a.lost_count + b.lost_count, 0);
}

static void no_such_interface(void **state)
{
	const struct oob_handlers none = {.frame = NULL};
	const struct oob_net_opts opts = {.ifname = "=nosuchif"};
	struct oob_loop *loop;
	struct oob_net *net = NULL;

	(void)state;
	assert_int_equal(oob_loop_start(&loop), 0);
	assert_int_equal(oob_net_open(loop, &opts, &none, NULL, &net), -ENODEV);
	assert_null(net);
	oob_net_close(NULL);
	oob_loop_stop(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exchange),
		cmocka_unit_test(families),
		cmocka_unit_test(goodbye_to_users),
		cmocka_unit_test(goodbye_to_acceptor),
		cmocka_unit_test(put_before_up_delivers),
		cmocka_unit_test(put_after_net_close),
		cmocka_unit_test(ping_is_answered),
		cmocka_unit_test(big_frames),
		cmocka_unit_test(queue_is_bounded),
		cmocka_unit_test(senders_both_ways),
		cmocka_unit_test(users_come_and_go),
		cmocka_unit_test(many_nets_leave_nothing),
		cmocka_unit_test(out_of_descriptors),
		cmocka_unit_test(no_such_interface),
	};

	return cmocka_run_group_tests_name("oob_link", tests, NULL, NULL);
}
