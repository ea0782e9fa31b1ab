/* SPDX-License-Identifier: Apache-2.0 */
#include "test/bench/peers.h"

#include "include/clock.h"
#include "test/fabric/fabric_ctl.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* The launcher: forks all, ends all. */

enum {
	LOOK_MS = 50,
	STARTS_AT_ONCE = 8, /* hundreds that start together are slower by far */
	LEAVE_S = 30,
	/* What a run takes for each peer, with a margin: measured, with one rail. */
	PEER_FILES = 2,
	PEER_THREADS = 6,
	PEER_SHM_KIB = 128,
	PEER_MEMORY_KIB = 4096,
	OWN_FILES = 200,
};

struct launch {
	const struct bench_options *opt;
	struct peers_shared *shared;
	pid_t self, test;
	pid_t pids[PEERS_MAX];
	unsigned int started, gone;
};

/* KiB that can be had without swapping; 0: not known. */
static unsigned long memory_kib(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long kib = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file) &&
	       sscanf(line, "MemAvailable: %lu", &kib) != 1) {
	}
	if (file) {
		fclose(file);
	}
	return kib;
}

/* Everything a run of this size will ask for, looked at before it starts. */
static int room_check(unsigned int peers)
{
	unsigned long memory = memory_kib();
	struct rlimit files, procs;
	struct statvfs shm;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 &&
	    files.rlim_max < (rlim_t)peers * PEER_FILES + OWN_FILES) {
		fprintf(stderr, "net_bench: %u peers need %u open files, the hard limit is %llu\n",
			peers, peers * PEER_FILES + OWN_FILES, (unsigned long long)files.rlim_max);
		return -EMFILE;
	}
	if (getrlimit(RLIMIT_NPROC, &procs) == 0 && procs.rlim_cur < (rlim_t)peers * PEER_THREADS) {
		fprintf(stderr, "net_bench: %u peers need %u threads, ulimit -u is %llu\n", peers,
			peers * PEER_THREADS, (unsigned long long)procs.rlim_cur);
		return -EAGAIN;
	}
	if (memory && memory < (unsigned long)peers * PEER_MEMORY_KIB) {
		fprintf(stderr, "net_bench: %u peers need %u MiB of memory, %lu are free\n", peers,
			peers * (PEER_MEMORY_KIB / 1024), memory / 1024);
		return -ENOMEM;
	}
	if (statvfs("/dev/shm", &shm) == 0 &&
	    shm.f_bavail * (shm.f_frsize / 1024) < (uint64_t)peers * PEER_SHM_KIB) {
		fprintf(stderr, "net_bench: %u peers need %u MiB in /dev/shm, %llu are free\n",
			peers, peers * PEER_SHM_KIB / 1024,
			(unsigned long long)(shm.f_bavail * (shm.f_frsize / 1024) / 1024));
		return -ENOSPC;
	}
	return 0;
}

/* In the child: ends with the launcher, however that ends. */
static void tie(const struct launch *launch)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != launch->self) {
		_exit(1);
	}
}

static int start_peer(struct launch *launch)
{
	unsigned int number = launch->started;
	pid_t pid = fork();

	if (pid == 0) {
		tie(launch);
		peer_main(launch->opt, launch->shared, number);
	}
	if (pid < 0) {
		fprintf(stderr, "net_bench: cannot fork peer %u: %s\n", number, strerror(errno));
		return -errno;
	}
	launch->pids[launch->started++] = pid;
	return 0;
}

/* Marks a child as gone. */
static void reap(struct launch *launch, pid_t pid)
{
	if (pid == launch->test) {
		launch->test = 0;
	}
	for (unsigned int i = 0; i < launch->started; i++) {
		if (launch->pids[i] == pid) {
			launch->pids[i] = 0;
			launch->gone++;
		}
	}
}

/* Until the process under test has ended; peers are started as it wants them. */
static int serve(struct launch *launch)
{
	int err = 0;

	while (launch->test && !err) {
		uint32_t wanted =
			atomic_load_explicit(&launch->shared->wanted, memory_order_acquire);
		uint32_t open = atomic_load_explicit(&launch->shared->open, memory_order_acquire);
		int status = 0;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid > 0) {
			reap(launch, pid);
			if (status != 0) {
				fprintf(stderr, "net_bench: %s: %s ended with status 0x%x\n",
					launch->opt->plugins[0],
					launch->test ? "a peer" : "the process under test",
					(unsigned int)status);
				err = -EIO;
			}
		} else if (launch->started < wanted && launch->started < open + STARTS_AT_ONCE) {
			err = start_peer(launch);
		} else {
			peers_word_wait(&launch->shared->wanted, wanted,
					launch->started < wanted ? 1 : LOOK_MS);
		}
	}
	return err;
}

static void kill_one(pid_t pid)
{
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

/* The peers were told to leave; those that have not after a while, or all after an error, have to.
 */
static int end_all(struct launch *launch, int err)
{
	static const struct timespec pause = {.tv_nsec = 5000000};
	uint64_t end_ns = clock_mono_ns() + (err ? 0 : LEAVE_S * NS_PER_SEC);

	while (launch->gone < launch->started && clock_mono_ns() < end_ns) {
		int status = 0;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid > 0) {
			reap(launch, pid);
			err = status != 0 ? -EIO : err;
		} else {
			nanosleep(&pause, NULL);
		}
	}
	if (launch->gone < launch->started && !err) {
		fprintf(stderr, "net_bench: %u peers did not leave within %d s\n",
			launch->started - launch->gone, LEAVE_S);
		err = -ETIMEDOUT;
	}
	for (unsigned int i = 0; i < launch->started; i++) {
		kill_one(launch->pids[i]);
	}
	kill_one(launch->test);
	return err;
}

static int launch_all(const struct bench_options *opt, struct peers_shared *shared)
{
	static struct launch launch;
	int err;

	launch = (struct launch){.opt = opt, .shared = shared, .self = getpid()};
	launch.test = fork();
	if (launch.test == 0) {
		tie(&launch);
		peers_test_main(opt, shared);
	}
	if (launch.test < 0) {
		return -errno;
	}
	err = serve(&launch);
	return end_all(&launch, err);
}

int peers_run(const struct bench_options *opt, struct bench_shared *bench)
{
	struct peers_shared *shared;
	char dir[128];
	int hold_fd;
	int err = room_check(opt->peer_steps[opt->peer_step_count - 1]);

	if (err) {
		return err;
	}
	memset(bench, 0, sizeof(*bench));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		return -errno;
	}
	shared->bench = bench;
	err = fabric_ctl_make_dir(dir, sizeof(dir), &hold_fd);
	if (!err) {
		setenv("FABRIC_DIR", dir, 1);
		setenv("FABRIC_RAILS", "1", 0);
		err = launch_all(opt, shared);
		close(hold_fd);
	}
	munmap(shared, sizeof(*shared));
	return err;
}
