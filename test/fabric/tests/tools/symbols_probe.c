/* SPDX-License-Identifier: Apache-2.0 */

/* Calls functions of a library by name, with nothing but zeros: each must answer that it is not
 * emulated, each time, and name itself in one line on stderr, once. usage: symbols_probe LIBRARY
 * NAME... */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef long (*any_fn)(long, long, long, long, long, long);

/* In a process of its own, as it may crash. Exits with 0 when the answer says EOPNOTSUPP. */
static void call(void *lib, const char *name)
{
	union {
		void *symbol;
		any_fn fn;
	} it = {.symbol = dlsym(lib, name)};

	if (it.symbol == NULL) {
		_exit(2);
	}
	for (int i = 0; i < 2; i++) {
		long answer;

		errno = 0;
		answer = it.fn(0, 0, 0, 0, 0, 0);
		/* The number itself, a null pointer with errno, or nothing at all with errno. */
		if ((int32_t)answer != EOPNOTSUPP && errno != EOPNOTSUPP) {
			_exit(3);
		}
	}
	_exit(0);
}

static int try(void *lib, const char *name)
{
	char said[512] = "";
	char *line_end;
	size_t used = 0;
	int status;
	int fds[2];
	pid_t pid;

	if (pipe(fds) != 0 || (pid = fork()) < 0) {
		return -1;
	}
	if (pid == 0) {
		dup2(fds[1], STDERR_FILENO);
		call(lib, name);
	}
	close(fds[1]);
	for (ssize_t got = 1; got > 0 && used < sizeof(said) - 1; used += (size_t)got) {
		got = read(fds[0], said + used, sizeof(said) - 1 - used);
		got = got > 0 ? got : 0;
	}
	close(fds[0]);
	waitpid(pid, &status, 0);
	line_end = strchr(said, '\n');
	if (status != 0 || strstr(said, name) == NULL || line_end == NULL || line_end[1] != '\0') {
		printf("%s: status %x, said '%s'\n", name, (unsigned int)status, said);
		return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	void *lib = argc > 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	int bad = 0;

	if (lib == NULL) {
		fprintf(stderr, "usage: symbols_probe LIBRARY NAME...\n");
		return 1;
	}
	for (int i = 2; i < argc; i++) {
		bad += try(lib, argv[i]) != 0;
	}
	printf("%d of %d names do not say what they are\n", bad, argc - 2);
	return bad != 0;
}
