/* SPDX-License-Identifier: Apache-2.0 */

/* What a run leaves when all its processes were killed: nothing outside its folder, no folder if
 * the launcher made it so, else one that can be used again, or is refused with a line that says
 * why. */

#include "test/fabric/layout.h"
#include "test/fabric/tests/rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

/* Writes to itself until it is killed. */
static void victim(struct rig *rig, int ready)
{
	struct rig own = {.host = rig->host, .dir = rig->dir};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_port_attr port;

	CHECK(list != NULL);
	own.context = ibv_open_device(list[0]);
	CHECK(own.context != NULL && ibv_query_port(own.context, 1, &port) == 0);
	own.pd = ibv_alloc_pd(own.context);
	own.cq = ibv_create_cq(own.context, 64, NULL, NULL, 0);
	own.buf = calloc(1, 1 << 20);
	own.mr = ibv_reg_mr(own.pd, own.buf, 1 << 20,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	own.qps[0] = rig_qp_create(&own, &rig_defaults);
	CHECK(own.mr != NULL && own.qps[0] != NULL && rig_qp_init(own.qps[0]) == 0);
	CHECK(rig_qp_rtr(own.qps[0], own.qps[0]->qp_num, port.lid, &rig_defaults) == 0);
	CHECK(rig_qp_rts(own.qps[0], &rig_defaults) == 0);
	own.peer_buf = (uint64_t)(uintptr_t)own.buf;
	own.peer_rkey = own.mr->rkey;
	for (uint64_t i = 0;; i++) {
		CHECK(rig_post(&own, 0, IBV_WR_RDMA_WRITE, i, 0, 1 << 20) == 0);
		CHECK(rig_poll(&own).status == IBV_WC_SUCCESS);
		CHECK(i != 10 || write(ready, "r", 1) == 1);
	}
}

/* Files that the process shares or has open, beyond what it inherited: all below `dir`? */
static void check_maps(pid_t pid, const char *dir)
{
	char path[64];
	char line[1024];
	uint32_t found = 0;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	maps = fopen(path, "re");
	CHECK(maps != NULL);
	while (fgets(line, sizeof(line), maps) != NULL) {
		const char *name = strchr(line, '/');
		const char *rights = strchr(line, ' ');

		if (name == NULL || rights == NULL || rights[4] != 's') {
			continue;
		}
		CHECK(strncmp(name, dir, strlen(dir)) == 0);
		found++;
	}
	fclose(maps);
	CHECK(found >= 2); /* else this looked at nothing: the root and the device */
}

static void check_files(pid_t pid, const char *dir)
{
	char folder[64];
	char link[512];
	struct dirent *entry;
	DIR *fds;

	snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)pid);
	fds = opendir(folder);
	CHECK(fds != NULL);
	for (entry = readdir(fds); entry != NULL; entry = readdir(fds)) {
		ssize_t len = readlinkat(dirfd(fds), entry->d_name, link, sizeof(link) - 1);
		struct stat own;
		struct stat peer;

		if (len <= 0 || link[0] != '/' || strncmp(link, dir, strlen(dir)) == 0) {
			continue;
		}
		/* Or this process has the very same file open: inherited. */
		CHECK(fstatat(dirfd(fds), entry->d_name, &peer, 0) == 0);
		CHECK(fstat(atoi(entry->d_name), &own) == 0 && own.st_ino == peer.st_ino);
	}
	closedir(fds);
}

static void killed_in(struct rig *rig)
{
	char byte;
	int ready[2];
	pid_t pid;

	CHECK(pipe(ready) == 0);
	pid = fork();
	if (pid == 0) {
		victim(rig, ready[1]);
	}
	CHECK(pid > 0 && read(ready[0], &byte, 1) == 1);
	check_maps(pid, rig->dir);
	check_files(pid, rig->dir);
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	close(ready[0]);
	close(ready[1]);
}

/* The folder as the killed ones left it, in use again by others. */
static void again(struct rig *rig)
{
	killed_in(rig);
	rig_barrier(rig);
	rig_open(rig, 0);
	rig_connect(rig, 0, &rig_defaults);
	rig_fill(rig, rig->host + 1, rig->host * 4096, 4096);
	CHECK(rig_post(rig, 0, IBV_WR_RDMA_WRITE, 1, rig->host * 4096, 4096) == 0);
	CHECK(rig_poll(rig).status == IBV_WC_SUCCESS);
	rig_barrier(rig);
	CHECK(rig_holds(rig, 2 - rig->host, (1 - rig->host) * 4096, 4096));
	CHECK(rig_has_event(rig) == 0);
	rig_barrier(rig);
	rig_close(rig);
}

static void test_again(void **state)
{
	static const struct rig_case c = {.host0 = again, .host1 = again};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

/* A launcher that makes the directory of its run, and a process of that run: both are killed. */
static void launch(char *dir, int ready)
{
	struct rig rig = {.host = 0, .dir = dir};
	int hold_fd;

	CHECK(fabric_ctl_make_dir(dir, 64, &hold_fd) == 0);
	setenv("FABRIC_DIR", dir, 1);
	setenv("FABRIC_HOST", "0", 1);
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		victim(&rig, ready);
	}
	pause();
}

static void test_launcher(void **state)
{
	char *dir = mmap(NULL, 64, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ready[2];
	char byte;
	pid_t pid;

	(void)state;
	assert_true(dir != MAP_FAILED);
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		launch(dir, ready[1]);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(access(dir, F_OK), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (int i = 0; access(dir, F_OK) == 0; i++) {
		assert_true(i < 1000); /* 10 s */
		rig_sleep_ms(10);
	}
	close(ready[0]);
	close(ready[1]);
	munmap(dir, 64);
}

static void other_version(struct rig *rig)
{
	struct fabric_ctl *ctl = NULL;
	uint32_t version = FAB_VERSION + 1;
	char path[256];
	char said[512] = "";
	int fd;

	rig_barrier(rig); /* the other one has it open already */
	if (rig->host != 0) {
		return;
	}
	snprintf(path, sizeof(path), "%s/fabric.shm", rig->dir);
	fd = open(path, O_RDWR);
	CHECK(fd >= 0);
	CHECK(pwrite(fd, &version, sizeof(version), offsetof(struct fab_root, version)) ==
	      (ssize_t)sizeof(version));
	close(fd);
	CHECK(fabric_ctl_open(rig->dir, &ctl) == -EPROTO && ctl == NULL);
	snprintf(path, sizeof(path), "%s/said", rig->dir);
	CHECK(freopen(path, "w+", stderr) != NULL);
	if (ibv_get_device_list(NULL) != NULL || errno != EPROTO) {
		_exit(1);
	}
	rewind(stderr);
	if (fgets(said, sizeof(said), stderr) == NULL ||
	    strstr(said, "another version of the fabric") == NULL ||
	    strstr(said, rig->dir) == NULL) {
		_exit(1);
	}
}

static void test_version(void **state)
{
	static const struct rig_case c = {.host0 = other_version, .host1 = other_version};

	(void)state;
	assert_int_equal(rig_run(&c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_launcher),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
