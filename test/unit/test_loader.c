/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The built plugin, loaded as each generation of NCCL loads it. Every scenario runs in a process of
 * its own (this program with a scenario's name as argument), since loading and environment are
 * matters of a whole process.
 */

#include "include/log.h"
#include "include/nccl_net.h"

#include <dirent.h>
#include <dlfcn.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define CHILD_LIMIT_S   30
#define VERSION_FIRST   6
#define VERSION_LAST    12
#define FABRIC_RAILS    2
#define EXIT_SCENARIO   3
#define ENV_EXTRA_COUNT 5

static char warned[4096];

static void logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
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

/* In a scenario's process: say what is wrong and end it. */
#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "line %d, version %d: not so: %s\nwarnings: %s\n",         \
				__LINE__, version_now, #condition, warned);                        \
			_exit(EXIT_SCENARIO);                                                      \
		}                                                                                  \
	} while (0)

static int version_now;

static void *plugin_open(void)
{
	void *lib = dlopen(PLUGIN_PATH, RTLD_NOW | RTLD_LOCAL);

	if (lib == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		_exit(EXIT_SCENARIO);
	}
	return lib;
}

static void *table_find(void *lib, int version)
{
	char name[32];

	snprintf(name, sizeof(name), "ncclNetPlugin_v%d", version);
	version_now = version;
	return dlsym(lib, name);
}

/* One version's calls, reduced to what the scenarios need. */
struct net {
	const void *table;
	int version;
	void *ctx;
};

static struct net net_find(void *lib, int version)
{
	struct net net = {.table = table_find(lib, version), .version = version};

	EXPECT(net.table != NULL);
	/* The tables all start with the name. */
	EXPECT(strcmp(((const struct nccl_net_v6 *)net.table)->name, "Braid") == 0);
	return net;
}

static enum nccl_result net_init(struct net *net)
{
	struct nccl_net_config config = {-1};

	if (net->version >= 11) {
		const struct nccl_net_v11 *v11 = net->table;

		return v11->init(&net->ctx, 0x1234, &config, logger, NULL);
	}
	if (net->version == 10) {
		return ((const struct nccl_net_v10 *)net->table)->init(logger, NULL);
	}
	return ((const struct nccl_net_v6 *)net->table)->init(logger);
}

/* At the end of a communicator: only v11 and later are told. */
static void net_finalize(struct net *net)
{
	if (net->version >= 11) {
		const struct nccl_net_v11 *v11 = net->table;

		EXPECT(v11->finalize != NULL);
		EXPECT(v11->finalize(net->ctx) == NCCL_RESULT_SUCCESS);
	}
}

static int net_devices(const struct net *net)
{
	int count = -1;

	/* devices has the same slot and type in every version. */
	EXPECT(((const struct nccl_net_v6 *)net->table)->devices(&count) == NCCL_RESULT_SUCCESS);
	return count;
}

static enum nccl_result net_props(const struct net *net, int dev, struct nccl_net_props_v12 *out)
{
	struct nccl_net_props_v6 v6 = {0};
	enum nccl_result result;

	memset(out, 0, sizeof(*out));
	if (net->version == 12) {
		return ((const struct nccl_net_v12 *)net->table)->properties(dev, out);
	}
	if (net->version >= 8) {
		/* Up to the name and guid all layouts agree; room enough for the largest. */
		return ((const struct nccl_net_v11 *)net->table)
			->properties(dev, (struct nccl_net_props_v11 *)(void *)out);
	}
	if (net->version == 7) {
		return ((const struct nccl_net_v7 *)net->table)
			->properties(dev, (struct nccl_net_props_v7 *)(void *)out);
	}
	result = ((const struct nccl_net_v6 *)net->table)->properties(dev, &v6);
	memcpy(out, &v6, sizeof(v6));
	return result;
}

static enum nccl_result net_listen(struct net *net, int dev, void *handle, void **comm)
{
	if (net->version >= 11) {
		return ((const struct nccl_net_v11 *)net->table)
			->listen(net->ctx, dev, handle, comm);
	}
	return ((const struct nccl_net_v6 *)net->table)->listen(dev, handle, comm);
}

