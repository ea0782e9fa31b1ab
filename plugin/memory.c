/* SPDX-License-Identifier: Apache-2.0 */
#include "include/log.h"
#include "include/nccl_net.h"
#include "plugin/comm.h"
#include "plugin/core.h"
#include "plugin/flush.h"
#include "plugin/runtime.h"

#include <errno.h>
#include <stdlib.h>

/* Whether GPU memory can be registered is the HCA's to say: NCCL asks only where ptrSupport has it.
 */
static int check(size_t size_bytes, int type)
{
	bool known = type == NCCL_PTR_HOST || type == NCCL_PTR_CUDA;

	return size_bytes == 0 || !known ? -EINVAL : 0;
}

int plugin_reg_mr(void *comm, void *data, size_t size_bytes, int type, void **mh)
{
	struct runtime *rt = runtime_instance();
	struct memory *memory;
	int rc = check(size_bytes, type);

	if (rc) {
		return rc;
	}
	memory = calloc(1, sizeof(*memory));
	if (!memory) {
		return -ENOMEM;
	}
	memory->type = type;
	/* On every rail of the process, whatever this comm uses now. */
	rc = ib_mr_get(rt->mrs, data, size_bytes, false, &memory->mr);
	if (rc) {
		free(memory);
		return rc;
	}
	if (type == NCCL_PTR_CUDA) {
		flush_prepare(comm);
	}
	*mh = memory;
	return 0;
}

int plugin_reg_mr_dmabuf(void *comm, void *data, size_t size_bytes, int type, uint64_t offset,
			 int fd, void **mh)
{
	struct runtime *rt = runtime_instance();
	struct memory *memory;
	int rc = check(size_bytes, type);

	if (rc) {
		return rc;
	}
	memory = calloc(1, sizeof(*memory));
	if (!memory) {
		return -ENOMEM;
	}
	memory->type = type;
	rc = ib_mr_get_dmabuf(rt->mrs, data, size_bytes, offset, fd, &memory->mr);
	if (rc) {
		free(memory);
		return rc;
	}
	if (type == NCCL_PTR_CUDA) {
		flush_prepare(comm);
	}
	*mh = memory;
	return 0;
}

static bool is_in_use(struct comm *comm, const struct memory *memory)
{
	bool in_use = false;

	lock_take(&comm->lock);
	for (unsigned int i = 0; i < REQUESTS_MAX; i++) {
		in_use = in_use || (comm->requests[i].busy && comm->requests[i].memory == memory);
	}
	comm_unlock(comm);
	return in_use;
}

int plugin_dereg_mr(void *opaque, void *mh)
{
	struct comm *comm = opaque;
	struct memory *memory = mh;

	if (!memory) {
		return 0;
	}
	/* An aborted communicator takes its memory away with requests outstanding. */
	if (is_in_use(comm, memory)) {
		comm_quiesce(comm);
	}
	ib_mr_put(runtime_instance()->mrs, memory->mr);
	free(memory);
	return 0;
}
