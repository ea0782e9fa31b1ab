/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void fab_complain(const char *format, ...)
{
	char line[512];
	va_list args;
	int used;

	va_start(args, format);
	used = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (used >= 0) {
		fprintf(stderr, "fabric: %s\n", line);
	}
}

void fab_mutex_init(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(mutex, &attr);
	pthread_mutexattr_destroy(&attr);
}

/* Everything under these locks is safe to go on with after its owner died half-way: counters, and
 * tables whose rows become visible by one store at the end. */
void fab_mutex_lock(pthread_mutex_t *mutex)
{
	if (pthread_mutex_lock(mutex) == EOWNERDEAD) {
		pthread_mutex_consistent(mutex);
	}
}

bool fab_mutex_trylock(pthread_mutex_t *mutex)
{
	int rc = pthread_mutex_trylock(mutex);

	if (rc == EOWNERDEAD) {
		pthread_mutex_consistent(mutex);
	}
	return rc == 0 || rc == EOWNERDEAD;
}

void fab_mutex_unlock(pthread_mutex_t *mutex)
{
	pthread_mutex_unlock(mutex);
}

static void root_init(struct fab_root *root)
{
	fab_mutex_init(&root->lock);
	for (uint32_t host = 0; host < FAB_MAX_HOSTS; host++) {
		for (uint32_t rail = 0; rail < FAB_MAX_RAILS; rail++) {
			fab_mutex_init(&root->ports[host][rail].gate);
		}
	}
	atomic_store_explicit(&root->next_qpn, FAB_QPN_FIRST, memory_order_relaxed);
	root->version = FAB_VERSION;
	root->magic = FAB_MAGIC;
}

/* Under the file's flock, so exactly one process finds it empty. */
static int root_map_locked(int fd, struct fab_root **root)
{
	struct stat st;
	void *map;

	if (fstat(fd, &st) != 0) {
		return -errno;
	}
	if (st.st_size == 0 && ftruncate(fd, (off_t)sizeof(struct fab_root)) != 0) {
		return -errno;
	}
	if (st.st_size != 0 && st.st_size != (off_t)sizeof(struct fab_root)) {
		return -EPROTO;
	}
	map = mmap(NULL, sizeof(struct fab_root), PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED) {
		return -errno;
	}
	*root = map;
	if ((*root)->magic == 0) {
		root_init(*root);
	}
	if ((*root)->magic != FAB_MAGIC || (*root)->version != FAB_VERSION) {
		munmap(map, sizeof(struct fab_root));
		return -EPROTO;
	}
	return 0;
}

int fab_root_open(const char *dir, struct fab_root **root)
{
	char path[PATH_MAX];
	int fd;
	int rc;

	if (snprintf(path, sizeof(path), "%s/fabric.shm", dir) >= (int)sizeof(path)) {
		return -ENAMETOOLONG;
	}
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0) {
		return -errno;
	}
	rc = flock(fd, LOCK_EX) == 0 ? root_map_locked(fd, root) : -errno;
	flock(fd, LOCK_UN); /* close() would not: the mapping holds on to the open file */
	close(fd);
	return rc;
}

void fab_root_close(struct fab_root *root)
{
	if (root != NULL) {
		munmap(root, sizeof(*root));
	}
}
