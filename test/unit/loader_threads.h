/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_LOADER_THREADS_H
#define BRAID_TEST_LOADER_THREADS_H

/* Counting this process's threads, to see that the plugin leaves none. */

#include "test/unit/loader_rig.h"

#include <dirent.h>
#include <pthread.h>
#include <time.h>

/* An emulated HCA has a thread of its own, which lives as long as the HCA is open. */
static inline bool thread_is_hca(const char *task)
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

static inline unsigned int thread_count(void)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *task;
	unsigned int count = 0;

	EXPECT(tasks != NULL);
	while ((task = readdir(tasks)) != NULL) {
		if (task->d_name[0] != '.' && !thread_is_hca(task->d_name)) {
			count++;
		}
	}
	closedir(tasks);
	return count;
}

/** A joined thread leaves the list a moment after the join: nothing tells when, so look again. */
static inline bool thread_count_settles(unsigned int wanted)
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

static inline void *thread_tell_name(void *arg)
{
	snprintf(arg, 64, "/proc/self/task/%d", gettid());
	return NULL;
}

/** How many there are to begin with. ThreadSanitizer has a thread of its own, which comes with the
 * first of the program. */
static inline unsigned int thread_count_first(void)
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
	return thread_count();
}

#endif
