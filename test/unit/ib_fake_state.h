/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_IB_FAKE_STATE_H
#define BRAID_TEST_IB_FAKE_STATE_H

/* What the fakes of ib_fake.h are told and what they saw. */

#include "ib/rail.h"
#include "ib/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
	FAKE_DEVICES_MAX = 3,
	FAKE_WCS_MAX = 64,
	FAKE_LOG_BYTES = 16384
};

struct fake_device {
	const char *name;
	uint8_t port_count;
	int state; /* enum ibv_port_state of every port */
	uint8_t link_layer;
	uint64_t guid, node_guid;
	int transport;
	union ibv_gid gids[4];
	int gid_types[4];
	int gid_count;
};

static struct fake {
	unsigned int call_count, fail_at; /* the call that fails, from 1; 0 none */
	int fail_errno;
	const char *failed;                      /* name of the verb that was made to fail */
	_Atomic int live_count;                  /* objects of any kind */
	unsigned int device_first, device_count; /* in the list */
	struct fake_device devices[FAKE_DEVICES_MAX];

	uint32_t inline_limit;
	int modify_timeouts; /* so many modify_qp calls time out first */
	struct ibv_qp_attr attr_rtr, attr_rts, attr_init;
	int mask_rtr, mask_rts;
	int state_last;

	unsigned int reg_count;
	unsigned int reg_access;
	void *reg_addr;
	size_t reg_len;
	struct ib_dmabuf dmabuf;
	int dmabuf_errno;            /* what a descriptor of -1 gets */
	const char *reg_fail_device; /* registration fails on this one */

	struct ibv_send_wr sent[8]; /* of the last post */
	uint32_t sent_len[8];
	unsigned int sent_count, recv_count;
	unsigned int post_limit; /* work requests taken before the queue is full; 0: no limit */
	unsigned int post_taken;

	struct ibv_wc wcs[FAKE_WCS_MAX];
	unsigned int wc_count, wc_next;
	int poll_error;

	struct ibv_async_event event;
	bool has_event;
	bool no_link;   /* a port then has no MTU and no LID */
	int events_out; /* taken and not acknowledged */

	char log[FAKE_LOG_BYTES];
} fake;

struct fake_context {
	struct ibv_context ctx; /* first: the library's pointer is this one */
	const struct fake_device *device;
};

static struct ibv_device fake_handles[FAKE_DEVICES_MAX];
static struct ibv_device *fake_list[FAKE_DEVICES_MAX + 1];

static inline bool fake_fails(const char *name)
{
	if (++fake.call_count == fake.fail_at) {
		fake.failed = name;
		errno = fake.fail_errno;
		return true;
	}
	return false;
}

static inline const struct fake_device *fake_device(struct ibv_context *ctx)
{
	return ((struct fake_context *)(void *)ctx)->device;
}

#endif
