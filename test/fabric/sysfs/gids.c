/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/sysfs/gids.h"

#include <errno.h>
#include <string.h>

/* Each kind keeps (rail, host + 1) in its last two bytes, and its own bytes before them. */
static const uint8_t starts[FAB_GID_KIND_COUNT][14] = {
	[FAB_GID_LL_V1] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0xfa, 0xb0, 0xff, 0xfe, 0},
	[FAB_GID_LL_V2] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0xfa, 0xb0, 0xff, 0xfe, 0},
	[FAB_GID_IP4_V1] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77},
	[FAB_GID_IP4_V2] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77},
	[FAB_GID_IP6_V2] = {0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
};

void fab_gid_make(enum fab_gid_kind kind, uint32_t host, uint32_t rail, uint8_t gid[16])
{
	memset(gid, 0, 16);
	if (kind == FAB_GID_EMPTY) {
		return;
	}
	memcpy(gid, starts[kind], sizeof(starts[kind]));
	gid[14] = (uint8_t)rail;
	gid[15] = (uint8_t)(host + 1);
}

int fab_gid_owner(const uint8_t gid[16], uint32_t *host, uint32_t *rail)
{
	for (unsigned int kind = 0; kind < FAB_GID_EMPTY; kind++) {
		if (memcmp(gid, starts[kind], sizeof(starts[kind])) == 0 && gid[15] >= 1 &&
		    gid[15] <= FAB_MAX_HOSTS && gid[14] < FAB_MAX_RAILS) {
			*rail = gid[14];
			*host = gid[15] - 1u;
			return 0;
		}
	}
	return -EINVAL;
}
