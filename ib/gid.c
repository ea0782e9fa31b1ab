/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

int ib_gid_family(const union ibv_gid *gid)
{
	return memcmp(gid->raw, mapped_prefix, sizeof(mapped_prefix)) == 0 ? AF_INET : AF_INET6;
}

static bool bytes_zero(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (bytes[i] != 0) {
			return false;
		}
	}
	return true;
}

static bool fe80(const union ibv_gid *gid)
{
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

bool ib_gid_is_set(const union ibv_gid *gid)
{
	if (ib_gid_family(gid) == AF_INET) {
		return !bytes_zero(gid->raw + 12, 4);
	}
	if (fe80(gid) && bytes_zero(gid->raw + 8, 8)) {
		return false;
	}
	return !bytes_zero(gid->raw, sizeof(gid->raw));
}

bool ib_gid_is_link_local(const union ibv_gid *gid)
{
	if (ib_gid_family(gid) == AF_INET) {
		return gid->raw[12] == 169 && gid->raw[13] == 254;
	}
	return fe80(gid);
}

static bool bits_equal(const uint8_t *a, const uint8_t *b, unsigned int bits)
{
	unsigned int rest = bits % 8;

	if (memcmp(a, b, bits / 8) != 0) {
		return false;
	}
	return rest == 0 || (a[bits / 8] ^ b[bits / 8]) >> (8 - rest) == 0;
}

bool ib_gid_in_range(const union ibv_gid *gid, const char *range)
{
	char address[INET6_ADDRSTRLEN];
	uint8_t net[16];
	const char *slash = strchr(range, '/');
	int family = ib_gid_family(gid);
	unsigned long bits;

	if (range[0] == '\0') {
		return true;
	}
	if (slash == NULL || (size_t)(slash - range) >= sizeof(address)) {
		return false;
	}
	memcpy(address, range, (size_t)(slash - range));
	address[slash - range] = '\0';
	if (inet_pton(family, address, net) != 1) {
		return false;
	}
	bits = strtoul(slash + 1, NULL, 10);
	if (family == AF_INET) {
		return bits <= 32 && bits_equal(gid->raw + 12, net, (unsigned int)bits);
	}
	return bits <= 128 && bits_equal(gid->raw, net, (unsigned int)bits);
}

const char *ib_gid_text(const union ibv_gid *gid, char out[GID_TEXT_MAX_BYTES])
{
	const void *address = ib_gid_family(gid) == AF_INET ? gid->raw + 12 : gid->raw;

	if (inet_ntop(ib_gid_family(gid), address, out, GID_TEXT_MAX_BYTES) == NULL) {
		strcpy(out, "?");
	}
	return out;
}

uint16_t ib_gid_flid(const union ibv_gid *gid)
{
	return (uint16_t)(gid->raw[4] << 8 | gid->raw[5]);
}

static unsigned int grade(const struct gid_entry *entry, const struct gid_wish *wish)
{
	return (ib_gid_is_link_local(&entry->gid) ? 0u : 8u) |
	       (ib_gid_in_range(&entry->gid, wish->range) ? 4u : 0u) |
	       (entry->roce_version == wish->roce_version ? 2u : 0u) |
	       (ib_gid_family(&entry->gid) == wish->family ? 1u : 0u);
}

int ib_gid_choose(const struct gid_entry *table, unsigned int count, const struct gid_wish *wish)
{
	unsigned int best_grade = 0;
	int best = -ENOENT;

	for (unsigned int i = 0; i < count; i++) {
		unsigned int g = grade(&table[i], wish);

		if (ib_gid_is_set(&table[i].gid) && (best < 0 || g > best_grade)) {
			best = (int)i;
			best_grade = g;
		}
	}
	return best;
}
