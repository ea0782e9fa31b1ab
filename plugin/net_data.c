/* SPDX-License-Identifier: Apache-2.0 */
#include "include/log.h"
#include "plugin/core.h"
#include "plugin/net_adapt.h"
#include "plugin/result.h"

static enum nccl_result refuse(const char *call, const char *what, long long value)
{
	LOG_WARN_LIMITED("%s: %s %lld refused", call, what, value);
	return NCCL_RESULT_INVALID_ARGUMENT;
}

static bool size_is_sane(size_t size)
{
	return size <= NCCL_NET_SIZE_MAX_BYTES;
}

enum nccl_result net_reg_mr_v8(void *comm, void *data, size_t size, int type, void **mh)
{
	if (!size_is_sane(size)) {
		return refuse("regMr", "size", (long long)size);
	}
	return result_from_errno(plugin_reg_mr(comm, data, size, type, mh));
}

enum nccl_result net_reg_mr_v6(void *comm, void *data, int size, int type, void **mh)
{
	/* A negative int becomes a size no buffer has, and is refused with the sign it came with.
	 */
	return net_reg_mr_v8(comm, data, (size_t)size, type, mh);
}

enum nccl_result net_reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset,
				   int fd, void **mh)
{
	if (!size_is_sane(size)) {
		return refuse("regMrDmaBuf", "size", (long long)size);
	}
	return result_from_errno(plugin_reg_mr_dmabuf(comm, data, size, type, offset, fd, mh));
}

/* Never an error: NCCL would give up tearing down, and leak every later connection. */
enum nccl_result net_dereg_mr(void *comm, void *mh)
{
	(void)plugin_dereg_mr(comm, mh);
	return NCCL_RESULT_SUCCESS;
}

/* *request is written on every path: NCCL leaves an old pointer there, or 0x1 as a hint (v9 on). */
enum nccl_result net_isend_v9(void *send_comm, void *data, size_t size, int tag, void *mh,
			      void **request)
{
	*request = NULL;
	if (!size_is_sane(size)) {
		return refuse("isend", "size", (long long)size);
	}
	return result_from_errno(plugin_isend(send_comm, data, size, tag, mh, request));
}

enum nccl_result net_isend_v6(void *send_comm, void *data, int size, int tag, void *mh,
			      void **request)
{
	return net_isend_v9(send_comm, data, (size_t)size, tag, mh, request);
}

enum nccl_result net_isend_v10(void *send_comm, void *data, size_t size, int tag, void *mh,
			       void *phandle, void **request)
{
	(void)phandle;
	return net_isend_v9(send_comm, data, size, tag, mh, request);
}

enum nccl_result net_irecv_v9(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
			      void **mhs, void **request)
{
	*request = NULL;
	if (n != NET_RECVS_MAX_COUNT) {
		return refuse("irecv", "count", n);
	}
	if (!size_is_sane(sizes[0])) {
		return refuse("irecv", "size", (long long)sizes[0]);
	}
	return result_from_errno(plugin_irecv(recv_comm, n, data, sizes, tags, mhs, request));
}

enum nccl_result net_irecv_v6(void *recv_comm, int n, void **data, int *sizes, int *tags,
			      void **mhs, void **request)
{
	size_t wide[NET_RECVS_MAX_COUNT] = {n == NET_RECVS_MAX_COUNT ? (size_t)sizes[0] : 0};

	return net_irecv_v9(recv_comm, n, data, wide, tags, mhs, request);
}

enum nccl_result net_irecv_v10(void *recv_comm, int n, void **data, size_t *sizes, int *tags,
			       void **mhs, void **phandles, void **request)
{
	(void)phandles;
	return net_irecv_v9(recv_comm, n, data, sizes, tags, mhs, request);
}

enum nccl_result net_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhs,
			    void **request)
{
	*request = NULL;
	return result_from_errno(plugin_iflush(recv_comm, n, data, sizes, mhs, request));
}

enum nccl_result net_test(void *request, int *done, int *sizes)
{
	*done = 0;
	return result_from_errno(plugin_test(request, done, sizes));
}
