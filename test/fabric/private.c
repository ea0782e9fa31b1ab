/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/lib.h"

/*
 * What rdma-core's own libraries (the device drivers, librdmacm) take from libibverbs besides the
 * API. perftest is linked with them, and they are bound at load time, so the names must exist;
 * nothing calls them for an emulated device. Kept apart from unsupported.c, as no header has them.
 */

#define REFUSE(name)                                                                               \
	long name(void);                                                                           \
	long name(void)                                                                            \
	{                                                                                          \
		return fab_unsupported(#name);                                                     \
	}

#define REFUSE_PTR(name)                                                                           \
	void *name(void);                                                                          \
	void *name(void)                                                                           \
	{                                                                                          \
		fab_unsupported(#name);                                                            \
		return NULL;                                                                       \
	}

/* A driver announces itself when it is loaded: welcome, there is no hardware. */
void verbs_register_driver_34(const void *ops);
void verbs_register_driver_34(const void *ops)
{
	(void)ops;
}

void ibv_register_driver(const char *name, void *init);
void ibv_register_driver(const char *name, void *init)
{
	(void)name;
	(void)init;
}

void __verbs_log(void *ctx, uint32_t level, const char *format, ...);
void __verbs_log(void *ctx, uint32_t level, const char *format, ...)
{
	(void)ctx;
	(void)level;
	(void)format;
}

extern bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy;

REFUSE_PTR(_verbs_init_and_alloc_context)
REFUSE(execute_ioctl)
REFUSE(ibv_cmd_advise_mr)
REFUSE(ibv_cmd_alloc_dm)
REFUSE(ibv_cmd_alloc_mw)
REFUSE(ibv_cmd_alloc_pd)
REFUSE(ibv_cmd_attach_mcast)
REFUSE(ibv_cmd_close_xrcd)
REFUSE(ibv_cmd_create_ah)
REFUSE(ibv_cmd_create_counters)
REFUSE(ibv_cmd_create_cq_ex)
REFUSE(ibv_cmd_create_flow)
REFUSE(ibv_cmd_create_flow_action_esp)
REFUSE(ibv_cmd_create_qp_ex)
REFUSE(ibv_cmd_create_qp_ex2)
REFUSE(ibv_cmd_create_rwq_ind_table)
REFUSE(ibv_cmd_create_srq)
REFUSE(ibv_cmd_create_srq_ex)
REFUSE(ibv_cmd_create_wq)
REFUSE(ibv_cmd_dealloc_mw)
REFUSE(ibv_cmd_dealloc_pd)
REFUSE(ibv_cmd_dereg_mr)
REFUSE(ibv_cmd_destroy_ah)
REFUSE(ibv_cmd_destroy_counters)
REFUSE(ibv_cmd_destroy_cq)
REFUSE(ibv_cmd_destroy_flow)
REFUSE(ibv_cmd_destroy_flow_action)
REFUSE(ibv_cmd_destroy_qp)
REFUSE(ibv_cmd_destroy_rwq_ind_table)
REFUSE(ibv_cmd_destroy_srq)
REFUSE(ibv_cmd_destroy_wq)
REFUSE(ibv_cmd_detach_mcast)
REFUSE(ibv_cmd_free_dm)
REFUSE(ibv_cmd_get_context)
REFUSE(ibv_cmd_modify_cq)
REFUSE(ibv_cmd_modify_flow_action_esp)
REFUSE(ibv_cmd_modify_qp)
REFUSE(ibv_cmd_modify_qp_ex)
REFUSE(ibv_cmd_modify_srq)
REFUSE(ibv_cmd_modify_wq)
REFUSE(ibv_cmd_open_qp)
REFUSE(ibv_cmd_open_xrcd)
REFUSE(ibv_cmd_query_context)
REFUSE(ibv_cmd_query_device_any)
REFUSE(ibv_cmd_query_mr)
REFUSE(ibv_cmd_query_port)
REFUSE(ibv_cmd_query_qp)
REFUSE(ibv_cmd_query_srq)
REFUSE(ibv_cmd_read_counters)
REFUSE(ibv_cmd_reg_dm_mr)
REFUSE(ibv_cmd_reg_dmabuf_mr)
REFUSE(ibv_cmd_reg_mr)
REFUSE(ibv_cmd_rereg_mr)
REFUSE(ibv_cmd_resize_cq)
REFUSE(verbs_init_cq)
REFUSE_PTR(verbs_open_device)
REFUSE(verbs_set_ops)
REFUSE(verbs_uninit_context)
REFUSE(ibv_copy_path_rec_from_kern)
REFUSE(ibv_copy_qp_attr_from_kern)
REFUSE(ibv_copy_ah_attr_from_kern)
REFUSE(__ioctl_final_num_attrs)
REFUSE(ibv_cmd_create_cq)
REFUSE(ibv_cmd_create_qp)
REFUSE(ibv_cmd_poll_cq)
REFUSE(ibv_cmd_post_recv)
REFUSE(ibv_cmd_post_send)
REFUSE(ibv_cmd_post_srq_recv)
REFUSE(ibv_cmd_req_notify_cq)
REFUSE(ibv_read_ibdev_sysfs_file)
REFUSE(ibv_copy_path_rec_to_kern)
