/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_IB_FAKE_OBJECT_H
#define BRAID_TEST_IB_FAKE_OBJECT_H

/* Fakes of ib_fake.h: protection domains, queues and memory regions. */

#include "ib_fake_state.h"

/* A zeroed block that counts as an object, or NULL when the verb is to fail. */
static inline void *fake_alloc(const char *verb, size_t size)
{
	if (fake_fails(verb)) {
		return NULL;
	}
	fake.live_count++;
	return calloc(1, size);
}

static inline int fake_free(void *object)
{
	free(object);
	fake.live_count--;
	return 0;
}

static inline struct ibv_pd *fake_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = fake_alloc("alloc_pd", sizeof(*pd));

	if (pd != NULL) {
		pd->context = ctx;
	}
	return pd;
}

static inline int fake_dealloc_pd(struct ibv_pd *pd)
{
	return fake_free(pd);
}

static inline struct ibv_cq *fake_create_cq(struct ibv_context *ctx, int cqe, void *cq_ctx,
					    struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq = fake_alloc("create_cq", sizeof(*cq));

	(void)cqe;
	(void)cq_ctx;
	(void)channel;
	(void)vector;
	if (cq != NULL) {
		cq->context = ctx;
	}
	return cq;
}

static inline int fake_destroy_cq(struct ibv_cq *cq)
{
	return fake_free(cq);
}

static inline struct ibv_qp *fake_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp;

	if (fake_fails("create_qp")) {
		return NULL;
	}
	if (attr->cap.max_inline_data > fake.inline_limit) {
		errno = EINVAL;
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	qp->context = pd->context;
	qp->qp_num = 0x1234;
	fake.live_count++;
	return qp;
}

static inline int fake_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp;
	if (fake_fails("modify_qp")) {
		return fake.fail_errno;
	}
	if (fake.modify_timeouts > 0) {
		fake.modify_timeouts--;
		return ETIMEDOUT;
	}
	fake.state_last = (int)attr->qp_state;
	if (attr->qp_state == IBV_QPS_INIT) {
		fake.attr_init = *attr;
	} else if (attr->qp_state == IBV_QPS_RTR) {
		fake.attr_rtr = *attr;
		fake.mask_rtr = mask;
	} else if (attr->qp_state == IBV_QPS_RTS) {
		fake.attr_rts = *attr;
		fake.mask_rts = mask;
	}
	return 0;
}

static inline int fake_destroy_qp(struct ibv_qp *qp)
{
	return fake_free(qp);
}

static inline struct ibv_mr *fake_register(struct ibv_pd *pd, const char *verb)
{
	struct ibv_mr *mr;

	if (fake_fails(verb)) {
		return NULL;
	}
	if (fake.reg_fail_device != NULL &&
	    strcmp(fake.reg_fail_device, fake_device(pd->context)->name) == 0) {
		errno = ENOMEM;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	mr->pd = pd;
	mr->lkey = 100 + ++fake.reg_count;
	mr->rkey = 1000 + fake.reg_count;
	fake.live_count++;
	return mr;
}

static inline struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	fake.reg_addr = addr;
	fake.reg_len = len;
	fake.reg_access = (unsigned int)access;
	return fake_register(pd, "reg_mr");
}

static inline struct ibv_mr *fake_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len,
					       uint64_t iova, unsigned int access)
{
	fake.reg_addr = addr;
	fake.reg_len = len;
	fake.reg_access = access;
	if (iova != (uintptr_t)addr) {
		abort();
	}
	return fake_register(pd, "reg_mr_iova2");
}

static inline struct ibv_mr *fake_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len,
						uint64_t iova, int fd, int access)
{
	fake.dmabuf = (struct ib_dmabuf){offset, iova, len, fd};
	fake.reg_access = (unsigned int)access;
	if (fd < 0) {
		errno = fake.dmabuf_errno;
		return NULL;
	}
	return fake_register(pd, "reg_dmabuf_mr");
}

static inline int fake_dereg_mr(struct ibv_mr *mr)
{
	return fake_free(mr);
}

#endif
