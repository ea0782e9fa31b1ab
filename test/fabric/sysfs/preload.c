/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/sysfs/tree.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

/*
 * Loaded with LD_PRELOAD, this library shows a program the devices of FABRIC_TOPO where it looks
 * for them, in /sys, without any privilege: calls that take a path get, for a path below /sys that
 * the made-up tree has, the path there. The verbs devices of the machine itself are hidden. The
 * tree is FABRIC_DIR/sys-HOST, made by the first process that needs it.
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool active;
static char root[PATH_MAX]; /* constant once active */

static void activate(void);

/* These belong to the fabric whole: what is not in the tree does not exist. */
static const char *const owned[] = {"/sys/class/infiniband", "/sys/class/infiniband_verbs",
				    "/sys/class/infiniband_mad"};

static bool is_owned(const char *path)
{
	for (size_t i = 0; i < sizeof(owned) / sizeof(owned[0]); i++) {
		size_t len = strlen(owned[i]);

		if (strncmp(path, owned[i], len) == 0 && (path[len] == '\0' || path[len] == '/')) {
			return true;
		}
	}
	return false;
}

/* The path to use instead of `path`: in `out`, or `path` itself. */
static const char *redirect(const char *path, char out[PATH_MAX])
{
	if (path == NULL || strncmp(path, "/sys/", 5) != 0) {
		return path;
	}
	activate();
	if (!atomic_load_explicit(&active, memory_order_acquire) ||
	    snprintf(out, PATH_MAX, "%s%s", root, path + 4) >= PATH_MAX) {
		return path;
	}
	if (is_owned(path) || syscall(SYS_faccessat, AT_FDCWD, out, F_OK) == 0) {
		return out;
	}
	return path;
}

/* The next definition of a function, which is libc's. */
static void *next_of(const char *name)
{
	void *symbol = dlsym(RTLD_NEXT, name);

	if (symbol == NULL) {
		fprintf(stderr, "fabric: libc has no %s\n", name);
		abort();
	}
	return symbol;
}

/* POSIX wants function pointers out of dlsym() to be copied, not cast. */
#define NEXT(function, name)                                                                       \
	do {                                                                                       \
		void *symbol = next_of(name);                                                      \
		memcpy(&(function), &symbol, sizeof(symbol));                                      \
	} while (0)