static void symbols_expect(void *lib)
{
	for (int version = VERSION_FIRST; version <= VERSION_LAST; version++) {
		EXPECT(table_find(lib, version) != NULL);
	}
	EXPECT(table_find(lib, VERSION_FIRST - 1) == NULL);
	EXPECT(table_find(lib, VERSION_LAST + 1) == NULL);
	EXPECT(dlsym(lib, "ncclCollNetPlugin_v8") == NULL);
	EXPECT(dlsym(lib, "plugin_init") == NULL);
}

/* A release that finds no device closes the library again and goes on without it. */
static void no_devices_walk(void)
{
	for (int version = VERSION_LAST; version >= VERSION_FIRST; version--) {
		void *lib = plugin_open();
		struct net net = net_find(lib, version);
		struct nccl_net_props_v12 props;

		symbols_expect(lib);
		version_now = version;
		for (int user = 0; user < 2; user++) {
			EXPECT(net_init(&net) == NCCL_RESULT_SUCCESS);
			EXPECT(net_devices(&net) == 0);
			EXPECT(net_props(&net, 0, &props) != NCCL_RESULT_SUCCESS);
		}
		net_finalize(&net);
		net_finalize(&net);
		net_finalize(&net); /* once too often, as 2.28.3 may */
		EXPECT(dlclose(lib) == 0);
	}
}

static void scenario_disabled(void)
{
	no_devices_walk();
	EXPECT(warned[0] == '\0');
}

static void scenario_no_library(void)
{
	no_devices_walk();
	EXPECT(strstr(warned, "libibverbs") != NULL);
}

static void scenario_refused(void)
{
	no_devices_walk();
	EXPECT(strstr(warned, "NCCL_IB_HCA") != NULL);
}

/* An emulated HCA has a thread of its own, which lives as long as the HCA is open. */
static bool thread_is_hca(const char *task)
{
	char path[300];
	char name[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task);
	file = fopen(path, "r");
	if (file != NULL) {
		(void)!fgets(name, sizeof(name), file);
		fclose(file);
	}
	return strcmp(name, "fabric\n") == 0;
}

static unsigned thread_count(void)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *task;
	unsigned count = 0;

	EXPECT(tasks != NULL);
	while ((task = readdir(tasks)) != NULL) {
		if (task->d_name[0] != '.' && !thread_is_hca(task->d_name)) {
			count++;
		}
	}
	closedir(tasks);
	return count;
}

/* A joined thread leaves the list a moment after the join: nothing tells when, so look again. */
static bool thread_count_settles(unsigned wanted)
{
	const struct timespec pause = {0, 1000000};

	for (int look = 0; look < 2000; look++) {
		if (thread_count() == wanted) {
			return true;
		}
		nanosleep(&pause, NULL);
	}
	return false;
}

static void *thread_tell_name(void *arg)
{
	snprintf(arg, 64, "/proc/self/task/%d", gettid());
	return NULL;
}

/* ThreadSanitizer has a thread of its own, which comes with the first of the program. */
static void thread_first(void)
{
	const struct timespec pause = {0, 1000000};
	char task[64];
	pthread_t thread;

	EXPECT(pthread_create(&thread, NULL, thread_tell_name, task) == 0);
	EXPECT(pthread_join(thread, NULL) == 0);
	for (int look = 0; look < 2000 && access(task, F_OK) == 0; look++) {
		nanosleep(&pause, NULL);
	}
	EXPECT(access(task, F_OK) != 0);
}

static void listen_walk(struct net *net)
{
	char handle[NCCL_NET_HANDLE_BYTES] = {0};
	char empty[NCCL_NET_HANDLE_BYTES] = {0};

	for (int dev = 0; dev < FABRIC_RAILS; dev++) {
		void *comm = NULL;

		EXPECT(net_listen(net, dev, handle, &comm) == NCCL_RESULT_SUCCESS);
		EXPECT(comm != NULL);
		EXPECT(memcmp(handle, empty, sizeof(handle)) != 0);
		EXPECT(((const struct nccl_net_v6 *)net->table)->close_listen(comm) ==
		       NCCL_RESULT_SUCCESS);
	}
}

