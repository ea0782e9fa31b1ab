/* SPDX-License-Identifier: Apache-2.0 */
#include "test/fabric/sysfs/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* root/FORMATTED into out. */
static bool path_make(struct writer *w, char out[PATH_MAX], const char *format, va_list args)
{
	int used = snprintf(out, PATH_MAX, "%s/", w->root);
	int more = used < PATH_MAX ? vsnprintf(out + used, (size_t)(PATH_MAX - used), format, args)
				   : PATH_MAX;

	if (used + more >= PATH_MAX) {
		w->rc = -ENAMETOOLONG;
	}
	return w->rc == 0;
}

/* Every folder on the way to `path` below the root, `path` itself only with `whole`. */
static void dirs_make(struct writer *w, char *path, bool whole)
{
	for (char *at = path + strlen(w->root) + 1; w->rc == 0 && *at != '\0'; at++) {
		if (*at == '/') {
			*at = '\0';
			w->rc = mkdir(path, 0755) != 0 && errno != EEXIST ? -errno : 0;
			*at = '/';
		}
	}
	if (w->rc == 0 && whole && mkdir(path, 0755) != 0 && errno != EEXIST) {
		w->rc = -errno;
	}
}

static void file_write(struct writer *w, char *path, const char *text)
{
	FILE *file;
	bool good;

	dirs_make(w, path, false);
	if (w->rc != 0) {
		return;
	}
	file = fopen(path, "we");
	if (file == NULL) {
		w->rc = -errno;
		return;
	}
	good = fprintf(file, "%s\n", text) >= 0;
	if (fclose(file) != 0 || !good) {
		w->rc = -EIO;
	}
}

static void link_write(struct writer *w, const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/%s/%s", w->root, dir, name) >= (int)sizeof(path)) {
		w->rc = -ENAMETOOLONG;
		return;
	}
	dirs_make(w, path, false);
	if (w->rc == 0 && symlink(text, path) != 0 && errno != EEXIST) {
		w->rc = -errno;
	}
}

void writer_dir(struct writer *w, const char *format, ...)
{
	char path[PATH_MAX];
	va_list args;

	va_start(args, format);
	if (path_make(w, path, format, args)) {
		dirs_make(w, path, true);
	}
	va_end(args);
}

static void put(struct writer *w, const char *text, const char *format, va_list args)
{
	char path[PATH_MAX];

	if (path_make(w, path, format, args)) {
		file_write(w, path, text);
	}
}

void writer_put(struct writer *w, const char *text, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put(w, text, format, args);
	va_end(args);
}

void writer_put_number(struct writer *w, int number, const char *format, ...)
{
	char text[16];
	va_list args;

	snprintf(text, sizeof(text), "%d", number);
	va_start(args, format);
	put(w, text, format, args);
	va_end(args);
}

void writer_link(struct writer *w, const char *dir, const char *name, const char *format, ...)
{
	char text[PATH_MAX];
	va_list args;

	va_start(args, format);
	if (vsnprintf(text, sizeof(text), format, args) < (int)sizeof(text) && w->rc == 0) {
		link_write(w, dir, name, text);
	}
	va_end(args);
}

void writer_link_up(struct writer *w, const char *dir, const char *name, const char *format, ...)
{
	char text[PATH_MAX] = "../"; /* for the last component of `dir` */
	size_t used = strlen(text);
	va_list args;
	int more;

	for (const char *at = strchr(dir, '/'); at != NULL && used + 4 < sizeof(text);
	     at = strchr(at + 1, '/')) {
		memcpy(text + used, "../", 4);
		used += 3;
	}
	va_start(args, format);
	more = vsnprintf(text + used, sizeof(text) - used, format, args);
	va_end(args);
	if (more >= 0 && (size_t)more < sizeof(text) - used && w->rc == 0) {
		link_write(w, dir, name, text);
	}
}
