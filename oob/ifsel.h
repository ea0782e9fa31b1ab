/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_OOB_IFSEL_H
#define BRAID_OOB_IFSEL_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Which addresses of the host carry the links: NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY. */

enum {
	OOB_IFSEL_MAX = 128, /* addresses looked at */
	OOB_IFSEL_PICKS = 3  /* addresses used */
};

/** One address of one interface. */
struct oob_if {
	char name[IF_NAMESIZE];
	uint8_t family; /* AF_INET or AF_INET6 */
	uint8_t bytes[16];
	uint32_t index; /* interface index, scope of link-local addresses */
	bool loopback;
	bool running; /* carrier */
};

/** Addresses of interfaces that are up. *count at most OOB_IFSEL_MAX. 0 or -errno. May block
 * briefly. */
int oob_ifsel_list(struct oob_if *ifs, size_t *count);

/**
 * Choose up to OOB_IFSEL_PICKS of them; picks are indices, best first, first one address of each
 * interface. ifname as NCCL reads NCCL_SOCKET_IFNAME: a comma list of prefixes; a leading '^' takes
 * what does not match, '=' (after '^' too) compares whole names; NULL or "": anything. family:
 * AF_INET, AF_INET6 or 0. Interfaces of containers and bridges (docker*, virbr*, veth*) and the
 * loopback are used only when named or when there is nothing else, link-local addresses only when
 * there is nothing else. Returns how many were picked; 0 when nothing matches. Pure.
 */
size_t oob_ifsel_choose(const struct oob_if *ifs, size_t count, const char *ifname, int family,
			size_t picks[OOB_IFSEL_PICKS]);

/** "lo (127.0.0.1), eth0 (10.0.0.1)" for log lines, cut to size_bytes. Returns buf. */
const char *oob_ifsel_text(const struct oob_if *ifs, size_t count, char *buf, size_t size_bytes);

#endif
