/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_IB_TREE_H
#define BRAID_TEST_IB_TREE_H

/* A throw-away folder to build a make-believe /sys in. */

#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char tree_root[64];

static inline bool tree_begin(void)
{
	strcpy(tree_root, "/tmp/braid_tree_XXXXXX");
	return mkdtemp(tree_root) != NULL;
}

static inline int tree_remove_one(const char *path, const struct stat *stat, int type,
				  struct FTW *ftw)
{
	(void)stat;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline int tree_end(void)
{
	return nftw(tree_root, tree_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/** Full name, in a buffer that the next call uses again. */
static inline const char *tree_at(const char *path)
{
	static char full[512];

	(void)snprintf(full, sizeof(full), "%s/%s", tree_root, path);
	return full;
}

/** Make a folder and all above it. */
static inline void tree_folder(const char *path)
{
	char full[512];

	(void)snprintf(full, sizeof(full), "%s", tree_at(path));
	for (char *slash = strchr(full + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(full, 0700);
		*slash = '/';
	}
	(void)mkdir(full, 0700);
}

static inline bool tree_link(const char *target, const char *path)
{
	char full_target[512];

	(void)snprintf(full_target, sizeof(full_target), "%s", tree_at(target));
	return symlink(full_target, tree_at(path)) == 0;
}

static inline bool tree_text(const char *path, const char *text)
{
	FILE *file = fopen(tree_at(path), "w");

	if (file == NULL) {
		return false;
	}
	(void)fputs(text, file);
	return fclose(file) == 0;
}

#endif
