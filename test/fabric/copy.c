/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/copy.h"

#include "test/fabric/copy_bytes.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define IOV_COUNT (FAB_MAX_SGE + 1)

static uint32_t list_to_iov(const struct fab_list *list, uint64_t len, struct iovec *iov)
{
	uint64_t skip = list->pos_bytes;
	uint32_t used = 0;

	for (uint64_t i = 0; i < list->count && len > 0; i++) {
		uint64_t have = list->sge[i].len_bytes;
		uint64_t take;

		if (skip >= have) {
			skip -= have;
			continue;
		}
		take = have - skip < len ? have - skip : len;
		iov[used].iov_base = (void *)(uintptr_t)(list->sge[i].addr + skip);
		iov[used].iov_len = take;
		used++;
		skip = 0;
		len -= take;
	}
	return used;
}

/* Two lists of the same length in bytes. */
static void copy_here(const struct iovec *to, uint32_t to_count, const struct iovec *from,
		      uint32_t from_count)
{
	size_t to_pos = 0;
	size_t from_pos = 0;

	for (uint32_t t = 0, f = 0; t < to_count && f < from_count;) {
		size_t n = to[t].iov_len - to_pos;

		n = from[f].iov_len - from_pos < n ? from[f].iov_len - from_pos : n;
		fab_copy_bytes((char *)to[t].iov_base + to_pos, (char *)from[f].iov_base + from_pos,
			       n);
		to_pos += n;
		from_pos += n;
		if (to_pos == to[t].iov_len) {
			t++;
			to_pos = 0;
		}
		if (from_pos == from[f].iov_len) {
			f++;
			from_pos = 0;
		}
	}
}

/* Which side of a failed transfer is not mapped? Tries to read the first byte of each local part.
 */
static enum fab_copied copy_blame(const struct iovec *local, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		char byte;
		struct iovec to = {.iov_base = &byte, .iov_len = 1};
		struct iovec ends[2] = {
			{.iov_base = local[i].iov_base, .iov_len = 1},
			{.iov_base = (char *)local[i].iov_base + local[i].iov_len - 1,
			 .iov_len = 1},
		};

		for (int end = 0; end < 2; end++) {
			if (syscall(SYS_process_vm_readv, getpid(), &to, 1, &ends[end], 1, 0) !=
			    1) {
				return FAB_COPIED_BAD_LOCAL;
			}
		}
	}
	return FAB_COPIED_BAD_PEER;
}

/* By syscall(), since the wrappers are watched by sanitizers, which real adapters are not. */
static enum fab_copied copy_there(long call, uint32_t pid, const struct iovec *local,
				  uint32_t local_count, const struct iovec *remote,
				  uint32_t remote_count)
{
	uint64_t want = 0;
	long got;

	for (uint32_t i = 0; i < local_count; i++) {
		want += local[i].iov_len;
	}
	got = syscall(call, pid, local, local_count, remote, remote_count, 0);
	if (got == (long)want) {
		return FAB_COPIED_OK;
	}
	if (got < 0 && (errno == ESRCH || errno == EPERM)) {
		static _Atomic int said;

		if (errno == EPERM && atomic_exchange(&said, 1) == 0) {
			fab_complain("process %u may not be written to (EPERM): same user?", pid);
		}
		return FAB_COPIED_GONE;
	}
	return copy_blame(local, local_count);
}

enum fab_copied fab_copy_out(struct fab_inst *self, struct fab_inst *peer,
			     const struct fab_list *local, const struct fab_list *remote,
			     uint64_t len, _Atomic uint64_t *mark_word, uint64_t mark)
{
	struct iovec from[IOV_COUNT];
	struct iovec to[IOV_COUNT];
	uint32_t from_count = list_to_iov(local, len, from);
	uint32_t to_count = list_to_iov(remote, len, to);
	uint64_t offset = (uint64_t)((char *)mark_word - (char *)peer);

	if (self->pid == peer->pid) {
		copy_here(to, to_count, from, from_count);
		atomic_store_explicit(mark_word, mark, memory_order_release);
		return FAB_COPIED_OK;
	}
	from[from_count].iov_base = &mark;
	from[from_count].iov_len = sizeof(mark);
	to[to_count].iov_base = (void *)(uintptr_t)(peer->base + offset);
	to[to_count].iov_len = sizeof(mark);
	return copy_there(SYS_process_vm_writev, peer->pid, from, from_count + 1, to, to_count + 1);
}

enum fab_copied fab_copy_in(struct fab_inst *self, struct fab_inst *peer,
			    const struct fab_list *local, const struct fab_list *remote,
			    uint64_t len)
{
	struct iovec to[IOV_COUNT];
	struct iovec from[IOV_COUNT];
	uint32_t to_count = list_to_iov(local, len, to);
	uint32_t from_count = list_to_iov(remote, len, from);

	if (self->pid == peer->pid) {
		copy_here(to, to_count, from, from_count);
		return FAB_COPIED_OK;
	}
	return copy_there(SYS_process_vm_readv, peer->pid, to, to_count, from, from_count);
}

bool fab_copy_gather(const struct fab_list *local, uint64_t len, void *to)
{
	struct iovec from[IOV_COUNT];
	struct iovec out = {.iov_base = to, .iov_len = len};
	uint32_t from_count = list_to_iov(local, len, from);

	return len == 0 ||
	       syscall(SYS_process_vm_readv, getpid(), &out, 1, from, from_count, 0) == (long)len;
}
