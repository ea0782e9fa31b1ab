/* SPDX-License-Identifier: Apache-2.0 */

/* Every pointer through which verbs.h reaches a verb, of the header this was compiled with, and in
 * the context of an opened device: emulated, left to the plain symbol, or refused by name, once. */

#include "test/fabric/fabric_ctl.h"

#include <infiniband/verbs.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum kind {
	REFUSED,
	EMULATED,
	PLAIN,  /* empty: the header calls the symbol of that name */
	NOBODY, /* empty: no verb of the header goes there */
};

struct slot {
	size_t at;
	enum kind kind;
	const char *verb;
};

#define SLOT(member, kind, verb)                                                                   \
	{                                                                                          \
		offsetof(struct verbs_context, member), kind, verb                                 \
	}
#define OPS(member, kind, verb) SLOT(context.ops.member, kind, verb)
#define COMPAT(member)          OPS(_compat_##member, NOBODY, "_compat_" #member)

static const struct slot slots[] = {
	SLOT(query_port, PLAIN, "ibv_query_port"),
	SLOT(advise_mr, REFUSED, "ibv_advise_mr"),
	SLOT(alloc_null_mr, REFUSED, "ibv_alloc_null_mr"),
	SLOT(read_counters, REFUSED, "ibv_read_counters"),
	SLOT(attach_counters_point_flow, REFUSED, "ibv_attach_counters_point_flow"),
	SLOT(create_counters, REFUSED, "ibv_create_counters"),
	SLOT(destroy_counters, REFUSED, "ibv_destroy_counters"),
	SLOT(reg_dm_mr, REFUSED, "ibv_reg_dm_mr"),
	SLOT(alloc_dm, REFUSED, "ibv_alloc_dm"),
	SLOT(free_dm, REFUSED, "ibv_free_dm"),
	SLOT(modify_flow_action_esp, REFUSED, "ibv_modify_flow_action_esp"),
	SLOT(destroy_flow_action, REFUSED, "ibv_destroy_flow_action"),
	SLOT(create_flow_action_esp, REFUSED, "ibv_create_flow_action_esp"),
	SLOT(modify_qp_rate_limit, REFUSED, "ibv_modify_qp_rate_limit"),
	SLOT(alloc_parent_domain, REFUSED, "ibv_alloc_parent_domain"),
	SLOT(dealloc_td, REFUSED, "ibv_dealloc_td"),
	SLOT(alloc_td, REFUSED, "ibv_alloc_td"),
	SLOT(modify_cq, REFUSED, "ibv_modify_cq"),
	SLOT(post_srq_ops, REFUSED, "ibv_post_srq_ops"),
	SLOT(destroy_rwq_ind_table, REFUSED, "ibv_destroy_rwq_ind_table"),
	SLOT(create_rwq_ind_table, REFUSED, "ibv_create_rwq_ind_table"),
	SLOT(destroy_wq, REFUSED, "ibv_destroy_wq"),
	SLOT(modify_wq, REFUSED, "ibv_modify_wq"),
	SLOT(create_wq, REFUSED, "ibv_create_wq"),
	SLOT(query_rt_values, REFUSED, "ibv_query_rt_values_ex"),
	SLOT(create_cq_ex, REFUSED, "ibv_create_cq_ex"),
	SLOT(priv, NOBODY, "the library's own"),
	SLOT(query_device_ex, PLAIN, "ibv_query_device"),
	SLOT(ibv_destroy_flow, REFUSED, "ibv_destroy_flow"),
	SLOT(ABI_placeholder2, NOBODY, "placeholder"),
	SLOT(ibv_create_flow, REFUSED, "ibv_create_flow"),
	SLOT(ABI_placeholder1, NOBODY, "placeholder"),
	SLOT(open_qp, REFUSED, "ibv_open_qp"),
	SLOT(create_qp_ex, REFUSED, "ibv_create_qp_ex"),
	SLOT(get_srq_num, REFUSED, "ibv_get_srq_num"),
	SLOT(create_srq_ex, REFUSED, "ibv_create_srq_ex"),
	SLOT(open_xrcd, REFUSED, "ibv_open_xrcd"),
	SLOT(close_xrcd, REFUSED, "ibv_close_xrcd"),
	COMPAT(query_device),
	COMPAT(query_port),
	COMPAT(alloc_pd),
	COMPAT(dealloc_pd),
	COMPAT(reg_mr),
	COMPAT(rereg_mr),
	COMPAT(dereg_mr),
	OPS(alloc_mw, REFUSED, "ibv_alloc_mw"),
	OPS(bind_mw, REFUSED, "ibv_bind_mw"),
	OPS(dealloc_mw, REFUSED, "ibv_dealloc_mw"),
	COMPAT(create_cq),
	OPS(poll_cq, EMULATED, "ibv_poll_cq"),
	OPS(req_notify_cq, EMULATED, "ibv_req_notify_cq"),
	COMPAT(cq_event),
	COMPAT(resize_cq),
	COMPAT(destroy_cq),
	COMPAT(create_srq),
	COMPAT(modify_srq),
	COMPAT(query_srq),
	COMPAT(destroy_srq),
	OPS(post_srq_recv, EMULATED, "ibv_post_srq_recv"),
	COMPAT(create_qp),
	COMPAT(query_qp),
	COMPAT(modify_qp),
	COMPAT(destroy_qp),
	OPS(post_send, EMULATED, "ibv_post_send"),
	OPS(post_recv, EMULATED, "ibv_post_recv"),
	COMPAT(create_ah),
	COMPAT(destroy_ah),
	COMPAT(attach_mcast),
	COMPAT(detach_mcast),
	COMPAT(async_event),
};

