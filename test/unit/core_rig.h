/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_CORE_RIG_H
#define BRAID_TEST_CORE_RIG_H

/*
 * The plugin's core with both ends of a connection in this process, over the software fabric of
 * this build. A group's setup function is rig_begin, its teardown rig_end.
 */

#include "ib_tree.h"
#include "include/clock.h"
#include "include/nccl_net.h"
#include "plugin/core.h"

#include <dirent.h>
#include <libgen.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
	RIG_WAIT_MS = 20000
};

struct rig_pair {
	void *listen, *send, *recv;
	uint8_t handle[NCCL_NET_HANDLE_BYTES];
};

/* The stand-in library lies beside this program in the build folder. */
static inline int rig_begin(void **state)
{
	char exe[PATH_MAX / 2], lib[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	(void)state;
	if (len < 0 || !tree_begin()) {
		return -1;
	}
	exe[len] = '\0';
	(void)snprintf(lib, sizeof(lib), "%s/../../fabric/libibverbs.so.1", dirname(exe));
	(void)setenv("NCCL_IBVERBS_LIB", lib, 1);
	(void)setenv("FABRIC_DIR", tree_root, 1);
	(void)setenv("FABRIC_RAILS", "2", 0);
	(void)setenv("NCCL_SOCKET_IFNAME", "lo", 1);
	return access(lib, R_OK);
}

static inline int rig_end(void **state)
{
	(void)state;
	return tree_end();
}

/** Install a fault rule of the fabric; without a trigger it has fired on return. */
static inline void rig_fault(const char *rule)
{
	char exe[PATH_MAX / 2], line[2 * PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	assert_true(len > 0);
	exe[len] = '\0';
	(void)snprintf(line, sizeof(line), "%s/../../fabric/fabricctl --dir %s fault '%s'",
		       dirname(exe), tree_root, rule);
	assert_int_equal(system(line), 0);
}

static inline unsigned int rig_ms_since(uint64_t start_ns)
{
	return (unsigned int)((clock_mono_ns() - start_ns) / NS_PER_MS);
}

static inline void rig_pause(void)
{
	const struct timespec pause = {.tv_nsec = 200000};

	nanosleep(&pause, NULL);
}

/** Threads of this process whose name begins with "braid-". */
static inline unsigned int rig_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned int count = 0;
	struct dirent *entry;

	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL) {
		char path[300], name[32] = "";
		FILE *file;

		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		file = fopen(path, "r");
		if (file != NULL) {
			count += fgets(name, sizeof(name), file) != NULL &&
				 strncmp(name, "braid-", 6) == 0;
			(void)fclose(file);
		}
	}
	(void)closedir(dir);
	return count;
}

/** Open descriptors of this process. */
static inline unsigned int rig_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL) {
		count++;
	}
	(void)closedir(dir);
	return count;
}

static inline void rig_listen(struct rig_pair *pair, int dev)
{
	memset(pair, 0, sizeof(*pair));
	assert_int_equal(plugin_listen(dev, pair->handle, &pair->listen), 0);
}

/** Poll both ends until they are connected, as NCCL does. */
static inline void rig_connect(struct rig_pair *pair, int dev)
{
	uint64_t start_ns = clock_mono_ns();

	while (!pair->send || !pair->recv) {
		if (!pair->send) {
			assert_int_equal(plugin_connect(dev, -1, pair->handle, &pair->send), 0);
		}
		if (!pair->recv) {
			assert_int_equal(plugin_accept(pair->listen, &pair->recv), 0);
		}
		rig_pause();
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
}

static inline void rig_open(struct rig_pair *pair, int dev)
{
	rig_listen(pair, dev);
	rig_connect(pair, dev);
	plugin_close_listen(pair->listen);
	pair->listen = NULL;
}

static inline void rig_close(struct rig_pair *pair)
{
	plugin_close_send(pair->send);
	plugin_close_recv(pair->recv);
}

/** A request that NCCL would ask for until it gets one. */
static inline void *rig_irecv(struct rig_pair *pair, void *data, size_t size, void *mh)
{
	uint64_t start_ns = clock_mono_ns();
	int tag = 0;
	void *request = NULL;

	while (!request) {
		assert_int_equal(plugin_irecv(pair->recv, 1, &data, &size, &tag, &mh, &request), 0);
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
	return request;
}

static inline void *rig_isend(struct rig_pair *pair, void *data, size_t size, void *mh)
{
	uint64_t start_ns = clock_mono_ns();
	void *request = NULL;

	while (!request) {
		assert_int_equal(plugin_isend(pair->send, data, size, 0, mh, &request), 0);
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
	return request;
}

/** Test both until done. Returns the sizes that were reported. */
static inline void rig_finish(void *send_req, void *recv_req, int *sent, int *received)
{
	uint64_t start_ns = clock_mono_ns();
	int send_done = 0, recv_done = 0;

	while (!send_done || !recv_done) {
		if (!send_done) {
			assert_int_equal(plugin_test(send_req, &send_done, sent), 0);
		}
		if (!recv_done) {
			assert_int_equal(plugin_test(recv_req, &recv_done, received), 0);
		}
		assert_in_range(rig_ms_since(start_ns), 0, RIG_WAIT_MS);
	}
}

#endif
