/* SPDX-License-Identifier: Apache-2.0 */
#include "test/unit/oob_proxy.h"
#include "test/unit/oob_rig.h"

#include <errno.h>

/* Links over a proxy that loses connections: what was sent arrives once and in order. */

static struct oob_link *get_by_proxy(struct rig *rig, const struct rig *peer,
				     const struct proxy *proxy)
{
	struct oob_link *link = NULL;
	struct oob_addr addr;

	oob_net_addr(peer->net, &addr);
	addr.port = proxy->port;
	assert_int_equal(oob_link_get(rig->net, &addr, &link), 0);
	return link;
}

static uint16_t rig_port(const struct rig *rig)
{
	struct oob_addr addr;

	oob_net_addr(rig->net, &addr);
	return addr.port;
}

enum {
	FRAMES = 20000,
	CUTS = 30
};

static void cut_run(uint64_t seed)
{
	struct proxy proxy;
	struct oob_link *link;
	struct rig a, b;

	print_message("seed %llu\n", (unsigned long long)seed);
	rig_open(&a);
	rig_open(&b);
	b.echo = 1;
	assert_int_equal(proxy_start(&proxy, rig_port(&b), seed), 0);
	proxy.cut_least_bytes = 100;
	proxy.cut_spread_bytes = 60000;
	proxy.cut_budget = CUTS;
	link = get_by_proxy(&a, &b, &proxy);
	for (uint64_t i = 1; i <= FRAMES; i++) {
		assert_int_equal(rig_send(link, 1, i), 0);
	}
	rig_wait_stream(&b, 1, FRAMES);
	rig_wait_stream(&a, 1, FRAMES);
	oob_link_put(link);
	rig_close(&a);
	rig_close(&b);
	proxy_stop(&proxy);
	print_message("cuts %u, lost %u and %u, up %u and %u\n", proxy.cut_count, a.lost_count,
		      b.lost_count, a.up_count, b.up_count);
	assert_int_equal(a.gone_count + b.gone_count, 0);
	assert_true(proxy.cut_count >= CUTS / 2);
	assert_true(a.lost_count >= 5);
	assert_int_equal(a.up_count, a.lost_count + 1);
	assert_int_equal(b.up_count, b.lost_count + 1);
}

static void cuts_lose_nothing(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++) {
		cut_run(seed * 7919);
	}
}

/** The last words of a link, cut on the way, still arrive; the other end hears GOODBYE. */
static void goodbye_survives_a_cut(void **state)
{
	struct proxy proxy;
	struct oob_link *link;
	struct rig a, b;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	assert_int_equal(proxy_start(&proxy, rig_port(&b), 5), 0);
	proxy.cut_least_bytes = 2000;
	proxy.cut_budget = 2;
	link = get_by_proxy(&a, &b, &proxy);
	rig_wait(&b, up_count, 1);
	pthread_mutex_lock(&b.lock);
	oob_link_hold(b.link);
	pthread_mutex_unlock(&b.lock);
	for (uint64_t i = 1; i <= 100; i++) {
		assert_int_equal(rig_send(link, 1, i), 0);
	}
	oob_link_put(link);
	rig_wait(&b, gone_count, 1);
	assert_int_equal(b.gone_err, -ESHUTDOWN);
	rig_wait_stream(&b, 1, 100);
	oob_link_put(b.link);
	rig_close(&a);
	rig_close(&b);
	proxy_stop(&proxy);
	assert_true(proxy.cut_count >= 1);
}

static void unreachable_is_bounded(void **state)
{
	struct proxy proxy;
	struct oob_link *link;
	struct rig a, b;
	uint64_t begin_ns;

	(void)state;
	rig_open_with(&a, 0, 700);
	rig_open(&b);
	assert_int_equal(proxy_start(&proxy, rig_port(&b), 5), 0);
	link = get_by_proxy(&a, &b, &proxy);
	rig_wait(&a, up_count, 1);
	proxy.mode = PROXY_HANG_UP;
	begin_ns = clock_mono_ns();
	proxy_cut_all(&proxy);
	rig_wait(&a, gone_count, 1);
	assert_int_equal(a.gone_err, -ETIMEDOUT);
	assert_true(a.gone_at_ns - begin_ns >= 650 * NS_PER_MS);
	assert_true(a.gone_at_ns - begin_ns < 5000 * NS_PER_MS);
	assert_int_equal(rig_send(link, 0, 1), -EPIPE);
	oob_link_put(link);
	rig_close(&a);
	rig_close(&b);
	proxy_stop(&proxy);
}

/** Both ends of a link know when the other has forgotten it. */
static void forgotten_link_is_gone(void **state)
{
	struct proxy proxy;
	struct oob_link *link;
	struct rig a, b;

	(void)state;
	rig_open_with(&a, 0, 500);
	rig_open(&b);
	assert_int_equal(proxy_start(&proxy, rig_port(&b), 5), 0);
	link = get_by_proxy(&a, &b, &proxy);
	rig_wait(&b, up_count, 1);
	rig_wait(&a, up_count, 1);
	proxy.mode = PROXY_HANG_UP;
	proxy_cut_all(&proxy);
	/* a gives up; b asks a and hears that the link is no more */
	rig_wait(&a, gone_count, 1);
	oob_link_put(link);
	pthread_mutex_lock(&b.lock);
	oob_link_hold(b.link);
	pthread_mutex_unlock(&b.lock);
	rig_wait(&b, gone_count, 1);
	assert_int_equal(b.gone_err, -ESTALE);
	oob_link_put(b.link);
	rig_close(&a);
	rig_close(&b);
	proxy_stop(&proxy);
}

static void successor_is_not_the_peer(void **state)
{
	struct proxy proxy;
	struct oob_link *link;
	struct rig a, b;
	struct oob_addr addr;

	(void)state;
	rig_open(&a);
	rig_open(&b);
	assert_int_equal(proxy_start(&proxy, rig_port(&b), 5), 0);
	/* the handle of a process that is gone, whose port b has now */
	oob_net_addr(b.net, &addr);
	addr.port = proxy.port;
	addr.proc.bytes[0] ^= 1;
	rig_close(&a);
	rig_open_with(&a, 400, 0);
	assert_int_equal(oob_link_get(a.net, &addr, &link), 0);
	rig_wait(&a, gone_count, 1);
	assert_int_equal(a.gone_err, -ETIMEDOUT);
	assert_true(oob_net_strangers(b.net) >= 1);
	assert_int_equal(b.up_count, 0);
	oob_link_put(link);
	rig_close(&a);
	rig_close(&b);
	proxy_stop(&proxy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cuts_lose_nothing),
		cmocka_unit_test(goodbye_survives_a_cut),
		cmocka_unit_test(unreachable_is_bounded),
		cmocka_unit_test(forgotten_link_is_gone),
		cmocka_unit_test(successor_is_not_the_peer),
	};

	return cmocka_run_group_tests_name("oob_cut", tests, NULL, NULL);
}
