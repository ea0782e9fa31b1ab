/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/fabric_ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * A run's directory, that goes away with the run however that ends. A process of its own waits for
 * the end of a pipe, which comes when the last process that has the other end is gone.
 */

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

void fabric_ctl_remove_dir(const char *dir)
{
	(void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Has nothing open but the pipe, belongs to no terminal, and minds no signal meant for the run. */
static void sweep(const char *dir, int end)
{
	char byte;

	setsid();
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	prctl(PR_SET_NAME, "fabric-sweep");
	if (dup2(end, 0) != 0 || syscall(SYS_close_range, 1u, ~0u, 0) != 0) {
		_exit(1);
	}
	while (read(0, &byte, 1) < 0 && errno == EINTR) {
	}
	fabric_ctl_remove_dir(dir);
	_exit(0);
}

static int sweeper_start(const char *dir, int *hold_fd)
{
	int fds[2];
	int status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) != 0) {
		return -errno;
	}
	pid = fork();
	if (pid < 0) {
		close(fds[0]);
		close(fds[1]);
		return -EAGAIN;
	}
	if (pid == 0) {
		pid = fork(); /* the sweeper is nobody's child */
		if (pid == 0) {
			sweep(dir, fds[0]);
		}
		_exit(pid < 0);
	}
	close(fds[0]);
	if (waitpid(pid, &status, 0) != pid || status != 0) {
		close(fds[1]);
		return -EAGAIN;
	}
	*hold_fd = fds[1];
	return 0;
}

int fabric_ctl_make_dir(char *dir, size_t len, int *hold_fd)
{
	const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	int rc;

	if (snprintf(dir, len, "%s/fabric-XXXXXX", base) >= (int)len) {
		return -ENAMETOOLONG;
	}
	if (mkdtemp(dir) == NULL) {
		return -errno;
	}
	rc = sweeper_start(dir, hold_fd);
	if (rc != 0) {
		fabric_ctl_remove_dir(dir);
	}
	return rc;
}
