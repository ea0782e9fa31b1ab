/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BRAID_TEST_FABRIC_SYSFS_WRITER_H
#define BRAID_TEST_FABRIC_SYSFS_WRITER_H

/** Writes a tree of small files and links; folders are made on the way. After the first failure,
 * kept in `rc` as -errno, the calls do nothing. */
struct writer {
	const char *root;
	int rc;
};

/** A folder; the name is given as for printf, below `root`. */
void writer_dir(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** A file with one line. */
void writer_put(struct writer *w, const char *text, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void writer_put_number(struct writer *w, int number, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/** A link `name` in the folder `dir` with the text given. */
void writer_link(struct writer *w, const char *dir, const char *name, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/** The same, but the text is a path below `root`, reached through as many ".." as `dir` is deep. */
void writer_link_up(struct writer *w, const char *dir, const char *name, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
