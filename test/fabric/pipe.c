/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/pipe.h"

#include "test/fabric/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ENTRY_MAX 64u

int fab_pipe_open(int *read_fd, int *write_fd)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) != 0) {
		return -errno;
	}
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	*read_fd = fds[0];
	*write_fd = fds[1];
	return 0;
}

uint32_t fab_pipe_remove(int read_fd, int write_fd, size_t len, fab_pipe_match_fn match,
			 const void *object)
{
	char path[64];
	char entry[ENTRY_MAX] __attribute__((aligned(8)));
	uint32_t taken = 0;
	int waiting = 0;
	int fd;

	ioctl(read_fd, FIONREAD, &waiting);
	if (waiting == 0 || len > ENTRY_MAX) {
		return 0;
	}
	/* An end of its own: O_NONBLOCK of the other one is the application's affair. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", read_fd);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) {
		fab_complain("%s cannot be opened: unread events stay", path);
		return 0;
	}
	for (size_t i = 0; i < (size_t)waiting / len; i++) {
		if (read(fd, entry, len) != (ssize_t)len) {
			break; /* the application was faster */
		}
		if (match(entry, object)) {
			taken++;
		} else if (write(write_fd, entry, len) != (ssize_t)len) {
			fab_complain("an event was lost while another was taken back");
		}
	}
	close(fd);
	return taken;
}

void fab_pipe_wait_acked(pthread_mutex_t *lock, pthread_cond_t *changed, const uint32_t *acked,
			 uint32_t read_count)
{
	pthread_mutex_lock(lock);
	while (*acked != read_count) {
		pthread_cond_wait(changed, lock);
	}
	pthread_mutex_unlock(lock);
}
