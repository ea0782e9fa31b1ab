/* SPDX-License-Identifier: Apache-2.0 */
#include "test/bench/bench.h"
#include "test/fabric/layout.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* From /proc and, for QPs and MRs, from the fabric's shared state: no plugin is asked. */

static double entries(const char *path)
{
	DIR *dir = opendir(path);
	double count = 0;

	while (dir && readdir(dir)) {
		count++;
	}
	if (dir) {
		closedir(dir);
	}
	return count;
}

static void read_memory(struct bench_usage *out)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		sscanf(line, "Rss: %lf", &out->rss_kib);
		sscanf(line, "Pss: %lf", &out->pss_kib);
		sscanf(line, "Pss_Anon: %lf", &out->anon_kib);
	}
	if (file) {
		fclose(file);
	}
}

static void count_inst(const char *path, struct bench_usage *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const struct fab_inst *inst;

	if (fd < 0) {
		return;
	}
	inst = mmap(NULL, sizeof(*inst), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (inst == MAP_FAILED) {
		return;
	}
	if ((pid_t)inst->pid == getpid()) {
		for (unsigned int i = 0; i < FAB_MAX_QPS; i++) {
			out->qps +=
				atomic_load_explicit(&inst->qps[i].qpn, memory_order_relaxed) != 0;
		}
		for (unsigned int i = 0; i < FAB_MAX_MRS; i++) {
			out->mrs +=
				atomic_load_explicit(&inst->mrs[i].key, memory_order_relaxed) != 0;
		}
	}
	munmap((void *)(uintptr_t)inst, sizeof(*inst));
}

static void count_verbs(struct bench_usage *out)
{
	const char *dir_name = getenv("FABRIC_DIR");
	DIR *dir = dir_name ? opendir(dir_name) : NULL;
	const struct dirent *entry;
	char path[512];

	while (dir && (entry = readdir(dir))) {
		if (strncmp(entry->d_name, "inst-", 5) == 0) {
			snprintf(path, sizeof(path), "%s/%s", dir_name, entry->d_name);
			count_inst(path, out);
		}
	}
	if (dir) {
		closedir(dir);
	}
}

static void read_rest(struct bench_usage *out)
{
	out->fds = entries("/proc/self/fd");
	out->threads = entries("/proc/self/task");
	count_verbs(out);
}

void bench_usage_read(struct bench_rank *rank, struct bench_usage *out)
{
	memset(out, 0, sizeof(*out));
	bench_sync(rank); /* PSS depends on what the other has mapped */
	read_memory(out);
	bench_sync(rank);
	read_rest(out);
}

void bench_usage_now(struct bench_usage *out)
{
	memset(out, 0, sizeof(*out));
	read_memory(out);
	read_rest(out);
}

static uint64_t thread_wakeups(const char *task)
{
	char path[300];
	char line[256];
	uint64_t count = 0;
	unsigned long value;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file)) {
		if (strcmp(line, "Name:\tfabric\n") == 0) {
			break;
		}
		if (sscanf(line, "voluntary_ctxt_switches: %lu", &value) == 1) {
			count = value;
		}
	}
	if (file) {
		fclose(file);
	}
	return count;
}

uint64_t bench_wakeups(void)
{
	DIR *dir = opendir("/proc/self/task");
	const struct dirent *entry;
	uint64_t count = 0;

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] != '.' && atoi(entry->d_name) != getpid()) {
			count += thread_wakeups(entry->d_name);
		}
	}
	if (dir) {
		closedir(dir);
	}
	return count;
}
