/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_LOADER_RIG_H
#define BRAID_TEST_LOADER_RIG_H

/*
 * The built plugin, loaded as NCCL loads it. Every scenario runs in a process of its own (the test
 * program with a scenario's name as argument), since loading and environment are matters of a whole
 * process. A test program has `scenarios`, ends its main() with loader_main(), and starts one by
 * scenario_expect() or fabric_expect().
 */

#include "include/log.h"
#include "test/driver/netapi.h"
#include "test/unit/ib_tree.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
	CHILD_LIMIT_S = 60,
	VERSION_FIRST = 6,
	VERSION_LAST = 12,
	FABRIC_RAILS = 2,
	EXIT_SCENARIO = 3,
	ENV_EXTRA_COUNT = 5,
	ENV_COUNT = 512
};

static char warned[4096];

/* What NCCL passes to init: keeps the warnings. */
static inline void logger(int level, unsigned long flags, const char *file, int line,
			  const char *fmt, ...)
{
	size_t len = strlen(warned);
	va_list args;

	(void)flags;
	(void)file;
	(void)line;
	if (level == LOG_LEVEL_WARN) {
		va_start(args, fmt);
		vsnprintf(warned + len, sizeof(warned) - len, fmt, args);
		va_end(args);
	}
}

/** The version and the place a scenario is at, for what it says when something is not so. */
static int version_now;

/** In a scenario's process: say what is wrong and end it. */
#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d, version %d: not so: %s\nwarnings: %s\n", __FILE__, \
				__LINE__, version_now, #condition, warned);                        \
			_exit(EXIT_SCENARIO);                                                      \
		}                                                                                  \
	} while (0)

#define EXPECT_OK(call) EXPECT((call) == NCCL_RESULT_SUCCESS)

struct scenario {
	const char *name;
	void (*body)(void);
};

/** The built plugin's table of that version, not initialised. */
static inline struct netapi table_open(int version)
{
	struct netapi api;

	version_now = version;
	EXPECT(netapi_load(&api, PLUGIN_PATH, version) == 0);
	EXPECT(strcmp(api.name, "Braid") == 0);
	return api;
}

/* Calls whose slot and type are the same in every version. */

static inline int devices_count(struct netapi *api)
{
	int count = -1;

	EXPECT_OK(api->ops->devices(api, &count));
	return count;
}

/** Listens on every device, and closes without an accept, as for a shared connection. */
static inline void listen_walk(struct netapi *api)
{
	const char empty[NCCL_NET_HANDLE_BYTES] = {0};

	for (int dev = 0; dev < FABRIC_RAILS; dev++) {
		char handle[NCCL_NET_HANDLE_BYTES] = {0};
		void *comm = NULL;

		EXPECT_OK(api->ops->listen(api, dev, handle, &comm));
		EXPECT(comm != NULL);
		EXPECT(memcmp(handle, empty, sizeof(handle)) != 0);
		EXPECT_OK(api->ops->close_listen(api, comm));
	}
}

static inline int scenario_run(const struct scenario *list, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(list[i].name, name) == 0) {
			alarm(CHILD_LIMIT_S);
			list[i].body();
			return 0;
		}
	}
	fprintf(stderr, "no scenario '%s'\n", name);
	return EXIT_SCENARIO;
}

/** Run a scenario with our environment less NCCL's and Braid's settings, plus `extra`. */
static inline void scenario_expect(const char *name, const char *const extra[ENV_EXTRA_COUNT])
{
	const char *envs[ENV_COUNT];
	size_t count = 0;
	int status;

	for (char **env = environ; *env != NULL && count < ENV_COUNT - ENV_EXTRA_COUNT - 1; env++) {
		if (strncmp(*env, "NCCL_", 5) != 0 && strncmp(*env, "BRAID_", 6) != 0 &&
		    strncmp(*env, "LD_LIBRARY_PATH=", 16) != 0) {
			envs[count++] = *env;
		}
	}
	for (size_t i = 0; i < ENV_EXTRA_COUNT && extra[i] != NULL; i++) {
		envs[count++] = extra[i];
	}
	envs[count] = NULL;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		char *args[] = {(char *)"loader", (char *)(uintptr_t)name, NULL};

		execve("/proc/self/exe", args, (char **)(uintptr_t)envs);
		_exit(EXIT_SCENARIO);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/** ... over this build's software fabric, in a folder of its own, the plugin's folder in the
 * search path. Skips where the fabric was not built. */
static inline void fabric_expect(const char *name)
{
	char dir[128];
	char rails[32];
	const char *const extra[ENV_EXTRA_COUNT] = {dir, rails, "NCCL_SOCKET_IFNAME=lo",
						    "LD_LIBRARY_PATH=" FABRIC_PATH
						    ":" PLUGIN_FOLDER};

	if (access(FABRIC_PATH "/libibverbs.so.1", R_OK) != 0) {
		print_message("skipped: no " FABRIC_PATH "/libibverbs.so.1\n");
		skip();
	}
	assert_true(tree_begin());
	snprintf(dir, sizeof(dir), "FABRIC_DIR=%s", tree_root);
	snprintf(rails, sizeof(rails), "FABRIC_RAILS=%d", FABRIC_RAILS);
	scenario_expect(name, extra);
	assert_int_equal(tree_end(), 0);
}

#endif