#define SLOT_COUNT (sizeof(slots) / sizeof(slots[0]))

static struct ibv_context *context;
static struct verbs_context *verbs;
static char dir[128];
static int hold_fd;

/* What a call writes to stderr goes into a file that the test reads. */
static int stderr_take(void)
{
	int file = memfd_create("stderr", MFD_CLOEXEC);
	int saved = dup(STDERR_FILENO);

	assert_true(file >= 0 && saved >= 0);
	fflush(stderr);
	assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
	close(file);
	return saved;
}

static void stderr_give_back(int saved, char *said, size_t size)
{
	ssize_t got;

	fflush(stderr);
	got = pread(STDERR_FILENO, said, size - 1, 0);
	assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
	close(saved);
	assert_true(got >= 0);
	said[got] = '\0';
}

/* With pointers to zeros for whatever it takes: a refusal looks at nothing. */
static long call(const struct slot *slot)
{
	static uint64_t zeros[64];
	union {
		void *address;
		long (*fn)(void *a, void *b, void *c, void *d, void *e);
	} it;
	long answer;

	memcpy(&it.address, (const char *)verbs + slot->at, sizeof(it.address));
	errno = 0;
	answer = it.fn(zeros, zeros, zeros, zeros, zeros);
	/* The number, or a null pointer with errno. */
	if ((int32_t)answer == EOPNOTSUPP) {
		return EOPNOTSUPP;
	}
	return answer == 0 ? errno : -1;
}

static void refused(const struct slot *slot)
{
	char line[128];
	char said[1024];
	int saved;
	long first;
	long second;

	snprintf(line, sizeof(line), "fabric: %s is not emulated\n", slot->verb);
	saved = stderr_take();
	first = call(slot);
	second = call(slot);
	stderr_give_back(saved, said, sizeof(said));
	assert_int_equal(first, EOPNOTSUPP);
	assert_int_equal(second, EOPNOTSUPP);
	assert_string_equal(said, line);
}

static void test_each_slot(void **state)
{
	(void)state;
	for (size_t i = 0; i < SLOT_COUNT; i++) {
		void *address;

		memcpy(&address, (const char *)verbs + slots[i].at, sizeof(address));
		if ((slots[i].kind == REFUSED || slots[i].kind == EMULATED) != (address != NULL)) {
			fail_msg("%s: %p", slots[i].verb, address);
		}
		if (slots[i].kind == REFUSED) {
			refused(&slots[i]);
		}
	}
}

/* Each pointer in [from, to) has exactly one line in the table. */
static void walk(size_t from, size_t to)
{
	for (size_t at = from; at < to; at += sizeof(void *)) {
		uint32_t found = 0;

		for (size_t i = 0; i < SLOT_COUNT; i++) {
			found += slots[i].at == at;
		}
		if (found != 1) {
			fail_msg("a pointer at byte %zu of struct verbs_context (its ops are at "
				 "%zu): %u lines in this table",
				 at, offsetof(struct verbs_context, context.ops), found);
		}
	}
}

static void test_all_slots(void **state)
{
	size_t ops = offsetof(struct verbs_context, context.ops);

	(void)state;
	walk(0, offsetof(struct verbs_context, _ABI_placeholder3));
	walk(ops, ops + sizeof(struct ibv_context_ops));
	assert_int_equal(SLOT_COUNT, offsetof(struct verbs_context, _ABI_placeholder3) / 8 +
					     sizeof(struct ibv_context_ops) / 8);
}

/* What is left to the plain symbols comes through. */
static void test_plain(void **state)
{
	struct ibv_port_attr port = {.state = IBV_PORT_NOP};
	struct ibv_device_attr_ex device = {.phys_port_cnt_ex = 0};
	char said[1024];
	int saved = stderr_take();
	int port_rc = ibv_query_port(context, 1, &port);
	int device_rc = ibv_query_device_ex(context, NULL, &device);

	(void)state;
	stderr_give_back(saved, said, sizeof(said));
	assert_int_equal(port_rc, 0);
	assert_int_equal(port.state, IBV_PORT_ACTIVE);
	assert_int_equal(device_rc, 0);
	assert_int_equal(device.orig_attr.phys_port_cnt, 1);
	assert_string_equal(said, "");
}

/* How far a list was worked off: not at all. */
static void test_bad_op(void **state)
{
	struct ibv_srq srq = {.context = context};
	struct ibv_ops_wr op = {.wr_id = 1};
	struct ibv_ops_wr *bad = NULL;

	(void)state;
	assert_int_equal(ibv_post_srq_ops(&srq, &op, &bad), EOPNOTSUPP);
	assert_ptr_equal(bad, &op);
}

static int setup(void **state)
{
	struct ibv_device **list;

	(void)state;
	if (fabric_ctl_make_dir(dir, sizeof(dir), &hold_fd) != 0 ||
	    setenv("FABRIC_DIR", dir, 1) != 0) {
		return -1;
	}
	list = ibv_get_device_list(NULL);
	context = list != NULL ? ibv_open_device(list[0]) : NULL;
	ibv_free_device_list(list);
	verbs = context != NULL ? verbs_get_ctx(context) : NULL;
	/* A program with this header reaches all of it. */
	return verbs != NULL && verbs->sz == sizeof(*verbs) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	close(hold_fd);
	return ibv_close_device(context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_slots),
		cmocka_unit_test(test_each_slot),
		cmocka_unit_test(test_plain),
		cmocka_unit_test(test_bad_op),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
