/* SPDX-License-Identifier: Apache-2.0 */
#include "oob/proc.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* all under proc_lock, which is held across fork() */
static pthread_mutex_t proc_lock = PTHREAD_MUTEX_INITIALIZER;
static struct proc_id proc_id;
static bool proc_id_drawn;
static bool *fd_ours; /* by descriptor */
static size_t fd_ours_count;

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void fork_prepare(void)
{
	pthread_mutex_lock(&proc_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&proc_lock);
}

static void fork_child(void)
{
	for (size_t fd = 0; fd < fd_ours_count; fd++) {
		if (fd_ours[fd]) {
			close((int)fd);
			fd_ours[fd] = false;
		}
	}
	proc_id_drawn = false;
	pthread_mutex_unlock(&proc_lock);
}

/* glibc forgets the handlers when the library that registered them is unloaded */
static void fork_register(void)
{
	pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static int random_fill(void *data, size_t len_bytes)
{
	ssize_t got;

	do {
		got = getrandom(data, len_bytes, 0);
	} while (got < 0 && errno == EINTR);
	if (got < 0) {
		return -errno;
	}
	/* up to 256 bytes come whole */
	return (size_t)got == len_bytes ? 0 : -EIO;
}

int oob_proc_self(struct proc_id *out)
{
	int err = 0;

	pthread_once(&fork_once, fork_register);
	pthread_mutex_lock(&proc_lock);
	if (!proc_id_drawn) {
		err = random_fill(proc_id.bytes, sizeof(proc_id.bytes));
		proc_id_drawn = err == 0;
	}
	if (err == 0) {
		*out = proc_id;
	}
	pthread_mutex_unlock(&proc_lock);
	return err;
}

bool oob_proc_equal(const struct proc_id *a, const struct proc_id *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

int oob_proc_random(uint64_t *out)
{
	uint64_t value = 0;
	int err;

	do {
		err = random_fill(&value, sizeof(value));
	} while (err == 0 && value == 0);
	if (err == 0) {
		*out = value;
	}
	return err;
}

int oob_proc_fd_add(int fd)
{
	size_t need = (size_t)fd + 1;
	int err = 0;

	pthread_once(&fork_once, fork_register);
	pthread_mutex_lock(&proc_lock);
	if (need > fd_ours_count) {
		size_t count = need < 64 ? 64 : need * 2;
		bool *grown = realloc(fd_ours, count * sizeof(*grown));

		if (grown == NULL) {
			err = -ENOMEM;
			goto unlock;
		}
		memset(grown + fd_ours_count, 0, (count - fd_ours_count) * sizeof(*grown));
		fd_ours = grown;
		fd_ours_count = count;
	}
	fd_ours[fd] = true;
unlock:
	pthread_mutex_unlock(&proc_lock);
	return err;
}

void oob_proc_fd_close(int fd)
{
	pthread_mutex_lock(&proc_lock);
	if ((size_t)fd < fd_ours_count) {
		fd_ours[fd] = false;
	}
	close(fd);
	pthread_mutex_unlock(&proc_lock);
}

/* the table is small and lives as long as the library; the loop's thread may still close sockets */
static void __attribute__((destructor)) proc_fini(void)
{
	pthread_mutex_lock(&proc_lock);
	free(fd_ours);
	fd_ours = NULL;
	fd_ours_count = 0;
	pthread_mutex_unlock(&proc_lock);
}
