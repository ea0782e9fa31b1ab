/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/lib.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* More names than there are verbs: all that was said so far. */
#define SAID_MAX 256u

static bool said_before(const char *verb)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static char said[SAID_MAX][64];
	bool found = false;
	uint32_t i = 0;

	pthread_mutex_lock(&lock);
	while (i < SAID_MAX && said[i][0] != '\0' && !found) {
		found = strncmp(said[i++], verb, sizeof(said[0]) - 1) == 0;
	}
	if (!found && i < SAID_MAX) {
		snprintf(said[i], sizeof(said[0]), "%s", verb);
	}
	pthread_mutex_unlock(&lock);
	return found;
}

int fab_unsupported(const char *verb)
{
	if (!said_before(verb)) {
		fab_complain("%s is not emulated", verb);
	}
	errno = EOPNOTSUPP;
	return EOPNOTSUPP;
}

/* Verbs that programs link against and that the fabric does not emulate: each says so. */

#define REFUSE_INT(verb, ...)                                                                      \
	int verb(__VA_ARGS__)                                                                      \
	{                                                                                          \
		return fab_unsupported(#verb);                                                     \
	}

#define REFUSE_PTR(type, verb, ...)                                                                \
	type *verb(__VA_ARGS__)                                                                    \
	{                                                                                          \
		fab_unsupported(#verb);                                                            \
		return NULL;                                                                       \
	}

#define REFUSE_VOID(verb, ...)                                                                     \
	void verb(__VA_ARGS__)                                                                     \
	{                                                                                          \
		fab_unsupported(#verb);                                                            \
	}

#pragma GCC diagnostic ignored "-Wunused-parameter"

REFUSE_PTR(struct ibv_ah, ibv_create_ah, struct ibv_pd *pd, struct ibv_ah_attr *attr)
REFUSE_PTR(struct ibv_ah, ibv_create_ah_from_wc, struct ibv_pd *pd, struct ibv_wc *wc,
	   struct ibv_grh *grh, uint8_t port_num)
REFUSE_INT(ibv_init_ah_from_wc, struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc,
	   struct ibv_grh *grh, struct ibv_ah_attr *ah_attr)
REFUSE_INT(ibv_destroy_ah, struct ibv_ah *ah)
REFUSE_INT(ibv_attach_mcast, struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
REFUSE_INT(ibv_detach_mcast, struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
REFUSE_INT(ibv_rereg_mr, struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
	   int access)
REFUSE_PTR(struct ibv_qp_ex, ibv_qp_to_qp_ex, struct ibv_qp *qp)
REFUSE_PTR(struct ibv_context, ibv_import_device, int cmd_fd)
REFUSE_PTR(struct ibv_pd, ibv_import_pd, struct ibv_context *context, uint32_t pd_handle)
REFUSE_PTR(struct ibv_mr, ibv_import_mr, struct ibv_pd *pd, uint32_t mr_handle)
REFUSE_INT(ibv_resolve_eth_l2_from_gid, struct ibv_context *context, struct ibv_ah_attr *attr,
	   uint8_t eth_mac[6], uint16_t *vid)
REFUSE_PTR(const char, ibv_get_sysfs_path, void)
REFUSE_VOID(ibv_unimport_pd, struct ibv_pd *pd)
REFUSE_VOID(ibv_unimport_mr, struct ibv_mr *mr)
REFUSE_PTR(struct ibv_dm, ibv_import_dm, struct ibv_context *context, uint32_t dm_handle)
REFUSE_VOID(ibv_unimport_dm, struct ibv_dm *dm)

/* Nothing here minds a fork. */
int ibv_dontfork_range(void *base, size_t size)
{
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	return 0;
}

/* What is placed is placed in order, mostly; no promise. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return 0;
}

/* Asked of every QP as a matter of course: silent. */
int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return EOPNOTSUPP;
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return EOPNOTSUPP;
}
