/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/driver/run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

_Noreturn static void command_exec(const struct run *run, const char *text)
{
	/* A group of its own: what it started ends with it when it takes too long. */
	setpgid(0, 0);
	setenv("RUN_DIR", run->dir, 1);
	execl("/bin/sh", "sh", "-c", text, (char *)NULL);
	fprintf(stderr, "driver: sh: %s\n", strerror(errno));
	_exit(127);
}

void command_run(struct run *run, uint32_t i)
{
	static const struct timespec nap = {0, 2000000};
	const char *text = run->opt->commands[i].text;
	char mark[OPT_TEXT_MAX + 16];
	int status = -1;

	run->commands[i].at_ns = clock_mono_ns();
	run->commands[i].done = true;
	snprintf(mark, sizeof(mark), "run %s", text);
	sampler_mark(run->sampler, run->commands[i].at_ns, mark);

	uint64_t deadline_ns = run->commands[i].at_ns + run->opt->timeout_s * NS_PER_SEC;
	pid_t pid = fork();

	if (pid < 0) {
		run_fail(run, "command '%s': %s", text, strerror(errno));
		return;
	}
	if (pid == 0) {
		command_exec(run, text);
	}
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_mono_ns() > deadline_ns) {
			kill(-pid, SIGKILL);
			waitpid(pid, &status, 0);
			break;
		}
		nanosleep(&nap, NULL);
	}
	run->commands[i].end_ns = clock_mono_ns();
	if (status) {
		run_fail(run, "command '%s' ended with status 0x%x", text, (unsigned)status);
	}
}