/* Over the software fabric: every version sees the same devices, and can listen. */
static void scenario_devices(void)
{
	unsigned threads_before;

	thread_first();
	threads_before = thread_count();

	for (int version = VERSION_LAST; version >= VERSION_FIRST; version--) {
		void *lib = plugin_open();
		struct net net = net_find(lib, version);
		struct nccl_net_props_v12 props[FABRIC_RAILS];

		EXPECT(net_init(&net) == NCCL_RESULT_SUCCESS);
		EXPECT(net_devices(&net) == FABRIC_RAILS);
		for (int dev = 0; dev < FABRIC_RAILS; dev++) {
			char name[16];

			snprintf(name, sizeof(name), "fab%d", dev);
			EXPECT(net_props(&net, dev, &props[dev]) == NCCL_RESULT_SUCCESS);
			EXPECT(strcmp(props[dev].name, name) == 0);
			EXPECT((props[dev].ptr_support & NCCL_PTR_HOST) != 0);
		}
		EXPECT(props[0].guid != props[1].guid);
		EXPECT(net_props(&net, FABRIC_RAILS, &props[0]) != NCCL_RESULT_SUCCESS);
		EXPECT(net_props(&net, -1, &props[0]) != NCCL_RESULT_SUCCESS);
		listen_walk(&net);
		net_finalize(&net);
		EXPECT(dlclose(lib) == 0);
		/* Names must outlive the communicator, and the library's unloading. */
		EXPECT(strcmp(props[1].name, "fab1") == 0);
		EXPECT(thread_count_settles(threads_before));
	}
}

/* 2.22 and 2.23 unload, load again, and go on without a second init. */
static void scenario_reload(void)
{
	for (int round = 0; round < 3; round++) {
		void *lib = plugin_open();
		struct net net = net_find(lib, 8);
		struct nccl_net_props_v12 props;

		if (round == 0) {
			EXPECT(net_init(&net) == NCCL_RESULT_SUCCESS);
		}
		EXPECT(net_devices(&net) == FABRIC_RAILS);
		EXPECT(net_props(&net, 0, &props) == NCCL_RESULT_SUCCESS);
		listen_walk(&net);
		EXPECT(dlclose(lib) == 0);
	}
}

/* 2.28 on: several communicators at once, each with its context; then none; then one again. */
static void scenario_contexts(void)
{
	void *lib = plugin_open();
	struct net first = net_find(lib, 11);
	struct net second = net_find(lib, 11);

	EXPECT(net_init(&first) == NCCL_RESULT_SUCCESS);
	EXPECT(net_init(&second) == NCCL_RESULT_SUCCESS);
	EXPECT(first.ctx != NULL && second.ctx != NULL);
	net_finalize(&first);
	EXPECT(net_devices(&second) == FABRIC_RAILS);
	listen_walk(&second);
	net_finalize(&second);
	EXPECT(net_init(&first) == NCCL_RESULT_SUCCESS);
	EXPECT(net_devices(&first) == FABRIC_RAILS);
	listen_walk(&first);
	net_finalize(&first);
	EXPECT(dlclose(lib) == 0);
}

/* A handle nobody listens at: connecting goes on or fails, but does not block or crash. */
static void scenario_dead_handle(void)
{
	void *lib = plugin_open();
	struct net net = net_find(lib, 8);
	const struct nccl_net_v8 *v8 = net.table;
	char handle[NCCL_NET_HANDLE_BYTES];
	void *comm = NULL;

	EXPECT(net_init(&net) == NCCL_RESULT_SUCCESS);
	EXPECT(net_listen(&net, 0, handle, &comm) == NCCL_RESULT_SUCCESS);
	EXPECT(v8->close_listen(comm) == NCCL_RESULT_SUCCESS);
	for (int attempt = 0; attempt < 3; attempt++) {
		comm = NULL;
		if (v8->connect(0, handle, &comm, NULL) != NCCL_RESULT_SUCCESS) {
			break;
		}
		EXPECT(comm == NULL);
	}
	/* Neither is one that no plugin of ours wrote. */
	memset(handle, 0x5a, sizeof(handle));
	comm = NULL;
	EXPECT(v8->connect(0, handle, &comm, NULL) != NCCL_RESULT_SUCCESS || comm == NULL);
	EXPECT(dlclose(lib) == 0);
}

