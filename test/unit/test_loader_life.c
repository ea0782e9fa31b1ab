/* SPDX-License-Identifier: Apache-2.0 */

/* Lifetimes at the edges: threads, contexts, handles that lead nowhere, connections half made,
 * several ranks in one process, memory that cannot be registered. */

#include "test/unit/loader_traffic.h"

/* Whatever the table, nothing runs on once the communicator is gone: NCCL may unmap the code, and
 * before v11 nobody tells the plugin that it does. */
static void scenario_threads(void)
{
	unsigned int before = thread_count_first();

	for (int version = VERSION_LAST; version >= VERSION_FIRST; version--) {
		struct netapi api = table_open(version);

		EXPECT_OK(api.ops->init(&api, logger));
		EXPECT(devices_count(&api) == FABRIC_RAILS);
		listen_walk(&api);
		EXPECT_OK(api.ops->finalize(&api));
		netapi_unload(&api);
		EXPECT(thread_count_settles(before));
	}
}

/* 2.28 on: several communicators at once, each with its context; then none; then one again. */
static void scenario_contexts(void)
{
	for (int version = 11; version <= VERSION_LAST; version++) {
		struct netapi first = table_open(version);
		struct netapi second = first;

		EXPECT_OK(first.ops->init(&first, logger));
		EXPECT_OK(second.ops->init(&second, logger));
		EXPECT(first.ctx != NULL && second.ctx != NULL);
		EXPECT_OK(first.ops->finalize(&first));
		EXPECT(devices_count(&second) == FABRIC_RAILS);
		listen_walk(&second);
		EXPECT_OK(second.ops->finalize(&second));
		EXPECT_OK(first.ops->init(&first, logger));
		EXPECT(devices_count(&first) == FABRIC_RAILS);
		listen_walk(&first);
		EXPECT_OK(first.ops->finalize(&first));
		netapi_unload(&first);
	}
}

/* A handle nobody listens at: connecting goes on or fails, but does not block or crash. */
static void scenario_dead_handle(void)
{
	for (int version = VERSION_FIRST; version <= VERSION_LAST; version++) {
		struct netapi api = table_open(version);
		char handle[NCCL_NET_HANDLE_BYTES];
		void *comm = NULL;

		EXPECT_OK(api.ops->init(&api, logger));
		EXPECT_OK(api.ops->listen(&api, 0, handle, &comm));
		EXPECT_OK(api.ops->close_listen(&api, comm));
		for (int attempt = 0; attempt < 3; attempt++) {
			comm = NULL;
			if (api.ops->connect(&api, 0, handle, &comm, NULL) != NCCL_RESULT_SUCCESS) {
				break;
			}
			EXPECT(comm == NULL);
		}
		/* Neither is one that no plugin of ours wrote. */
		memset(handle, 0x5a, sizeof(handle));
		comm = NULL;
		EXPECT(api.ops->connect(&api, 0, handle, &comm, NULL) != NCCL_RESULT_SUCCESS ||
		       comm == NULL);
		EXPECT_OK(api.ops->finalize(&api));
		netapi_unload(&api);
	}
}

/* A job that is given up while it connects: NCCL closes the listener, never the half-made ends, and
 * then its communicator is gone. From v11 on the plugin hears of that and takes its threads down.
 */
static void scenario_half_made(void)
{
	unsigned int before = thread_count_first();

	for (int version = VERSION_LAST; version >= VERSION_FIRST; version--) {
		struct netapi api = table_open(version);
		char handle[NCCL_NET_HANDLE_BYTES];
		void *listener = NULL;
		void *sender = NULL;
		void *receiver = NULL;

		EXPECT_OK(api.ops->init(&api, logger));
		EXPECT_OK(api.ops->listen(&api, 0, handle, &listener));
		EXPECT_OK(api.ops->connect(&api, 0, handle, &sender, NULL));
		EXPECT_OK(api.ops->accept(&api, listener, &receiver, NULL));
		EXPECT(sender == NULL && receiver == NULL);
		EXPECT_OK(api.ops->close_listen(&api, listener));
		EXPECT_OK(api.ops->finalize(&api));
		netapi_unload(&api);
		EXPECT(version < 11 || thread_count_settles(before));
	}
}

static void *rank_main(void *arg)
{
	struct netapi *api = arg;

	for (int dev = 0; dev < FABRIC_RAILS; dev++) {
		traffic_walk(api, dev, false);
	}
	return NULL;
}

/* One process, several ranks (a thread each): their communicators use the same table at once. */
static void scenario_ranks(void)
{
	for (int version = VERSION_FIRST; version <= VERSION_LAST; version += 3) {
		struct netapi apis[3];
		pthread_t threads[3];

		for (int rank = 0; rank < 3; rank++) {
			apis[rank] = table_open(version);
			EXPECT_OK(apis[rank].ops->init(&apis[rank], logger));
			EXPECT(pthread_create(&threads[rank], NULL, rank_main, &apis[rank]) == 0);
		}
		for (int rank = 0; rank < 3; rank++) {
			EXPECT(pthread_join(threads[rank], NULL) == 0);
			EXPECT_OK(apis[rank].ops->finalize(&apis[rank]));
			netapi_unload(&apis[rank]);
		}
	}
}

/* NCCL tries a user's buffer and copies where that fails: no crash, and the connection goes on. */
static void scenario_unregistrable(void)
{
	for (int version = VERSION_FIRST; version <= VERSION_LAST; version++) {
		struct netapi api = table_open(version);
		const struct nccl_net_v8 *slots = api.table; /* this slot is the same in all */
		struct traffic t;
		void *mh = &t;

		EXPECT_OK(api.ops->init(&api, logger));
		traffic_open(&t, &api, 0, true);
		EXPECT(slots->reg_mr_dmabuf(t.sender, t.from, TRAFFIC_BYTES, NCCL_PTR_CUDA, 0, -1,
					    &mh) != NCCL_RESULT_SUCCESS);
		EXPECT(api.ops->reg_mr(&api, t.receiver, (void *)(uintptr_t)4096, 4096, &mh) !=
		       NCCL_RESULT_SUCCESS);
		EXPECT(mh == &t);
		traffic_round(&t, 65536, 0, true);
		traffic_close(&t);
		EXPECT_OK(api.ops->finalize(&api));
		netapi_unload(&api);
	}
}

static const struct scenario scenarios[] = {
	{"ranks", scenario_ranks},
	{"unregistrable", scenario_unregistrable},
	{"threads", scenario_threads},
	{"contexts", scenario_contexts},
	{"dead_handle", scenario_dead_handle},
	{"half_made", scenario_half_made},
};

static void test_threads(void **state)
{
	(void)state;
	fabric_expect("threads");
}

static void test_contexts(void **state)
{
	(void)state;
	fabric_expect("contexts");
}

static void test_dead_handle(void **state)
{
	(void)state;
	fabric_expect("dead_handle");
}

static void test_half_made(void **state)
{
	(void)state;
	fabric_expect("half_made");
}

static void test_ranks(void **state)
{
	(void)state;
	fabric_expect("ranks");
}

static void test_unregistrable(void **state)
{
	(void)state;
	fabric_expect("unregistrable");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),     cmocka_unit_test(test_contexts),
		cmocka_unit_test(test_dead_handle), cmocka_unit_test(test_half_made),
		cmocka_unit_test(test_ranks),       cmocka_unit_test(test_unregistrable),
	};

	if (argc == 2) {
		return scenario_run(scenarios, sizeof(scenarios) / sizeof(scenarios[0]), argv[1]);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
