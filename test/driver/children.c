/* SPDX-License-Identifier: Apache-2.0 */
#include "test/driver/children.h"

#include "include/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void env_set(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void env_set(const char *name, const char *fmt, ...)
{
	char value[2 * PATH_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(value, sizeof(value), fmt, args);
	va_end(args);
	setenv(name, value, 1);
}

/** Set from NAME=VALUE. */
static void env_put(const char *text)
{
	char name[OPT_TEXT_MAX];
	size_t len = strcspn(text, "=");

	snprintf(name, sizeof(name), "%.*s", (int)len, text);
	env_set(name, "%s", text + len + 1);
}

static void fabric_env(const struct options *opt, const char *run_dir, uint32_t rank)
{
	const char *path = getenv("LD_LIBRARY_PATH");

	env_set("LD_LIBRARY_PATH", "%s%s%s", opt->fabric_lib, path ? ":" : "", path ? path : "");
	env_set("FABRIC_DIR", "%s/fabric", run_dir);
	env_set("FABRIC_HOST", "%u", rank);
	env_set("FABRIC_RAILS", "%u", opt->rail_count);
	env_set("FABRIC_SEED", "%u", opt->seed);
	env_set("FABRIC_LATENCY_US", "%u", opt->latency_us);
	if (opt->rate_mbps[0]) {
		env_set("FABRIC_RATE_MBPS", "%s", opt->rate_mbps);
	}
	if (opt->link[0]) {
		env_set("FABRIC_LINK", "%s", opt->link);
	}
	if (opt->wiring[0]) {
		env_set("FABRIC_WIRING", "%s", opt->wiring);
	}
}

/** Become the rank's program, by way of the wrapper if there is one: it keeps this process's id. */
static void rank_exec(const struct options *opt, uint32_t rank, char **argv)
{
	char text[OPT_TEXT_MAX + 32];
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *words[] = {(char *)"sh", (char *)"-c", text,    argv[0], self,
			 argv[1],      argv[2],      argv[3], argv[4], NULL};

	if (!opt->wrapper[0]) {
		execv("/proc/self/exe", argv);
		return;
	}
	if (len < 0) {
		return;
	}
	self[len] = '\0';
	env_set("RANK", "%u", rank);
	snprintf(text, sizeof(text), "exec %s \"$@\"", opt->wrapper);
	execv("/bin/sh", words);
}

_Noreturn static void child_exec(const struct options *opt, const char *run_dir, uint32_t rank,
				 int shm_fd)
{
	char rank_text[16];
	char fd_text[16];
	char *argv[] = {(char *)"braid_driver", (char *)"--rank", rank_text,
			(char *)"--shm-fd",     fd_text,          NULL};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_DFL); /* as a plugin finds it in a training job */
	snprintf(rank_text, sizeof(rank_text), "%u", rank);
	snprintf(fd_text, sizeof(fd_text), "%d", shm_fd);
	if (opt->fabric_lib[0]) {
		fabric_env(opt, run_dir, rank);
	}
	env_set("NCCL_SOCKET_IFNAME", "lo");
	env_set("BRAID_EVENT_FILE", "%s/events.rank%u.jsonl", run_dir, rank);
	for (uint32_t i = 0; i < opt->env_count; i++) {
		env_put(opt->envs[i]);
	}
	for (uint32_t i = 0; i < opt->rank_env_count; i++) {
		if (opt->rank_envs[i].rank == rank) {
			env_put(opt->rank_envs[i].text);
		}
	}
	rank_exec(opt, rank, argv);
	fprintf(stderr, "driver: exec: %s\n", strerror(errno));
	_exit(127);
}

int children_start(struct children *children, const struct options *opt, const char *run_dir,
		   int shm_fd)
{
	children->count = 0;
	for (uint32_t rank = 0; rank < opt->rank_count; rank++) {
		pid_t pid = fork();

		if (pid < 0) {
			return -errno;
		}
		if (pid == 0) {
			child_exec(opt, run_dir, rank, shm_fd);
		}
		children->pids[rank] = pid;
		children->count++;
	}
	return 0;
}

uint32_t children_poll(struct children *children)
{
	uint32_t running = 0;

	for (uint32_t rank = 0; rank < children->count; rank++) {
		if (!children->pids[rank]) {
			continue;
		}
		int status;
		pid_t pid = waitpid(children->pids[rank], &status, WNOHANG);

		if (pid == children->pids[rank]) {
			children->status[rank] = status;
			children->pids[rank] = 0;
		} else {
			running++;
		}
	}
	return running;
}

void children_finish(struct children *children, uint32_t wait_ms)
{
	static const struct timespec nap = {0, 2000000};
	uint64_t deadline_ns = clock_mono_ns() + wait_ms * NS_PER_MS;

	while (children_poll(children) && clock_mono_ns() < deadline_ns) {
		nanosleep(&nap, NULL);
	}
	for (uint32_t rank = 0; rank < children->count; rank++) {
		if (children->pids[rank]) {
			fprintf(stderr, "driver: rank %u does not end, killing process %d\n", rank,
				(int)children->pids[rank]);
			kill(children->pids[rank], SIGKILL);
			waitpid(children->pids[rank], &children->status[rank], 0);
			children->pids[rank] = 0;
		}
	}
}

void children_signal(struct children *children, uint32_t rank, int signal)
{
	if (children->pids[rank]) {
		kill(children->pids[rank], signal);
	}
}

void children_epitaph(const struct children *children, uint32_t rank, char *text, size_t cap)
{
	int status = children->status[rank];

	if (WIFSIGNALED(status)) {
		snprintf(text, cap, "signal %d", WTERMSIG(status));
	} else {
		snprintf(text, cap, "exit status %d", WEXITSTATUS(status));
	}
}

bool children_clean(const struct children *children, uint32_t rank)
{
	return !children->pids[rank] && WIFEXITED(children->status[rank]) &&
	       WEXITSTATUS(children->status[rank]) == 0;
}