struct scenario {
	const char *name;
	void (*body)(void);
};

static const struct scenario scenarios[] = {
	{"disabled", scenario_disabled},       {"no_library", scenario_no_library},
	{"refused", scenario_refused},         {"devices", scenario_devices},
	{"reload", scenario_reload},           {"contexts", scenario_contexts},
	{"dead_handle", scenario_dead_handle},
};

static int scenario_run(const char *name)
{
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		if (strcmp(scenarios[i].name, name) == 0) {
			alarm(CHILD_LIMIT_S);
			scenarios[i].body();
			return 0;
		}
	}
	return EXIT_SCENARIO;
}

static char work_dir[64];

/* Run a scenario with our environment less NCCL's and Braid's settings, plus `extra`. */
static void scenario_expect(const char *name, const char *const extra[ENV_EXTRA_COUNT])
{
	const char *envs[512];
	size_t count = 0;
	int status;

	for (char **env = environ; *env != NULL && count < 500; env++) {
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

static int setup(void **state)
{
	(void)state;
	snprintf(work_dir, sizeof(work_dir), "/tmp/braid_loader.XXXXXX");
	return mkdtemp(work_dir) != NULL ? 0 : -1;
}

static int entry_remove(const char *path, const struct stat *info, int kind, struct FTW *where)
{
	(void)info;
	(void)kind;
	(void)where;
	return remove(path);
}

static int teardown(void **state)
{
	(void)state;
	return nftw(work_dir, entry_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static void test_disabled(void **state)
{
	const char *const extra[ENV_EXTRA_COUNT] = {"BRAID_DISABLE=1"};
	const char *const by_nccl[ENV_EXTRA_COUNT] = {"NCCL_IB_DISABLE=1"};

	(void)state;
	scenario_expect("disabled", extra);
	scenario_expect("disabled", by_nccl);
}

/* Files of the library's names that are no library come first in the search path. */
static void test_no_library(void **state)
{
	static const char *const names[] = {"libibverbs.so", "libibverbs.so.1"};
	char path[128];
	char search[128];
	const char *const extra[ENV_EXTRA_COUNT] = {search};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", work_dir, names[i]);
		FILE *file = fopen(path, "w");

		assert_non_null(file);
		fputs("no library\n", file);
		fclose(file);
	}
	snprintf(search, sizeof(search), "LD_LIBRARY_PATH=%s", work_dir);
	scenario_expect("no_library", extra);
}

static void test_refused(void **state)
{
	const char *const extra[ENV_EXTRA_COUNT] = {"NCCL_IB_HCA=mlx5_0;mlx5_1"};

	(void)state;
	scenario_expect("refused", extra);
}

static void fabric_expect(const char *name)
{
	char dir[128];
	char search[512];
	char rails[32];
	const char *const extra[ENV_EXTRA_COUNT] = {dir, search, rails, "NCCL_SOCKET_IFNAME=lo"};

	if (access(FABRIC_PATH "/libibverbs.so.1", R_OK) != 0) {
		print_message("skipped: no " FABRIC_PATH "/libibverbs.so.1\n");
		skip();
	}
	snprintf(dir, sizeof(dir), "FABRIC_DIR=%s", work_dir);
	snprintf(search, sizeof(search), "LD_LIBRARY_PATH=%s", FABRIC_PATH);
	snprintf(rails, sizeof(rails), "FABRIC_RAILS=%d", FABRIC_RAILS);
	scenario_expect(name, extra);
}

static void test_devices(void **state)
{
	(void)state;
	fabric_expect("devices");
}

static void test_reload(void **state)
{
	(void)state;
	fabric_expect("reload");
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_disabled),
		cmocka_unit_test_setup_teardown(test_no_library, setup, teardown),
		cmocka_unit_test(test_refused),
		cmocka_unit_test_setup_teardown(test_devices, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reload, setup, teardown),
		cmocka_unit_test_setup_teardown(test_contexts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dead_handle, setup, teardown),
	};

	if (argc == 2) {
		return scenario_run(argv[1]);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
