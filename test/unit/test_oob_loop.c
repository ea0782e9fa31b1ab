/* SPDX-License-Identifier: Apache-2.0 */
#include "include/clock.h"
#include "oob/loop.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
	POSTERS = 4,
	POSTS = 5000
};

struct bench {
	struct oob_loop *loop;
	sem_t sem;
	/* loop thread, read by the test after sem or after stop */
	unsigned next[POSTERS], ran_count, disorder_count;
	unsigned ticks;
	struct oob_timer timer;
	struct oob_watch watch;
	long switches;
	sigset_t mask;
	char name[16];
	int self;
};

/** Wait with a bound: a test that hangs says nothing. */
static void bench_wait(struct bench *bench)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	assert_int_equal(sem_timedwait(&bench->sem, &until), 0);
}

static void bench_open(struct bench *bench)
{
	memset(bench, 0, sizeof(*bench));
	sem_init(&bench->sem, 0, 0);
	assert_int_equal(oob_loop_start(&bench->loop), 0);
}

struct post {
	struct bench *bench;
	unsigned poster, number;
};

static void post_run(void *arg)
{
	struct post *post = arg;
	struct bench *bench = post->bench;

	if (post->number != bench->next[post->poster]) {
		bench->disorder_count++;
	}
	bench->next[post->poster] = post->number + 1;
	bench->ran_count++;
	free(post);
}

struct poster {
	struct bench *bench;
	unsigned idx;
	pthread_t thread;
};

static void *poster_main(void *arg)
{
	struct poster *poster = arg;

	for (unsigned i = 0; i < POSTS; i++) {
		struct post *post = malloc(sizeof(*post));

		assert_non_null(post);
		*post = (struct post){poster->bench, poster->idx, i};
		assert_int_equal(oob_loop_post(poster->bench->loop, post_run, post), 0);
	}
	return NULL;
}

static void posting_keeps_order(void **state)
{
	struct poster posters[POSTERS];
	struct bench bench;

	(void)state;
	bench_open(&bench);
	for (unsigned i = 0; i < POSTERS; i++) {
		posters[i] = (struct poster){.bench = &bench, .idx = i};
		assert_int_equal(pthread_create(&posters[i].thread, NULL, poster_main, &posters[i]),
				 0);
	}
	for (unsigned i = 0; i < POSTERS; i++) {
		pthread_join(posters[i].thread, NULL);
	}
	/* stop runs what was posted so far */
	oob_loop_stop(bench.loop);
	assert_int_equal(bench.ran_count, POSTERS * POSTS);
	assert_int_equal(bench.disorder_count, 0);
}

static void tick(void *arg)
{
	struct bench *bench = arg;

	/* stops itself from its own callback */
	if (++bench->ticks == 5) {
		assert_int_equal(oob_timer_set(bench->loop, &bench->timer, 0), 0);
		sem_post(&bench->sem);
	}
}

static void timer_begin(void *arg)
{
	struct bench *bench = arg;

	bench->timer.fn = tick;
	bench->timer.arg = bench;
	assert_int_equal(oob_timer_set(bench->loop, &bench->timer, 10000), 0);
	assert_int_equal(oob_timer_set(bench->loop, &bench->timer, 10), 0);
}

static void timer_is_periodic(void **state)
{
	struct bench bench;
	uint64_t begin_ns = clock_mono_ns(), took_ns;

	(void)state;
	bench_open(&bench);
	assert_int_equal(oob_loop_post(bench.loop, timer_begin, &bench), 0);
	bench_wait(&bench);
	took_ns = clock_mono_ns() - begin_ns;
	assert_true(took_ns >= 45 * NS_PER_MS);
	assert_true(took_ns < 9000 * NS_PER_MS);
	oob_loop_stop(bench.loop);
	assert_int_equal(bench.ticks, 5);
}

static void watch_ready(void *arg)
{
	struct bench *bench = arg;
	char byte;

	assert_int_equal(read(bench->watch.fd, &byte, 1), 1);
	bench->ticks++;
	if (byte == 'q') {
		oob_watch_stop(bench->loop, &bench->watch);
	}
	sem_post(&bench->sem);
}

static void watch_begin(void *arg)
{
	struct bench *bench = arg;

	bench->watch.fn = watch_ready;
	bench->watch.arg = bench;
	assert_int_equal(oob_watch_start(bench->loop, &bench->watch), 0);
}

static void nothing(void *arg)
{
	struct bench *bench = arg;

	sem_post(&bench->sem);
}

static void watch_sees_descriptor(void **state)
{
	struct bench bench;
	int ends[2];

	(void)state;
	bench_open(&bench);
	assert_int_equal(pipe(ends), 0);
	bench.watch.fd = ends[0];
	assert_int_equal(oob_loop_post(bench.loop, watch_begin, &bench), 0);
	assert_int_equal(write(ends[1], "a", 1), 1);
	bench_wait(&bench);
	assert_int_equal(write(ends[1], "q", 1), 1);
	bench_wait(&bench);
	/* no longer watched: two rounds through the loop and nobody reads it */
	assert_int_equal(write(ends[1], "b", 1), 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(oob_loop_post(bench.loop, nothing, &bench), 0);
		bench_wait(&bench);
	}
	oob_loop_stop(bench.loop);
	assert_int_equal(bench.ticks, 2);
	close(ends[0]);
	close(ends[1]);
}

