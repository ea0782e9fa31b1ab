/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "test/guest/compare/probes.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/** What the two processes tell each other, in shared memory. */
struct meeting {
	_Atomic int stage; /**< 1: the child's end is there; 2: ours is; 3: connected; -1: failed */
	struct end a, b;   /**< with copies of what is pointed to: */
	struct ibv_qp a_qp, b_qp;
	struct ibv_mr b_mr;
};

static int stage_await(struct meeting *meeting, int stage)
{
	static const struct timespec nap = {0, 1000000};
	uint64_t deadline_ns = clock_mono_ns() + 10 * NS_PER_SEC;
	int now;

	while ((now = atomic_load(&meeting->stage)) >= 0 && now < stage) {
		if (clock_mono_ns() > deadline_ns) {
			return -1;
		}
		nanosleep(&nap, NULL);
	}
	return now < 0 ? -1 : 0;
}

static const struct patience brisk = {.timeout = 10, .retry_cnt = 3, .rnr_retry = 7};

_Noreturn static void child_run(struct meeting *meeting, const char *device)
{
	struct end b;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (end_open(&b, device)) {
		atomic_store(&meeting->stage, -1);
		_exit(1);
	}
	meeting->b = b;
	meeting->b_qp = *b.qp;
	meeting->b_mr = *b.mr;
	atomic_store(&meeting->stage, 1);

	struct end a;

	if (stage_await(meeting, 2)) {
		_exit(1);
	}
	a = meeting->a;
	a.qp = &meeting->a_qp;
	if (end_to_init(&b) || end_to_rtr(&b, &a) || end_to_rts(&b, &brisk) ||
	    end_post_recv(&b, 1, 32)) {
		atomic_store(&meeting->stage, -1);
		_exit(1);
	}
	atomic_store(&meeting->stage, 3);
	for (;;) {
		pause();
	}
}

static int meeting_connect(struct meeting *meeting, struct end *a, struct end *peer)
{
	if (stage_await(meeting, 1)) {
		return -1;
	}
	*peer = meeting->b;
	peer->qp = &meeting->b_qp;
	peer->mr = &meeting->b_mr;
	meeting->a = *a;
	meeting->a_qp = *a->qp;
	atomic_store(&meeting->stage, 2);
	if (stage_await(meeting, 3) || end_to_init(a) || end_to_rtr(a, peer)) {
		return -1;
	}
	return end_to_rts(a, &brisk);
}

static void write_say(struct end *a, const struct end *peer, uint64_t wr_id, const char *topic)
{
	struct ibv_wc wc;
	uint64_t start_ns = clock_mono_ns();

	end_post_write(a, peer, wr_id, 4096, IBV_SEND_SIGNALED);
	if (end_poll(a, &wc, 3000) == 1) {
		say(topic, "status %d%s", (int)wc.status,
		    clock_mono_ns() - start_ns > NS_PER_SEC ? ", after more than 1 s" : "");
	} else {
		say(topic, "nothing in 3 s");
	}
}

void probe_process(const char *device_a, const char *device_b)
{
	struct meeting *meeting = mmap(NULL, sizeof(*meeting), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct end own = {0};
	struct end *a = &own;
	struct end peer;

	if (meeting == MAP_FAILED) {
		return;
	}
	pid_t pid = fork();

	if (pid == 0) {
		child_run(meeting, device_b);
	}
	/* Only now: a forked process must not share an opened device. */
	if (pid > 0 && !end_open(a, device_a) && !meeting_connect(meeting, a, &peer)) {
		write_say(a, &peer, 1, "peer process runs, write");
		kill(pid, SIGSTOP);
		waitpid(pid, NULL, WUNTRACED);
		write_say(a, &peer, 2, "peer process is stopped, write");
		kill(pid, SIGKILL);
		kill(pid, SIGCONT);
		waitpid(pid, NULL, 0);
		write_say(a, &peer, 3, "peer process is killed, write");
	} else {
		say("peer process", "could not be met");
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	end_close(a);
	munmap(meeting, sizeof(*meeting));
}
