/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/lib.h"
#include "test/fabric/sysfs/gids.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

uint16_t fab_addr_lid(uint32_t host, uint32_t rail)
{
	return (uint16_t)(1 + host * FAB_MAX_RAILS + rail);
}

uint64_t fab_addr_guid(uint32_t host, uint32_t rail)
{
	return 0x02fab00000000001ull | (uint64_t)host << 24 | (uint64_t)rail << 8;
}

void fab_addr_gid(const struct fab_lib *lib, uint32_t host, uint32_t rail, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[0] = 0xfe;
	gid->raw[1] = 0x80;
	/* Rails that do not reach each other are different subnets. */
	gid->raw[7] = lib->rail_wired ? (uint8_t)rail : 0;
	for (unsigned int i = 0; i < 8; i++) {
		gid->raw[8 + i] = (uint8_t)(fab_addr_guid(host, rail) >> (56 - 8 * i));
	}
}

static int resolve_gid(const struct fab_lib *lib, const union ibv_gid *gid, uint32_t *host,
		       uint32_t *rail)
{
	for (uint32_t h = 0; h < FAB_MAX_HOSTS; h++) {
		for (uint32_t r = 0; r < FAB_MAX_RAILS; r++) {
			union ibv_gid have;

			fab_addr_gid(lib, h, r, &have);
			if (memcmp(&have, gid, sizeof(have)) == 0) {
				*host = h;
				*rail = r;
				return 0;
			}
		}
	}
	return -EINVAL;
}

int fab_addr_resolve(const struct fab_lib *lib, bool roce, const struct ibv_ah_attr *ah,
		     uint32_t *host, uint32_t *rail)
{
	uint32_t number;

	if (roce) {
		return ah->is_global != 0 ? fab_gid_owner(ah->grh.dgid.raw, host, rail) : -EINVAL;
	}
	if (ah->dlid == 0) {
		return ah->is_global != 0 ? resolve_gid(lib, &ah->grh.dgid, host, rail) : -EINVAL;
	}
	number = (uint32_t)ah->dlid - 1;
	if (number >= FAB_MAX_HOSTS * FAB_MAX_RAILS) {
		return -EINVAL;
	}
	*host = number / FAB_MAX_RAILS;
	*rail = number % FAB_MAX_RAILS;
	return 0;
}
