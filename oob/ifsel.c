/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/ifsel.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/** The lower the better; only addresses of the best class present are used. */
enum if_class {
	IF_CLASS_PLAIN,
	IF_CLASS_LINK_LOCAL,
	IF_CLASS_NO_CARRIER,
	IF_CLASS_VIRTUAL,
	IF_CLASS_LOOPBACK,
	IF_CLASS_COUNT
};

int oob_ifsel_list(struct oob_if *ifs, size_t *count)
{
	struct ifaddrs *all, *at;
	size_t n = 0;

	if (getifaddrs(&all) != 0) {
		return -errno;
	}
	for (at = all; at != NULL && n < OOB_IFSEL_MAX; at = at->ifa_next) {
		struct oob_if *entry = &ifs[n];

		if (at->ifa_addr == NULL || (at->ifa_flags & IFF_UP) == 0 ||
		    (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6)) {
			continue;
		}
		memset(entry, 0, sizeof(*entry));
		snprintf(entry->name, sizeof(entry->name), "%s", at->ifa_name);
		entry->family = (uint8_t)at->ifa_addr->sa_family;
		if (entry->family == AF_INET) {
			const struct sockaddr_in *v4 = (const void *)at->ifa_addr;

			memcpy(entry->bytes, &v4->sin_addr, 4);
		} else {
			const struct sockaddr_in6 *v6 = (const void *)at->ifa_addr;

			memcpy(entry->bytes, &v6->sin6_addr, 16);
		}
		entry->index = if_nametoindex(at->ifa_name);
		entry->loopback = (at->ifa_flags & IFF_LOOPBACK) != 0;
		entry->running = (at->ifa_flags & IFF_RUNNING) != 0;
		n++;
	}
	freeifaddrs(all);
	*count = n;
	return 0;
}

static bool name_matches(const char *name, const char *tokens, bool exact)
{
	while (*tokens != '\0') {
		size_t len = strcspn(tokens, ",");
		bool hit = len > 0 && strncmp(name, tokens, len) == 0;

		if (hit && (!exact || name[len] == '\0')) {
			return true;
		}
		tokens += len;
		tokens += *tokens == ',' ? 1 : 0;
	}
	return false;
}

static bool link_local(const struct oob_if *entry)
{
	if (entry->family == AF_INET) {
		return entry->bytes[0] == 169 && entry->bytes[1] == 254;
	}
	return entry->bytes[0] == 0xfe && (entry->bytes[1] & 0xc0) == 0x80;
}

static enum if_class if_classify(const struct oob_if *entry, bool named)
{
	if (!named && entry->loopback) {
		return IF_CLASS_LOOPBACK;
	}
	if (!named && name_matches(entry->name, "docker,virbr,veth", false)) {
		return IF_CLASS_VIRTUAL;
	}
	if (!entry->running) {
		return IF_CLASS_NO_CARRIER;
	}
	return link_local(entry) ? IF_CLASS_LINK_LOCAL : IF_CLASS_PLAIN;
}

static bool picked(const struct oob_if *ifs, const size_t *picks, size_t pick_count, size_t i,
		   bool by_name)
{
	for (size_t p = 0; p < pick_count; p++) {
		if (picks[p] == i || (by_name && strcmp(ifs[picks[p]].name, ifs[i].name) == 0)) {
			return true;
		}
	}
	return false;
}

size_t oob_ifsel_choose(const struct oob_if *ifs, size_t count, const char *ifname, int family,
			size_t picks[OOB_IFSEL_PICKS])
{
	const char *tokens = ifname != NULL ? ifname : "";
	bool exclude = tokens[0] == '^';
	bool exact, named;
	enum if_class classes[OOB_IFSEL_MAX], best = IF_CLASS_COUNT;
	size_t n = 0;

	tokens += exclude ? 1 : 0;
	exact = tokens[0] == '=';
	tokens += exact ? 1 : 0;
	named = tokens[0] != '\0' && !exclude;
	count = count < OOB_IFSEL_MAX ? count : OOB_IFSEL_MAX;
	for (size_t i = 0; i < count; i++) {
		bool match =
			tokens[0] == '\0' || name_matches(ifs[i].name, tokens, exact) != exclude;

		if (family != 0 && ifs[i].family != family) {
			match = false;
		}
		classes[i] = match ? if_classify(&ifs[i], named) : IF_CLASS_COUNT;
		best = classes[i] < best ? classes[i] : best;
	}
	/* first one address of each interface, then more of the same ones */
	for (int by_name = 1; best < IF_CLASS_COUNT && by_name >= 0; by_name--) {
		for (size_t i = 0; i < count && n < OOB_IFSEL_PICKS; i++) {
			if (classes[i] == best && !picked(ifs, picks, n, i, by_name == 1)) {
				picks[n++] = i;
			}
		}
	}
	return n;
}

const char *oob_ifsel_text(const struct oob_if *ifs, size_t count, char *buf, size_t size_bytes)
{
	size_t at = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < count && at < size_bytes; i++) {
		char text[INET6_ADDRSTRLEN] = "?";
		int len;

		inet_ntop(ifs[i].family, ifs[i].bytes, text, sizeof(text));
		len = snprintf(buf + at, size_bytes - at, "%s%s (%s)", i == 0 ? "" : ", ",
			       ifs[i].name, text);
		at += len > 0 ? (size_t)len : 0;
	}
	return buf;
}