static void look_around(void *arg)
{
	struct bench *bench = arg;

	pthread_sigmask(SIG_SETMASK, NULL, &bench->mask);
	pthread_getname_np(pthread_self(), bench->name, sizeof(bench->name));
	bench->self = oob_loop_is_self(bench->loop);
	sem_post(&bench->sem);
}

static void thread_is_private(void **state)
{
	struct bench bench;
	sigset_t mine;

	(void)state;
	bench_open(&bench);
	assert_int_equal(oob_loop_post(bench.loop, look_around, &bench), 0);
	bench_wait(&bench);
	for (int sig = 1; sig < 32; sig++) {
		if (sig != SIGKILL && sig != SIGSTOP) {
			assert_true(sigismember(&bench.mask, sig));
		}
	}
	pthread_sigmask(SIG_SETMASK, NULL, &mine);
	assert_false(sigismember(&mine, SIGTERM));
	assert_string_equal(bench.name, "braid-oob");
	assert_int_equal(bench.self, 1);
	assert_int_equal(oob_loop_is_self(bench.loop), 0);
	oob_loop_stop(bench.loop);
}

static void count_switches(void *arg)
{
	struct bench *bench = arg;
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	bench->switches = usage.ru_nvcsw;
	sem_post(&bench->sem);
}

static void idle_loop_sleeps(void **state)
{
	struct bench bench;
	struct timespec second = {.tv_sec = 1};
	long before;

	(void)state;
	bench_open(&bench);
	assert_int_equal(oob_loop_post(bench.loop, count_switches, &bench), 0);
	bench_wait(&bench);
	before = bench.switches;
	/* the absence of an event has no event: this second is what is measured */
	nanosleep(&second, NULL);
	assert_int_equal(oob_loop_post(bench.loop, count_switches, &bench), 0);
	bench_wait(&bench);
	/* went to sleep once, woken by the second post; a lock may add one */
	assert_true(bench.switches - before <= 2);
	oob_loop_stop(bench.loop);
}

static void repost(void *arg)
{
	struct bench *bench = arg;

	if (++bench->ran_count < 10) {
		assert_int_equal(oob_loop_post(bench->loop, repost, bench), 0);
	}
}

static void stop_is_orderly(void **state)
{
	struct bench bench;

	(void)state;
	oob_loop_stop(NULL);
	bench_open(&bench);
	oob_loop_stop(bench.loop);
	bench_open(&bench);
	/* a task that posts: its followers run too */
	assert_int_equal(oob_loop_post(bench.loop, repost, &bench), 0);
	oob_loop_stop(bench.loop);
	assert_int_equal(bench.ran_count, 10);
}

static void block(void *arg)
{
	struct bench *bench = arg;

	bench_wait(bench);
	bench->ran_count++;
}

static void *free_later(void *arg)
{
	struct bench *bench = arg;
	struct timespec after = {.tv_nsec = 200 * 1000 * 1000};

	nanosleep(&after, NULL);
	sem_post(&bench->sem);
	return NULL;
}

static void stop_waits_for_a_busy_task(void **state)
{
	struct bench bench;
	pthread_t thread;

	(void)state;
	bench_open(&bench);
	assert_int_equal(oob_loop_post(bench.loop, block, &bench), 0);
	assert_int_equal(pthread_create(&thread, NULL, free_later, &bench), 0);
	oob_loop_stop(bench.loop);
	assert_int_equal(bench.ran_count, 1);
	pthread_join(thread, NULL);
}

static volatile sig_atomic_t child_signals;

static void on_child(int sig)
{
	(void)sig;
	child_signals++;
}

static void host_keeps_sigchld(void **state)
{
	struct sigaction action = {.sa_handler = on_child}, now, old;
	struct bench bench;

	(void)state;
	sigaction(SIGCHLD, &action, &old);
	bench_open(&bench);
	sigaction(SIGCHLD, NULL, &now);
	assert_ptr_equal(now.sa_handler, on_child);
	oob_loop_stop(bench.loop);
	sigaction(SIGCHLD, &old, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(posting_keeps_order),        cmocka_unit_test(timer_is_periodic),
		cmocka_unit_test(watch_sees_descriptor),      cmocka_unit_test(thread_is_private),
		cmocka_unit_test(idle_loop_sleeps),           cmocka_unit_test(stop_is_orderly),
		cmocka_unit_test(stop_waits_for_a_busy_task), cmocka_unit_test(host_keeps_sigchld),
	};

	return cmocka_run_group_tests_name("oob_loop", tests, NULL, NULL);
}
