/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/ifsel.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

/* A host with a bit of everything. */
static const struct oob_if host[] = {
	{.name = "lo",
	 .family = AF_INET,
	 .bytes = {127, 0, 0, 1},
	 .loopback = true,
	 .running = true},
	{.name = "docker0", .family = AF_INET, .bytes = {172, 17, 0, 1}, .running = true},
	{.name = "usb0", .family = AF_INET, .bytes = {169, 254, 3, 4}, .running = true},
	{.name = "eth1", .family = AF_INET, .bytes = {10, 0, 0, 1}, .running = true},
	{.name = "eth1", .family = AF_INET, .bytes = {10, 0, 0, 2}, .running = true},
	{.name = "eth10", .family = AF_INET, .bytes = {10, 1, 0, 1}, .running = true},
	{.name = "eth2", .family = AF_INET, .bytes = {10, 2, 0, 1}, .running = false},
	{.name = "lo", .family = AF_INET6, .bytes = {[15] = 1}, .loopback = true, .running = true},
	{.name = "eth1", .family = AF_INET6, .bytes = {0xfe, 0x80, [15] = 1}, .running = true},
	{.name = "eth10", .family = AF_INET6, .bytes = {0xfd, [15] = 9}, .running = true},
	{.name = "veth7", .family = AF_INET6, .bytes = {0xfd, [15] = 7}, .running = true},
};

enum {
	HOST_COUNT = sizeof(host) / sizeof(host[0])
};

static void expect(const char *ifname, int family, const char *expected)
{
	size_t picks[OOB_IFSEL_PICKS], count;
	char text[256] = "";

	count = oob_ifsel_choose(host, HOST_COUNT, ifname, family, picks);
	for (size_t i = 0; i < count; i++) {
		char one[64];

		snprintf(one, sizeof(one), "%s%s.%u", i == 0 ? "" : " ", host[picks[i]].name,
			 host[picks[i]].bytes[host[picks[i]].family == AF_INET ? 3 : 15]);
		strcat(text, one);
	}
	assert_string_equal(text, expected);
}

static void default_choice(void **state)
{
	(void)state;
	/* one address of each interface first */
	expect(NULL, 0, "eth1.1 eth10.1 eth1.2");
	expect("", AF_INET, "eth1.1 eth10.1 eth1.2");
	expect("", AF_INET6, "eth10.9");
}

static void names(void **state)
{
	(void)state;
	expect("eth1", AF_INET, "eth1.1 eth10.1 eth1.2");
	expect("=eth1", AF_INET, "eth1.1 eth1.2");
	expect("=eth1", AF_INET6, "eth1.1"); /* link-local, when there is nothing else */
	expect("=eth2", 0, "eth2.1");        /* without carrier, when there is nothing else */
	expect("=docker0,=eth1", AF_INET, "docker0.1");
	expect("=docker0,eth10", AF_INET, "docker0.1 eth10.1");
	expect("lo", AF_INET, "lo.1");
	expect("lo", 0, "lo.1 lo.1");
	expect("docker", 0, "docker0.1");
	expect("usb", 0, "usb0.4");
	expect("veth", 0, "veth7.7");
}

static void excluded(void **state)
{
	(void)state;
	expect("^eth10", 0, "eth1.1 eth1.2");
	expect("^=eth1", AF_INET, "eth10.1");
	expect("^eth1", AF_INET, "usb0.4");
	expect("^eth,usb", AF_INET, "docker0.1");
	expect("^eth,usb,docker", AF_INET, "lo.1");
}

static void nothing_matches(void **state)
{
	char text[64];

	(void)state;
	expect("wlan", 0, "");
	expect("=eth", 0, "");
	expect("=docker0", AF_INET6, "");
	expect("^eth,usb,docker,lo,veth", 0, "");
	assert_string_equal(oob_ifsel_text(host, 2, text, sizeof(text)),
			    "lo (127.0.0.1), docker0 (172.17.0.1)");
	/* cut, terminated, and no step beyond */
	assert_int_equal(strlen(oob_ifsel_text(host, HOST_COUNT, text, 20)), 19);
}

static void this_host(void **state)
{
	static struct oob_if ifs[OOB_IFSEL_MAX];
	size_t count = 0, picks[OOB_IFSEL_PICKS];

	(void)state;
	assert_int_equal(oob_ifsel_list(ifs, &count), 0);
	assert_true(count >= 1);
	assert_true(oob_ifsel_choose(ifs, count, "lo", AF_INET, picks) == 1);
	assert_true(ifs[picks[0]].loopback);
	assert_true(ifs[picks[0]].bytes[0] == 127);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(default_choice), cmocka_unit_test(names),
		cmocka_unit_test(excluded),       cmocka_unit_test(nothing_matches),
		cmocka_unit_test(this_host),
	};

	return cmocka_run_group_tests_name("oob_ifsel", tests, NULL, NULL);
}
