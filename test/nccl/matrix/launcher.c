/* SPDX-License-Identifier: Apache-2.0 */
#include "test/nccl/matrix/launcher.h"

#include "test/nccl/matrix/gpu.h"
#include "test/nccl/matrix/report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_NS    3000000000U /* for the others to notice, once a rank gave up */
#define CODE_NO_GPU 77
#define CODE_KILLED 1000 /* in the place of an exit status: plus the signal */
#define CODE_STUCK  2000 /* it had to be ended */

static struct plan plan; /* large: not on the stack */

struct job {
	const struct launcher_options *opts;
	struct shared *shared;
	pid_t pids[VALUE_MAX_RANKS]; /* 0: reaped */
	int codes[VALUE_MAX_RANKS];
	uint64_t began_ns;
};

static int log_open(const char *dir, int rank)
{
	char path[4096];

	if (snprintf(path, sizeof(path), "%s/err.%d", dir, rank) >= (int)sizeof(path)) {
		return -ENAMETOOLONG;
	}
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

	if (fd < 0 || dup2(fd, STDERR_FILENO) < 0) {
		return -errno;
	}
	close(fd);
	return 0;
}

/* In the child: it becomes rank `number`, and never returns. */
static void rank_main(const struct job *job, int number)
{
	const struct launcher_options *opts = job->opts;
	static struct rank rank;
	char text[32];
	int rc = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(text, sizeof(text), "%d", number / (opts->rank_count / opts->host_count));
	setenv("FABRIC_HOST", text, 1);
	snprintf(text, sizeof(text), "braid-matrix-%d", number);
	setenv("NCCL_HOSTID", text, 1);
	if (opts->log_dir != NULL && log_open(opts->log_dir, number) != 0) {
		_exit(1);
	}
	rank.rank = number;
	rank.step_limit_ms = opts->step_limit_ms;
	rank.corrupt_line = opts->corrupt_line;
	rank.shared = job->shared;
	rank.mine = &job->shared->results[number];
	if (getenv("FABRIC_DIR") != NULL) {
		rc = fabric_ctl_open(getenv("FABRIC_DIR"), &rank.fabric);
	}
	rc = rc == 0 ? gpu_open(number) : rc;
	if (rc == -ENODEV) {
		_exit(CODE_NO_GPU);
	}
	rc = rc == 0 ? nccl_api_open(opts->nccl_path, &rank.api) : rc;
	rc = rc == 0 ? rank_run(&rank, &plan) : rc;
	fflush(NULL);
	if (rc != 0) {
		atomic_store_explicit(&job->shared->has_failed, 1, memory_order_release);
		_exit(1); /* NCCL's and CUDA's clean-up may wait for the others */
	}
	exit(0);
}

static int job_start(struct job *job)
{
	for (int r = 0; r < job->opts->rank_count; r++) {
		pid_t pid = fork();

		if (pid == 0) {
			rank_main(job, r);
		}
		if (pid < 0) {
			return -errno;
		}
		job->pids[r] = pid;
	}
	return 0;
}

/* How a rank ended. One that was killed on order ended well. */
static int code_of(const struct shared *shared, int rank, int status)
{
	if (WIFEXITED(status)) {
		return WEXITSTATUS(status);
	}
	bool was_order = atomic_load_explicit(&shared->order, memory_order_acquire) == ORDER_DONE &&
			 shared->order_rank == rank && WTERMSIG(status) == SIGKILL;

	return was_order ? 0 : CODE_KILLED + WTERMSIG(status);
}

/* Reaps who ended; gives how many are left. */
static int job_reap(struct job *job)
{
	int left = 0;
	int status;

	for (int r = 0; r < job->opts->rank_count; r++) {
		if (job->pids[r] == 0) {
			continue;
		}
		if (waitpid(job->pids[r], &status, WNOHANG) != job->pids[r]) {
			left++;
			continue;
		}
		job->pids[r] = 0;
		job->codes[r] = code_of(job->shared, r, status);
		if (job->codes[r] != 0) {
			atomic_store_explicit(&job->shared->has_failed, 1, memory_order_release);
		}
	}
	return left;
}

/* Carries out what rank 0 wants done to another rank, when its time has come. */
static void job_order(struct job *job)
{
	struct shared *shared = job->shared;
	int order = atomic_load_explicit(&shared->order, memory_order_acquire);
	uint64_t now_ns = shared_now_ns();
	pid_t pid = job->pids[shared->order_rank];

	if ((order != ORDER_KILL && order != ORDER_PAUSE) || pid == 0 ||
	    now_ns < shared->order_at_ns) {
		return;
	}
	if (shared->order_begin_ns < shared->order_at_ns) {
		kill(pid, order == ORDER_KILL ? SIGKILL : SIGSTOP);
		shared->order_begin_ns = shared_now_ns();
	}
	if (order == ORDER_PAUSE) {
		if (now_ns < shared->order_at_ns + (uint64_t)shared->order_ms * 1000000) {
			return;
		}
		shared->order_end_ns = shared_now_ns();
		kill(pid, SIGCONT);
	}
	atomic_store_explicit(&shared->order, ORDER_DONE, memory_order_release);
}

static void job_end_all(struct job *job)
{
	for (int r = 0; r < job->opts->rank_count; r++) {
		if (job->pids[r] != 0) {
			kill(job->pids[r], SIGKILL);
			waitpid(job->pids[r], NULL, 0);
			job->codes[r] = CODE_STUCK;
			job->pids[r] = 0;
		}
	}
}

static void job_watch(struct job *job)
{
	uint64_t deadline_ns = job->began_ns + job->opts->limit_ms * 1000000;
	bool has_failed = false;

	while (job_reap(job) > 0) {
		uint64_t now_ns = shared_now_ns();

		if (!has_failed &&
		    atomic_load_explicit(&job->shared->has_failed, memory_order_acquire) != 0) {
			has_failed = true;
			if (now_ns + GRACE_NS < deadline_ns) {
				deadline_ns = now_ns + GRACE_NS;
			}
		}
		if (now_ns > deadline_ns) {
			fprintf(stderr, "nccl_matrix: out of time at plan line %u\n",
				atomic_load_explicit(&job->shared->line, memory_order_acquire));
			break;
		}
		job_order(job);
		shared_nap();
	}
	job_end_all(job);
}

int launcher_run(const struct launcher_options *opts)
{
	struct job job = {.opts = opts, .began_ns = shared_now_ns()};

	if (plan_read(opts->plan_path, &plan) != 0) {
		return 1;
	}
	job.shared = mmap(NULL, sizeof(*job.shared), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (job.shared == MAP_FAILED) {
		perror("nccl_matrix: mmap");
		return 1;
	}
	job.shared->rank_count = opts->rank_count;
	if (job_start(&job) != 0) {
		perror("nccl_matrix: fork");
		job_end_all(&job);
		return 1;
	}
	job_watch(&job);
	for (int r = 0; r < opts->rank_count; r++) {
		if (job.codes[r] == CODE_NO_GPU) {
			printf("skipped: no GPU here\n");
			return CODE_NO_GPU;
		}
	}
	return report_job(job.shared, job.codes, job.began_ns);
}