/* A mode comes along only when a file may be made. O_TMPFILE has the bit of O_DIRECTORY in it. */
static bool takes_mode(int flags)
{
	return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

#define MODE_READ(mode, flags)                                                                     \
	do {                                                                                       \
		va_list args;                                                                      \
                                                                                                   \
		va_start(args, flags);                                                             \
		if (takes_mode(flags)) {                                                           \
			(mode) = va_arg(args, mode_t);                                             \
		}                                                                                  \
		va_end(args);                                                                      \
	} while (0)

/* open(2) and its kin. */
#define OPEN_LIKE(name)                                                                            \
	int name(const char *path, int flags, ...)                                                 \
	{                                                                                          \
		int (*next)(const char *, int, ...);                                               \
		char made_up[PATH_MAX];                                                            \
		mode_t mode = 0;                                                                   \
                                                                                                   \
		MODE_READ(mode, flags);                                                            \
		NEXT(next, #name);                                                                 \
		return next(redirect(path, made_up), flags, mode);                                 \
	}

#define OPENAT_LIKE(name)                                                                          \
	int name(int dir_fd, const char *path, int flags, ...)                                     \
	{                                                                                          \
		int (*next)(int, const char *, int, ...);                                          \
		char made_up[PATH_MAX];                                                            \
		mode_t mode = 0;                                                                   \
                                                                                                   \
		MODE_READ(mode, flags);                                                            \
		NEXT(next, #name);                                                                 \
		return next(dir_fd, redirect(path, made_up), flags, mode);                         \
	}

/* A function of a path and of what stands in `rest`, called with `pass`. */
#define PATH_FIRST(type, name, rest, pass)                                                         \
	type name rest                                                                             \
	{                                                                                          \
		type(*next) rest;                                                                  \
		char made_up[PATH_MAX];                                                            \
                                                                                                   \
		NEXT(next, #name);                                                                 \
		path = redirect(path, made_up);                                                    \
		return next pass;                                                                  \
	}

/* What programs compiled with _FORTIFY_SOURCE, and those of an older libc, call instead. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __xstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st);
int __lxstat(int version, const char *path, struct stat *st);
int __lxstat64(int version, const char *path, struct stat64 *st);
char *__realpath_chk(const char *path, char *resolved, size_t resolved_len);
ssize_t __readlink_chk(const char *path, char *buf, size_t len, size_t buf_len);

OPEN_LIKE(open)
OPEN_LIKE(open64)
OPENAT_LIKE(openat)
OPENAT_LIKE(openat64)
PATH_FIRST(int, __open_2, (const char *path, int flags), (path, flags))
PATH_FIRST(int, __open64_2, (const char *path, int flags), (path, flags))
PATH_FIRST(FILE *, fopen, (const char *path, const char *mode), (path, mode))
PATH_FIRST(FILE *, fopen64, (const char *path, const char *mode), (path, mode))
PATH_FIRST(DIR *, opendir, (const char *path), (path))
PATH_FIRST(int, access, (const char *path, int mode), (path, mode))
PATH_FIRST(int, euidaccess, (const char *path, int mode), (path, mode))
PATH_FIRST(int, faccessat, (int dir_fd, const char *path, int mode, int flags),
	   (dir_fd, path, mode, flags))
PATH_FIRST(ssize_t, readlink, (const char *path, char *buf, size_t len), (path, buf, len))
PATH_FIRST(ssize_t, readlinkat, (int dir_fd, const char *path, char *buf, size_t len),
	   (dir_fd, path, buf, len))
PATH_FIRST(ssize_t, __readlink_chk, (const char *path, char *buf, size_t len, size_t buf_len),
	   (path, buf, len, buf_len))
PATH_FIRST(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t len),
	   (path, name, value, len))
PATH_FIRST(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t len),
	   (path, name, value, len))
PATH_FIRST(int, stat, (const char *path, struct stat *st), (path, st))
PATH_FIRST(int, stat64, (const char *path, struct stat64 *st), (path, st))
PATH_FIRST(int, lstat, (const char *path, struct stat *st), (path, st))
PATH_FIRST(int, lstat64, (const char *path, struct stat64 *st), (path, st))
PATH_FIRST(int, fstatat, (int dir_fd, const char *path, struct stat *st, int flags),
	   (dir_fd, path, st, flags))
PATH_FIRST(int, fstatat64, (int dir_fd, const char *path, struct stat64 *st, int flags),
	   (dir_fd, path, st, flags))
PATH_FIRST(int, statx,
	   (int dir_fd, const char *path, int flags, unsigned int mask, struct statx *st),
	   (dir_fd, path, flags, mask, st))
PATH_FIRST(int, __xstat, (int version, const char *path, struct stat *st), (version, path, st))
PATH_FIRST(int, __xstat64, (int version, const char *path, struct stat64 *st), (version, path, st))
PATH_FIRST(int, __lxstat, (int version, const char *path, struct stat *st), (version, path, st))
PATH_FIRST(int, __lxstat64, (int version, const char *path, struct stat64 *st), (version, path, st))

/* What realpath() found in the tree is called by its name in /sys. */
static char *real_name(char *found)
{
	size_t len;

	if (!atomic_load_explicit(&active, memory_order_acquire)) {
		return found;
	}
	len = strlen(root);
	if (found != NULL && strncmp(found, root, len) == 0 && found[len] == '/') {
		memmove(found + 4, found + len, strlen(found + len) + 1);
		memcpy(found, "/sys", 4);
	}
	return found;
}

char *realpath(const char *path, char *resolved)
{
	char *(*next)(const char *, char *);
	char made_up[PATH_MAX];

	NEXT(next, "realpath");
	return real_name(next(redirect(path, made_up), resolved));
}

char *__realpath_chk(const char *path, char *resolved, size_t resolved_len)
{
	if (resolved_len < PATH_MAX) {
		abort(); /* as libc does */
	}
	return realpath(path, resolved);
}

char *canonicalize_file_name(const char *path)
{
	return realpath(path, NULL);
}

/* Makes the tree in `dir` unless another process has. The lock goes with its file descriptor. */
static int tree_make(const struct fab_topo *topo, uint32_t host, const char *dir)
{
	char done[PATH_MAX];
	int rc = 0;
	int fd;

	if (mkdir(dir, 0755) != 0 && errno != EEXIST) {
		return -errno;
	}
	if (snprintf(done, sizeof(done), "%s/.done", dir) >= (int)sizeof(done)) {
		return -ENAMETOOLONG;
	}
	fd = open(done, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || flock(fd, LOCK_EX) != 0) {
		rc = -errno;
	} else if (lseek(fd, 0, SEEK_END) == 0) { /* not finished by anybody yet */
		rc = fab_tree_write(topo, host, dir);
		if (rc == 0 && write(fd, "\n", 1) != 1) {
			rc = -EIO;
		}
	}
	if (fd >= 0) {
		close(fd);
	}
	return rc;
}

static void root_find(void)
{
	const char *file = getenv("FABRIC_TOPO");
	const char *dir = getenv("FABRIC_DIR");
	const char *host = getenv("FABRIC_HOST");
	unsigned long number = host != NULL ? strtoul(host, NULL, 10) : 0;
	struct fab_topo topo;
	char why[512];
	char made[PATH_MAX];
	int rc;

	if (file == NULL || file[0] == '\0' || dir == NULL || dir[0] == '\0' ||
	    number >= FAB_MAX_HOSTS || fab_topo_load(file, &topo, why, sizeof(why)) != 0) {
		return; /* the verbs library complains */
	}
	if (realpath(dir, made) == NULL || strlen(made) + 8 >= sizeof(made)) {
		return;
	}
	snprintf(made + strlen(made), 8, "/sys-%02lu", number);
	rc = tree_make(&topo, (uint32_t)number, made);
	if (rc != 0) {
		fprintf(stderr, "fabric: cannot make %s: %s\n", made, strerror(-rc));
		return;
	}
	strcpy(root, made);
	atomic_store_explicit(&active, true, memory_order_release); /* with redirect() */
}

/* At the first look into /sys with the environment complete: a launcher sets it between fork and
 * what its child does, so neither the load nor one attempt is the time. What is called from here
 * names no path below /sys, so it does not come back. */
static void activate(void)
{
	pthread_mutex_lock(&lock);
	if (!atomic_load_explicit(&active, memory_order_relaxed)) {
		root_find();
	}
	pthread_mutex_unlock(&lock);
}
