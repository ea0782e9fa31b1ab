/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/ops.h"

#include <errno.h>
#include <stddef.h>

/*
 * Verbs that the header reaches through the context and not by a symbol, and that the fabric does
 * not emulate. Left NULL: query_port and query_device_ex, for which the header then calls the plain
 * verb. REFUSALS is complete: tests/test_ops.c walks the structs.
 */

#define REFUSALS(INT, PTR)                                                                         \
	INT(advise_mr, ibv_advise_mr, struct ibv_pd *pd, enum ibv_advise_mr_advice advice,         \
	    uint32_t flags, struct ibv_sge *list, uint32_t count)                                  \
	PTR(struct ibv_mr, alloc_null_mr, ibv_alloc_null_mr, struct ibv_pd *pd)                    \
	INT(read_counters, ibv_read_counters, struct ibv_counters *counters, uint64_t *values,     \
	    uint32_t count, uint32_t flags)                                                        \
	INT(attach_counters_point_flow, ibv_attach_counters_point_flow,                            \
	    struct ibv_counters *counters, struct ibv_counter_attach_attr *attr,                   \
	    struct ibv_flow *flow)                                                                 \
	PTR(struct ibv_counters, create_counters, ibv_create_counters,                             \
	    struct ibv_context *context, struct ibv_counters_init_attr *attr)                      \
	INT(destroy_counters, ibv_destroy_counters, struct ibv_counters *counters)                 \
	PTR(struct ibv_mr, reg_dm_mr, ibv_reg_dm_mr, struct ibv_pd *pd, struct ibv_dm *dm,         \
	    uint64_t offset, size_t length, unsigned int access)                                   \
	PTR(struct ibv_dm, alloc_dm, ibv_alloc_dm, struct ibv_context *context,                    \
	    struct ibv_alloc_dm_attr *attr)                                                        \
	INT(free_dm, ibv_free_dm, struct ibv_dm *dm)                                               \
	INT(modify_flow_action_esp, ibv_modify_flow_action_esp, struct ibv_flow_action *action,    \
	    struct ibv_flow_action_esp_attr *attr)                                                 \
	INT(destroy_flow_action, ibv_destroy_flow_action, struct ibv_flow_action *action)          \
	PTR(struct ibv_flow_action, create_flow_action_esp, ibv_create_flow_action_esp,            \
	    struct ibv_context *context, struct ibv_flow_action_esp_attr *attr)                    \
	INT(modify_qp_rate_limit, ibv_modify_qp_rate_limit, struct ibv_qp *qp,                     \
	    struct ibv_qp_rate_limit_attr *attr)                                                   \
	PTR(struct ibv_pd, alloc_parent_domain, ibv_alloc_parent_domain,                           \
	    struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)                 \
	INT(dealloc_td, ibv_dealloc_td, struct ibv_td *td)                                         \
	PTR(struct ibv_td, alloc_td, ibv_alloc_td, struct ibv_context *context,                    \
	    struct ibv_td_init_attr *attr)                                                         \
	INT(modify_cq, ibv_modify_cq, struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)          \
	INT(destroy_rwq_ind_table, ibv_destroy_rwq_ind_table, struct ibv_rwq_ind_table *table)     \
	PTR(struct ibv_rwq_ind_table, create_rwq_ind_table, ibv_create_rwq_ind_table,              \
	    struct ibv_context *context, struct ibv_rwq_ind_table_init_attr *attr)                 \
	INT(destroy_wq, ibv_destroy_wq, struct ibv_wq *wq)                                         \
	INT(modify_wq, ibv_modify_wq, struct ibv_wq *wq, struct ibv_wq_attr *attr)                 \
	PTR(struct ibv_wq, create_wq, ibv_create_wq, struct ibv_context *context,                  \
	    struct ibv_wq_init_attr *attr)                                                         \
	INT(query_rt_values, ibv_query_rt_values_ex, struct ibv_context *context,                  \
	    struct ibv_values_ex *values)                                                          \
	PTR(struct ibv_cq_ex, create_cq_ex, ibv_create_cq_ex, struct ibv_context *context,         \
	    struct ibv_cq_init_attr_ex *attr)                                                      \
	INT(ibv_destroy_flow, ibv_destroy_flow, struct ibv_flow *flow)                             \
	PTR(struct ibv_flow, ibv_create_flow, ibv_create_flow, struct ibv_qp *qp,                  \
	    struct ibv_flow_attr *attr)                                                            \
	PTR(struct ibv_qp, open_qp, ibv_open_qp, struct ibv_context *context,                      \
	    struct ibv_qp_open_attr *attr)                                                         \
	PTR(struct ibv_qp, create_qp_ex, ibv_create_qp_ex, struct ibv_context *context,            \
	    struct ibv_qp_init_attr_ex *attr)                                                      \
	INT(get_srq_num, ibv_get_srq_num, struct ibv_srq *srq, uint32_t *number)                   \
	PTR(struct ibv_srq, create_srq_ex, ibv_create_srq_ex, struct ibv_context *context,         \
	    struct ibv_srq_init_attr_ex *attr)                                                     \
	PTR(struct ibv_xrcd, open_xrcd, ibv_open_xrcd, struct ibv_context *context,                \
	    struct ibv_xrcd_init_attr *attr)                                                       \
	INT(close_xrcd, ibv_close_xrcd, struct ibv_xrcd *xrcd)                                     \
	PTR(struct ibv_mw, context.ops.alloc_mw, ibv_alloc_mw, struct ibv_pd *pd,                  \
	    enum ibv_mw_type type)                                                                 \
	INT(context.ops.bind_mw, ibv_bind_mw, struct ibv_qp *qp, struct ibv_mw *mw,                \
	    struct ibv_mw_bind *bind)                                                              \
	INT(context.ops.dealloc_mw, ibv_dealloc_mw, struct ibv_mw *mw)

#define REFUSE_INT(op, verb, ...)                                                                  \
	static int refuse_##verb(__VA_ARGS__)                                                      \
	{                                                                                          \
		return fab_unsupported(#verb);                                                     \
	}
#define REFUSE_PTR(type, op, verb, ...)                                                            \
	static type *refuse_##verb(__VA_ARGS__)                                                    \
	{                                                                                          \
		fab_unsupported(#verb);                                                            \
		return NULL;                                                                       \
	}
#define FILL_INT(op, verb, ...)       verbs->op = refuse_##verb;
#define FILL_PTR(type, op, verb, ...) verbs->op = refuse_##verb;

#pragma GCC diagnostic ignored "-Wunused-parameter"

REFUSALS(REFUSE_INT, REFUSE_PTR)

/* The only one that says how far it came. */
static int refuse_ibv_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op,
				   struct ibv_ops_wr **bad_op)
{
	*bad_op = op;
	return fab_unsupported("ibv_post_srq_ops");
}

void fab_ops_refuse(struct verbs_context *verbs)
{
	REFUSALS(FILL_INT, FILL_PTR)
	verbs->post_srq_ops = refuse_ibv_post_srq_ops;
}
