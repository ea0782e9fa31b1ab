/* SPDX-License-Identifier: Apache-2.0 */
#include "ib/qp.h"

#include <assert.h>

/* X(status, cause), one row per status. */
#define WC_CAUSES(X)                                                                               \
	X(IBV_WC_SUCCESS, CAUSE_NONE)                                                              \
	X(IBV_WC_LOC_LEN_ERR, CAUSE_LOC_LEN)                                                       \
	X(IBV_WC_LOC_QP_OP_ERR, CAUSE_LOC_QP_OP)                                                   \
	X(IBV_WC_LOC_EEC_OP_ERR, CAUSE_LOC_QP_OP)                                                  \
	X(IBV_WC_LOC_PROT_ERR, CAUSE_LOC_PROT)                                                     \
	X(IBV_WC_WR_FLUSH_ERR, CAUSE_FLUSH)                                                        \
	X(IBV_WC_MW_BIND_ERR, CAUSE_MW_BIND)                                                       \
	X(IBV_WC_BAD_RESP_ERR, CAUSE_BAD_RESP)                                                     \
	X(IBV_WC_LOC_ACCESS_ERR, CAUSE_LOC_ACCESS)                                                 \
	X(IBV_WC_REM_INV_REQ_ERR, CAUSE_REM_INV_REQ)                                               \
	X(IBV_WC_REM_ACCESS_ERR, CAUSE_REM_ACCESS)                                                 \
	X(IBV_WC_REM_OP_ERR, CAUSE_REM_OP)                                                         \
	X(IBV_WC_RETRY_EXC_ERR, CAUSE_RETRY_EXC)                                                   \
	X(IBV_WC_RNR_RETRY_EXC_ERR, CAUSE_RNR_RETRY_EXC)                                           \
	X(IBV_WC_LOC_RDD_VIOL_ERR, CAUSE_LOC_PROT)                                                 \
	X(IBV_WC_REM_INV_RD_REQ_ERR, CAUSE_REM_INV_REQ)                                            \
	X(IBV_WC_REM_ABORT_ERR, CAUSE_ABORTED)                                                     \
	X(IBV_WC_INV_EECN_ERR, CAUSE_LOC_QP_OP)                                                    \
	X(IBV_WC_INV_EEC_STATE_ERR, CAUSE_LOC_QP_OP)                                               \
	X(IBV_WC_FATAL_ERR, CAUSE_FATAL)                                                           \
	X(IBV_WC_RESP_TIMEOUT_ERR, CAUSE_RESP_TIMEOUT)                                             \
	X(IBV_WC_GENERAL_ERR, CAUSE_GENERAL)                                                       \
	X(IBV_WC_TM_ERR, CAUSE_PROTOCOL)                                                           \
	X(IBV_WC_TM_RNDV_INCOMPLETE, CAUSE_PROTOCOL)

#define WC_ONE(status, cause) +1
static_assert(0 WC_CAUSES(WC_ONE) == IBV_WC_TM_RNDV_INCOMPLETE + 1,
	      "every completion status has an entry");
#undef WC_ONE

enum cause ib_wc_cause(int status)
{
#define WC_CASE(status_, cause_)                                                                   \
	case status_:                                                                              \
		return cause_;
	/* the compiler wants every status here and refuses one that is listed twice */
	switch ((enum ibv_wc_status)status) {
		WC_CAUSES(WC_CASE)
	}
#undef WC_CASE
	/* newer than this list: drivers, too, report as general what they cannot name */
	return CAUSE_GENERAL;
}
